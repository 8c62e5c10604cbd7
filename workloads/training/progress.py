"""What a run says while it trains: events on stdout, the machine's use, figures for Prometheus."""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

import psutil
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.gpu_watch import MEBIBYTE, Sample, watched


class Progress:
    """Prints events until the reader goes away.

    Args:
        style: ``json`` or ``text``.
        enabled: False in all but the first process of a run.
        on_lost: called once when nobody reads any more.
    """

    def __init__(self, style: str, enabled: bool, on_lost: Callable[[], None]) -> None:
        self._style = style
        self._enabled = enabled
        self._on_lost = on_lost
        # The program's own: what a team's model prints goes elsewhere.
        self._stream = sys.stdout

    def emit(self, event: str, message: str, **fields: Any) -> None:
        """Print one event at once.

        Args:
            event: start, resume, epoch, straggler, stopped or finished.
            message: the same in words.
            fields: what a program wants to know; numbers that are not finite become null.
        """
        if not self._enabled:
            return
        if self._style == "json":
            finite = {key: finite_or_none(value) for key, value in fields.items()}
            line = json.dumps({"event": event, **finite, "message": message}, ensure_ascii=False)
        else:
            line = message
        if not written(self._stream, line):
            self._enabled = False
            self._on_lost()


def written(stream: TextIO, line: str) -> bool:
    """Print a line at once; return False where nobody reads any more, which later ones survive."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except (BrokenPipeError, ValueError):
        # The interpreter flushes it once more when it ends: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


def duration(seconds: float) -> str:
    """Return ``seconds`` for people: ``42 s`` or ``3 min 05 s``."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def finite_or_none(value: Any) -> Any:
    """Return ``value``, or None for a number that JSON has no word for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PERIOD_SECONDS = 1.0


class Telemetry:
    """Samples once a second in a thread, from `start` to `stop`.

    Each sample holds ``cpu_percent`` (of the whole machine), ``process_cpu_percent`` (100 is one
    core), ``memory_mib`` (resident, this process), ``machine_memory_percent``, and for each GPU
    ``gpu<i>_utilisation_percent``, ``gpu<i>_temperature_celsius``, ``gpu<i>_power_watts``,
    ``gpu<i>_clock_mhz`` and ``gpu<i>_memory_mib``. A figure that the hardware doesn't give is
    left out.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._gpus = watched()
        self._samples: list[Sample] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin to sample; CPU figures are means since the sample before."""
        psutil.cpu_percent()
        self._process.cpu_percent()
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End sampling and return the mean and the largest value of each figure.

        And what `gpu_watch` says of each GPU.
        """
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
            **({"by_gpu": [each.summary() for each in self._gpus]} if self._gpus else {}),
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
            "memory_mib": self._process.memory_info().rss / MEBIBYTE,
            "machine_memory_percent": psutil.virtual_memory().percent,
        }
        for each in self._gpus:
            sample.update(each.sample())
        return sample


_PLACE = re.compile(r"^(?:\[([0-9a-fA-F:.]+)\]|([0-9a-fA-F:.]+)):(\d{1,5})$")
_GPU = re.compile(r"^gpu(\d+)_(\w+)$")
_PREFIX = "falaj_training_"


class Exporter:
    """Serves the latest figures over HTTP until the run ends; they hold nothing of the data.

    Args:
        place: address and port to listen on: ``10.0.0.7:9464``, ``[::1]:9464``.
        machine: the newest sample of the machine's use.

    Raises:
        WorkloadError: ``place`` is no address and port, or can't be listened on.
    """

    def __init__(self, place: str, machine: Callable[[], Mapping[str, float]]) -> None:
        host, port = listening(place)
        self._machine, self._line = machine, dict[str, Any]()
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise WorkloadError(
                f"--metrics {place} can't be listened on: {error.strerror}; choose another port"
            ) from error

    def epoch(self, line: Mapping[str, Any]) -> None:
        """Take the figures of an epoch, as metrics.jsonl has them."""
        self._line = dict(line)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the figures of now; Prometheus's library asks for them."""
        for name, value in self._line.items():
            if isinstance(value, int | float):
                yield GaugeMetricFamily(_PREFIX + name, f"{name} of the last epoch", value=value)
        gpus: dict[str, GaugeMetricFamily] = {}
        for name, value in self._machine().items():
            found = _GPU.match(name)
            if not found:
                text = f"{name} of the training process or its machine"
                yield GaugeMetricFamily(_PREFIX + name, text, value=value)
                continue
            figure = f"{_PREFIX}gpu_{found[2]}"
            family = gpus.setdefault(
                figure, GaugeMetricFamily(figure, f"{found[2]} of a GPU", labels=["gpu"])
            )
            family.add_metric([found[1]], value)
        yield from gpus.values()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not threading.current_thread():
            self._thread.join()


def listening(place: str) -> tuple[str, int]:
    """Address and port of ``place``.

    Raises:
        WorkloadError: it is neither ``address:port`` nor ``[address]:port``.
    """
    found = _PLACE.match(place)
    try:
        host = str(ipaddress.ip_address(found[1] or found[2])) if found else ""
    except ValueError:
        host = ""
    if not found or not host or not 1 <= int(found[3]) <= 65535:
        raise WorkloadError(
            f"--metrics is {place!r}: allowed is an address of this machine and a port, as "
            "127.0.0.1:9464 or [::1]:9464"
        )
    return host, int(found[3])
