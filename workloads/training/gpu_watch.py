"""What the driver says of each GPU while a run trains (NVML), and what is wrong with one.

NVML: https://docs.nvidia.com/deploy/nvml-api/. Figures that a card or its driver doesn't give are
left out. All GPUs of the machine are read, whoever uses them.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

MEBIBYTE: Final = 1 << 20
_KIBIBYTES: Final = 1 << 10
Sample = dict[str, float]

_SLOWED: Final = {
    "power": ("nvmlClocksEventReasonSwPowerCap", "nvmlClocksEventReasonHwPowerBrakeSlowdown"),
    "heat": (
        "nvmlClocksEventReasonSwThermalSlowdown", "nvmlClocksEventReasonHwThermalSlowdown",
    ),
    "hardware": ("nvmlClocksEventReasonHwSlowdown",),
}  # fmt: skip
"""Why clocks are lower than they could be, by the driver's names. The last is one of both above,
or what the board asks for."""
_OFTEN: Final = 0.05
"""Share of the samples from which on a GPU counts as slowed: it is for moments in any training."""
_MOST_EVENTS: Final = 100
"""Taken at a time: a broken card may tell them without end."""
_ALL_LINKS: Final = 0xFFFFFFFF
_LINKS: Final = {"sent": "DATA_TX", "received": "DATA_RX"}


class GpuWatch:
    """One GPU from the begin of a run to its end.

    Args:
        nvml: the module ``pynvml``.
        index: of the GPU in the machine.
        handle: the driver's.
    """

    def __init__(self, nvml: Any, index: int, handle: Any) -> None:
        self._nvml, self._index, self._handle = nvml, index, handle
        self._busy: list[float] = []
        self._slowed = Counter[str]()
        self._looks = 0
        self._is_lost = False
        self._events = self._registered()
        self._xids = Counter[int]()
        self._begun = self._counters()
        self._links = self._up()

    def sample(self) -> Sample:
        """Return the figures of now, by names that begin with the GPU's, and remember some."""
        nvml, handle = self._nvml, self._handle
        figures: dict[str, Callable[[], float]] = {
            "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,  # given in mW
            "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / MEBIBYTE,
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        }
        found: Sample = {}
        for name, figure in figures.items():
            value = self._asked(figure)
            if value is not None:
                found[name] = float(value)
        if "utilisation_percent" in found:
            self._busy.append(found["utilisation_percent"] / 100)
        reasons = self._asked(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if reasons is not None:
            self._looks += 1
            self._slowed.update(
                name for name, bits in _SLOWED.items() if reasons & self._mask(bits)
            )
        self._drain()
        return {f"gpu{self._index}_{name}": value for name, value in found.items()}

    def summary(self) -> dict[str, Any]:
        """Return what is known of it since the begin, with what is wrong in words."""
        ended = self._counters()
        found: dict[str, Any] = {
            name: max(0, ended[name] - begun) for name, begun in self._begun.items()
            if name in ended
        }  # fmt: skip
        if self._busy:
            found["idle_share"] = round(1 - statistics.fmean(self._busy), 4)
        if self._looks:
            found["slowed_share"] = {
                name: round(self._slowed[name] / self._looks, 4) for name in _SLOWED
            }
        if self._events is not None:
            found["xids"] = {str(number): times for number, times in sorted(self._xids.items())}
        self._asked(lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle))
        if self._is_lost:
            found["lost"] = True
        elif self._links:
            found["links"] = len(self._links)
            found["links_down"] = len(self._links - self._up())
        return {**found, "anomalies": [f"GPU {self._index} {each}" for each in wrong_with(found)]}

    def _counters(self) -> dict[str, int]:
        """Those that only grow, as far as they are there."""
        nvml, handle = self._nvml, self._handle
        asked: dict[str, Callable[[], int]] = {
            "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            "ecc_corrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            "pcie_replays": lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle),
            **{
                f"nvlink_{name}_mib": lambda field=field: self._moved(field)
                for name, field in _LINKS.items()
            },
        }
        values = {name: self._asked(read) for name, read in asked.items()}
        return {name: int(value) for name, value in values.items() if value is not None}

    def _moved(self, field: str) -> int:
        """MiB over all of its NVLinks."""
        nvml = self._nvml
        number = getattr(nvml, f"NVML_FI_DEV_NVLINK_THROUGHPUT_{field}")
        (found,) = nvml.nvmlDeviceGetFieldValues(self._handle, [(number, _ALL_LINKS)])
        if found.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(found.nvmlReturn)
        return int(found.value.ullVal) // _KIBIBYTES

    def _up(self) -> frozenset[int]:
        """The NVLinks that are up."""
        nvml = self._nvml
        return frozenset(
            link for link in range(nvml.NVML_NVLINK_MAX_LINKS)
            if self._asked(lambda link=link: nvml.nvmlDeviceGetNvLinkState(self._handle, link))
        )  # fmt: skip

    def _registered(self) -> Any:
        """The set that the driver puts the GPU's errors (XID) into; None: it doesn't tell them."""
        nvml = self._nvml

        def register() -> Any:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
            return events

        return self._asked(register)

    def _drain(self) -> None:
        """Take the errors that came since the look before, without waiting for one."""
        if self._events is None:
            return
        for _ in range(_MOST_EVENTS):
            event = self._asked(lambda: self._nvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:
                return
            self._xids[int(event.eventData)] += 1

    def _mask(self, names: tuple[str, ...]) -> int:
        return sum(int(getattr(self._nvml, name)) for name in names)

    def _asked(self, read: Callable[[], Any]) -> Any:
        """What the driver answers; None: this card or this driver doesn't, or the card is gone."""
        try:
            return read()
        except self._nvml.NVMLError as error:
            self._is_lost |= _number(error) == self._nvml.NVML_ERROR_GPU_IS_LOST
            return None


def _number(error: Exception) -> int | None:
    """The driver's number of an error; functions that a driver doesn't have at all are of none."""
    return getattr(error, "value", None)


def wrong_with(figures: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a GPU's figures isn't as it should be, after its name.

    Args:
        figures: of `GpuWatch.summary`.
    """
    if figures.get("lost"):
        yield "was lost: it no longer answers its driver"
    for name, share in figures.get("slowed_share", {}).items():
        if share >= _OFTEN:
            by = "by its hardware" if name == "hardware" else f"by {name}"
            yield f"was slowed {by} for {share:.0%} of the time"
    if errors := figures.get("ecc_uncorrected"):
        yield f"had {errors} memory errors that couldn't be corrected (ECC)"
    for number, times in figures.get("xids", {}).items():
        yield f"reported error XID {number}" + (f", {times} times" if times > 1 else "")
    if down := figures.get("links_down"):
        yield f"lost {down} of {figures['links']} NVLinks"


def watched() -> list[GpuWatch]:
    """Return a watch for each NVIDIA GPU of the machine; none without a driver."""
    import pynvml  # noqa: PLC0415 - from nvidia-ml-py; the library is there without a driver too

    nvml = cast("Any", pynvml)
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return []
    found: list[GpuWatch] = []
    for index in range(count):
        # One that is broken, or somebody else's, keeps nobody from watching the others.
        with contextlib.suppress(nvml.NVMLError):
            found.append(GpuWatch(nvml, index, nvml.nvmlDeviceGetHandleByIndex(index)))
    return found
