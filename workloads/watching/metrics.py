"""What Prometheus reads of a watch: that it looks, what it saw, and what it did."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from falaj.workloads.errors import WorkloadError
from falaj.workloads.watching.ladder import Seen
from falaj.workloads.watching.replicas import AUTHORITY, CERTIFICATE, PRIVATE_KEY

PREFIX: Final = "falaj_watch"


class Metrics:
    """The figures of one watch."""

    def __init__(self, service: str, model: str, interval: float) -> None:
        """Begin with none.

        Args:
            service: what is watched.
            model: likewise.
            interval: seconds between two looks.
        """
        self.registry = CollectorRegistry(auto_describe=True)
        labels = ("service", "model")
        of = (service, model)

        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", words, labels, registry=self.registry).labels(*of)

        self._looked = gauge("looked_timestamp_seconds", "End of the last look.")
        self._drifted = gauge("drifted", "1 where more than half of the replicas say so.")
        self._unknown = gauge("unknown", "1 where nobody knows whether anything drifted.")
        gauge("interval_seconds", "Between two looks.").set(interval)
        self._events = Counter(
            f"{PREFIX}_events", "What was told, by its name.", (*labels, "event"),
            registry=self.registry,
        )  # fmt: skip
        self._of = of

    def looked(self, seen: Seen) -> None:
        """Count a look that came to its end."""
        self._looked.set(time.time())
        self._drifted.set(seen == "drifted")
        self._unknown.set(seen == "unknown")

    def told(self, event: str) -> None:
        """Count what was told."""
        self._events.labels(*self._of, event).inc()


@contextmanager
def served(metrics: Metrics, listen: str, folder: Path) -> Generator[Callable[[], None]]:
    """Answer Prometheus for the block, by mutual TLS.

    Args:
        metrics: what is answered.
        listen: ``HOST:PORT``.
        folder: certificate, key and authority, as cert-manager lays them out.

    Yields:
        Reads the certificate anew, which cert-manager renews.

    Raises:
        WorkloadError: the address or a file can't be used.
    """
    host, colon, port = listen.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise WorkloadError(f"--metrics: given {listen!r}; allowed: HOST:PORT")
    certificate, key = (str(folder / each) for each in (CERTIFICATE, PRIVATE_KEY))
    try:
        server, thread = start_http_server(
            int(port), host, metrics.registry, certfile=certificate, keyfile=key,
            client_cafile=str(folder / AUTHORITY), client_auth_required=True,
        )  # fmt: skip
    except (OSError, ssl.SSLError) as error:
        raise WorkloadError(
            f"--metrics: {listen} with {folder} can't be served: {error}"
        ) from error

    def renew() -> None:
        listener = server.socket
        if isinstance(listener, ssl.SSLSocket):
            listener.context.load_cert_chain(certificate, key)

    try:
        yield renew
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
