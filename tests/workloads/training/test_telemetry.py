"""Utilisation samples, with and without GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from falaj.workloads.training.progress import Telemetry, gpu_readers


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
    return SimpleNamespace(**{**working, **changed})


def test_without_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise _NvmlError

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=absent))
    assert gpu_readers() == []


def test_gpu_figures_that_are_not_supported_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    first, second = gpu_readers()
    expected = {
        "gpu0_utilisation_percent": 40,
        "gpu0_temperature_celsius": 61,
        "gpu0_memory_mib": 3,
    }
    assert first() == expected
    assert second()["gpu1_utilisation_percent"] == 41


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
