"""A line between two clusters that can be cut and mended: both go on, and hear nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from urllib.parse import urlsplit

_BYTES = 65_536
_SECONDS = 10.0


class Relay:
    """Hands connections on to one server on loopback.

    While it is cut, connections are closed as they come, and those that were there end.
    """

    def __init__(self, server: str) -> None:
        """Listen on a port of its own for what is for `server`, such as https://127.0.0.1:6443."""
        found = urlsplit(server)
        self._target = (str(found.hostname), int(found.port or 443))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._whole = True
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through any more."""
        with self._lock:
            self._whole = False
            for each in self._open:
                _end(each)

    def mend(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._whole = True

    def close(self) -> None:
        """Cut it for good."""
        self.cut()
        _end(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, _SECONDS)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
                if not self._whole:
                    _end(near)
                    _end(far)
            threading.Thread(target=self._both, args=(near, far), daemon=True).start()

    def _both(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
            near.close()
            far.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_BYTES):
            target.sendall(data)
    except OSError:
        pass
    _end(source)
    _end(target)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it ended already
        each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(server: str) -> Generator[Relay]:
    """A line to `server`, cut afterwards."""
    found = Relay(server)
    try:
        yield found
    finally:
        found.close()
