"""A run's figures for Prometheus, while it trains: progress, loss, and the machine's use."""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily

from falaj.workloads.errors import WorkloadError

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
