"""The rendezvous: keys and values over HTTP, as Horovod's processes ask for them.

What they send is in horovod/common/gloo/http_store.cc: ``PUT``, ``GET`` and ``DELETE`` of
``/scope/key``. 200 and 404 are the only answers that they take for one; anything else, and no
answer, they try three times in all, half a second apart, and give up.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from falaj.workloads.errors import WorkloadError
from falaj.workloads.horovod.world import Machines

LONGEST_WAIT = 1.0
"""Seconds that an answer is held back until a key is there: Horovod asks again every 10 ms."""
MOST_BYTES = 4 * 1024 * 1024
"""Of a value. The largest that Horovod sends is 130 bytes for each process."""

_KEY = re.compile(r"^/([A-Za-z0-9_.-]{1,256})/([A-Za-z0-9_.:-]{1,256})$")
_MACHINE = re.compile(r"^/machines/([0-9]{1,6})$")


class Store:
    """Values by scope and key."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}
        self._changed = threading.Condition()

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Keep a value, in place of an older one."""
        with self._changed:
            self._values[scope, key] = value
            self._changed.notify_all()

    def get(self, scope: str, key: str, seconds: float) -> bytes | None:
        """Return a value; None if it isn't there after this many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: (scope, key) in self._values, seconds)
            return self._values.get((scope, key))

    def delete(self, scope: str, rank: str) -> None:
        """Forget what a process said in a scope.

        It sends this once all processes of the scope are connected, so nobody will ask again;
        and were it left, processes that end Horovod and begin anew would connect to what was.
        """
        with self._changed:
            self._values.pop((scope, rank), None)
            self._values.pop((scope, f"rank_{rank}"), None)


class Rendezvous(ThreadingHTTPServer):
    """Serves the store to processes, and what the machines say of themselves to launchers."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: str, port: int, machines: Machines) -> None:
        self.store = Store()
        self.machines = machines
        self.server_name, self.server_port = address, port
        try:
            super().__init__((address, port), _Answer)
        except OSError as error:
            raise WorkloadError(
                f"can't serve the rendezvous at {address}:{port}: {error.strerror or error}"
            ) from None

    def __enter__(self) -> Rendezvous:
        threading.Thread(target=self.serve_forever, args=(0.2,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind, without `HTTPServer`'s look-up of the address's name: that may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: whoever went away asks again."""


class _Answer(BaseHTTPRequestHandler):
    """One request. As with Horovod's own server there is one to a connection."""

    timeout = 30

    def do_GET(self) -> None:
        """A key's value, or 404."""
        if found := self._key():
            value = self._rendezvous.store.get(found[0], found[1], LONGEST_WAIT)
            self._say(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        """A key's new value."""
        if (found := self._key()) and (body := self._body()) is not None:
            self._rendezvous.store.put(found[0], found[1], body)
            self._say(200)

    def do_DELETE(self) -> None:
        """All that a process said in a scope; the key is its number."""
        if found := self._key():
            self._rendezvous.store.delete(*found)
            self._say(200)

    def do_POST(self) -> None:
        """What a machine's launcher says: ``{"attempt": …, "ended": status or null}``."""
        found, body = _MACHINE.match(self.path), self._body()
        if body is None:
            return
        try:
            sent = json.loads(body)
            attempt, ended = str(sent["attempt"]), sent["ended"]
        except (ValueError, TypeError, KeyError):
            self._say(400)
            return
        if found is None or not isinstance(ended, (int, type(None))):
            self._say(400)
            return
        state = self._rendezvous.machines.tell(int(found[1]), attempt, ended, time.monotonic())
        self._say(*((409, b"") if state is None else (200, json.dumps(state).encode())))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: there are thousands of requests."""

    @property
    def _rendezvous(self) -> Rendezvous:
        if not isinstance(self.server, Rendezvous):
            raise TypeError(f"this answers for a rendezvous, not for {self.server!r}")
        return self.server

    def _key(self) -> tuple[str, str] | None:
        found = _KEY.match(self.path)
        if found is None:
            self._say(400)
            return None
        return found[1], found[2]

    def _body(self) -> bytes | None:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdecimal()) or int(text) > MOST_BYTES:
            self._say(400)
            return None
        body = self.rfile.read(int(text))
        return body if len(body) == int(text) else None

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
