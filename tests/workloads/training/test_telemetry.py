"""Utilisation samples, with and without GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from falaj.workloads.training.gpu_watch import watched, wrong_with
from falaj.workloads.training.progress import Telemetry

NUMBERS = ("nvmlClocksEventReason", "nvmlEventType")
ASKED = {
    "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlEventSetCreate",
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetFieldValues", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2",
}  # fmt: skip


class _NvmlError(Exception):
    pass


def _nvml(**changed: Any) -> Any:
    def refuse(_: Any) -> Any:
        raise _NvmlError

    working: dict[str, Any] = {
        "NVMLError": _NvmlError,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40 + handle),
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
        "nvmlDeviceGetPowerUsage": refuse,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=3 << 20),
    }
    # Names and numbers are the library's own.
    working = {name: getattr(pynvml, name) for name in dir(pynvml) if name.isupper()} | working
    working |= {each: getattr(pynvml, each) for each in dir(pynvml) if each.startswith(NUMBERS)}
    for name in ASKED - working.keys():
        working[name] = lambda *_: refuse(0)
    return SimpleNamespace(**{**working, **changed})


def test_without_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise _NvmlError

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=absent))
    assert watched() == []
    assert "by_gpu" not in Telemetry().stop()


def test_gpu_figures_that_are_not_supported_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    first, second = watched()
    expected = {
        "gpu0_utilisation_percent": 40,
        "gpu0_temperature_celsius": 61,
        "gpu0_memory_mib": 3,
    }
    assert first.sample() == expected
    assert second.sample()["gpu1_utilisation_percent"] == 41


def test_short_runs_have_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    telemetry = Telemetry()
    telemetry.start()
    summary = telemetry.stop()
    assert summary["samples"] == 1
    assert summary["gpus"] == 2
    assert summary["mean"]["memory_mib"] > 1
    assert 0 <= summary["largest"]["machine_memory_percent"] <= 100
    assert summary["largest"]["gpu1_utilisation_percent"] == 41
    assert telemetry.latest()["gpu0_memory_mib"] == 3


def test_stop_without_start_is_safe() -> None:
    assert Telemetry().stop()["samples"] == 1


def test_what_is_wrong_with_a_gpu_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two, one of which is slowed by heat and loses memory, a link and itself."""
    reasons = iter([0x1, 0x4, 0x60, 0x40] * 2)  # as nvml.h numbers them: idle, power, heat, heat
    errors, links = {1: 0}, {0, 1, 2, 3}
    events = [79, 48, 48]

    def wait(of: int, milliseconds: int) -> Any:
        assert milliseconds == 0
        if of == 0 or not events:
            raise _NvmlError
        return SimpleNamespace(
            eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=events.pop()
        )

    def moved(handle: int, fields: list[tuple[int, int]]) -> Any:
        ((number, scope),) = fields
        assert scope == 2**32 - 1
        sent = number == pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
        value = SimpleNamespace(ullVal=(5 if sent else 7) << 20 if errors[1] else 0)
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    sets = iter([0, 1])
    told: dict[str, Any] = {
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1_980,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: next(reasons) if handle else 0x1,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: errors[1] if handle else 0,
        "nvmlDeviceGetPcieReplayCounter": lambda handle: 4,
        "nvmlEventSetCreate": lambda: next(sets),
        "nvmlDeviceRegisterEvents": lambda handle, kinds, of: None,
        "nvmlEventSetWait_v2": wait,
        "nvmlDeviceGetNvLinkState": lambda handle, link: int(link in links),
        "nvmlDeviceGetFieldValues": moved,
    }
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(**told))
    first, second = watched()
    errors[1] = 2
    links.discard(3)
    for _ in range(4):
        assert first.sample()["gpu0_clock_mhz"] == 1_980
        second.sample()
    sound, sick = first.summary(), second.summary()
    assert sound["idle_share"] == pytest.approx(0.6)
    assert sound["anomalies"] == ["GPU 0 lost 1 of 4 NVLinks"]
    assert sick == {
        "ecc_uncorrected": 2, "ecc_corrected": 2, "pcie_replays": 0, "nvlink_sent_mib": 5 << 10,
        "nvlink_received_mib": 7 << 10, "idle_share": 0.59,
        "slowed_share": {"power": 0.25, "heat": 0.5, "hardware": 0.0},
        "xids": {"48": 2, "79": 1}, "links": 4, "links_down": 1,
        "anomalies": [
            "GPU 1 was slowed by power for 25% of the time",
            "GPU 1 was slowed by heat for 50% of the time",
            "GPU 1 had 2 memory errors that couldn't be corrected (ECC)",
            "GPU 1 reported error XID 48, 2 times",
            "GPU 1 reported error XID 79",
            "GPU 1 lost 1 of 4 NVLinks",
        ],
    }  # fmt: skip
    assert list(wrong_with({"slowed_share": {"heat": 0.04}, "links_down": 0, "xids": {}})) == []


class _LostError(_NvmlError):
    value = pynvml.NVML_ERROR_GPU_IS_LOST


def test_a_gpu_that_is_gone_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[int] = set()

    def unless_gone(value: Any) -> Any:
        def read(handle: int, *_: Any) -> Any:
            if handle in gone:
                raise _LostError
            return value

        return read

    answers = {
        "nvmlDeviceGetUtilizationRates": unless_gone(SimpleNamespace(gpu=40)),
        "nvmlDeviceGetTemperature": unless_gone(61),
        "nvmlDeviceGetMemoryInfo": unless_gone(SimpleNamespace(used=3 << 20)),
        "nvmlDeviceGetNvLinkState": unless_gone(1),
        "nvmlDeviceGetPcieReplayCounter": unless_gone(4),
    }
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(**answers))
    first, second = watched()
    gone.add(1)
    assert "gpu0_memory_mib" in first.sample()
    assert second.sample() == {}
    assert first.summary()["anomalies"] == []
    assert second.summary() == {
        "lost": True, "anomalies": ["GPU 1 was lost: it no longer answers its driver"],
    }  # fmt: skip


def test_a_gpu_that_nobody_may_ask_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle_of(index: int) -> int:
        if index == 0:
            raise _NvmlError
        return index

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlDeviceGetHandleByIndex=handle_of))
    (only,) = watched()
    assert only.sample()["gpu1_utilisation_percent"] == 41
