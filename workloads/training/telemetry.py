"""Utilisation of the machine during a run: CPU and memory always, GPUs where there are any."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Any

import psutil

_PERIOD_SECONDS = 1.0
_MEBIBYTE = 1 << 20

Sample = dict[str, float]


class Telemetry:
    """Samples once a second in a thread, from `start` to `stop`.

    Each sample holds ``cpu_percent`` (of the whole machine), ``process_cpu_percent`` (100 is one
    core), ``memory_mib`` (resident, this process), ``machine_memory_percent``, and for each GPU
    ``gpu<i>_utilisation_percent``, ``gpu<i>_temperature_celsius``, ``gpu<i>_power_watts`` and
    ``gpu<i>_memory_mib``. A figure that the hardware doesn't give is left out.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._gpus = gpu_readers()
        self._samples: list[Sample] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin to sample; CPU figures are means since the sample before."""
        psutil.cpu_percent()
        self._process.cpu_percent()
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End sampling and return the mean and the largest value of each figure."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._samples.append(self._sample())
        names = sorted({name for sample in self._samples for name in sample})
        series = {name: [s[name] for s in self._samples if name in s] for name in names}
        return {
            "samples": len(self._samples),
            "period_seconds": _PERIOD_SECONDS,
            "gpus": len(self._gpus),
            "mean": {name: round(statistics.fmean(v), 2) for name, v in series.items()},
            "largest": {name: round(max(v), 2) for name, v in series.items()},
        }

    def latest(self) -> Sample:
        """Return the newest sample, {} before the first."""
        return dict(self._samples[-1]) if self._samples else {}

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD_SECONDS):
            self._samples.append(self._sample())

    def _sample(self) -> Sample:
        sample = {
            "cpu_percent": psutil.cpu_percent(),
            "process_cpu_percent": self._process.cpu_percent(),
            "memory_mib": self._process.memory_info().rss / _MEBIBYTE,
            "machine_memory_percent": psutil.virtual_memory().percent,
        }
        for read in self._gpus:
            sample.update(read())
        return sample


def gpu_readers() -> list[Callable[[], Sample]]:
    """Return one function per NVIDIA GPU that samples it; none without a driver."""
    import pynvml  # noqa: PLC0415 - from nvidia-ml-py; the library is there without a driver too

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except pynvml.NVMLError:
        return []
    return [_gpu_reader(pynvml, index, handle) for index, handle in enumerate(handles)]


def _gpu_reader(nvml: Any, index: int, handle: Any) -> Callable[[], Sample]:
    figures: dict[str, Callable[[], float]] = {
        "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
            handle, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,  # given in mW
        "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / _MEBIBYTE,
    }

    def read() -> Sample:
        sample: Sample = {}
        for name, figure in figures.items():
            try:
                sample[f"gpu{index}_{name}"] = float(figure())
            except nvml.NVMLError:  # not supported by this card, or the card is gone
                continue
        return sample

    return read
