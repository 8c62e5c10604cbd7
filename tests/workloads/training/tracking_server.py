"""A server on loopback with the rules of MLflow's REST API that tracking relies on.

They are those of `mlflow server` 3.17.2, which was sent the same runs: parameters don't change,
figures with the same key, step, time and value count once, datasets by name and digest, digests of
at most 36 characters, 100 parameters and tags and 1,000 figures in a request.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.workloads.inference.serving import Pki

_FILTER = re.compile(r"^tags\.`([^`]+)` = '([^']*)'$")
_PATH = "/api/2.0/mlflow/"


class RefusedError(Exception):
    """A request that MLflow refuses."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Store:
    """What a tracking server has."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.authorizations: list[str | None] = []
        self.fail_after: int | None = None
        self.deleted = False

    def answer(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(path)
        if self.fail_after is not None and len(self.calls) > self.fail_after:
            raise RefusedError(503, "TEMPORARILY_UNAVAILABLE")
        return getattr(self, "_" + re.sub(r"\W", "_", path))(given)

    def _experiments_get_by_name(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["experiment_name"] not in self.experiments:
            raise RefusedError(404, "RESOURCE_DOES_NOT_EXIST")
        stage = "deleted" if self.deleted else "active"
        found = self.experiments[given["experiment_name"]]
        return {"experiment": {"experiment_id": found, "lifecycle_stage": stage}}

    def _experiments_create(self, given: dict[str, Any]) -> dict[str, Any]:
        self.experiments[given["name"]] = str(len(self.experiments) + 1)
        return {"experiment_id": self.experiments[given["name"]]}

    def _runs_search(self, given: dict[str, Any]) -> dict[str, Any]:
        found = _FILTER.match(given["filter"])
        assert found
        return {"runs": [
            {"info": {"run_id": each}} for each, run in self.runs.items()
            if run["tags"].get(found[1]) == found[2]
            and run["experiment"] in given["experiment_ids"]
        ]}  # fmt: skip

    def _runs_create(self, given: dict[str, Any]) -> dict[str, Any]:
        name = f"{len(self.runs):032x}"
        self.runs[name] = {
            "experiment": given["experiment_id"], "status": "RUNNING", "params": {},
            "metrics": set(), "tags": {}, "inputs": set(), "start": given["start_time"],
        }  # fmt: skip
        self._log_tags(name, given["tags"])
        return {"run": {"info": {"run_id": name}}}

    def _log_tags(self, run: str, tags: list[dict[str, str]]) -> None:
        assert len(tags) <= 100
        self.runs[run]["tags"].update({each["key"]: each["value"] for each in tags})

    def _runs_log_batch(self, given: dict[str, Any]) -> dict[str, Any]:
        run, params = self.runs[given["run_id"]], given.get("params", [])
        assert len(params) <= 100
        assert len(given.get("metrics", [])) <= 1000
        for each in params:
            if run["params"].setdefault(each["key"], each["value"]) != each["value"]:
                raise RefusedError(400, "INVALID_PARAMETER_VALUE")
        for each in given.get("metrics", []):
            run["metrics"].add((each["key"], each["step"], each["timestamp"], each["value"]))
        self._log_tags(given["run_id"], given.get("tags", []))
        return {}

    def _runs_log_inputs(self, given: dict[str, Any]) -> dict[str, Any]:
        for each in given["datasets"]:
            if len(each["dataset"]["digest"]) > 36:
                raise RefusedError(400, "INVALID_PARAMETER_VALUE")
            named = (each["dataset"]["name"], each["dataset"]["digest"])
            self.runs[given["run_id"]]["inputs"].add(named)
        return {}

    def _runs_update(self, given: dict[str, Any]) -> dict[str, Any]:
        self.runs[given["run_id"]] |= {"status": given["status"], "end": given.get("end_time")}
        return {}


@contextmanager
def serving(store: Store, pki: Pki | None = None) -> Generator[str]:
    """Serve ``store``, over TLS with an authority of one's own where one is given; gives its
    address."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self, given: dict[str, Any], path: str) -> None:
            store.authorizations.append(self.headers.get("Authorization"))
            try:
                status, answer = 200, store.answer(path.removeprefix(_PATH), given)
            except RefusedError as error:
                status, answer = error.status, {"error_code": error.code, "message": "no"}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._do({key: values[0] for key, values in parse_qs(parts.query).items()}, parts.path)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._do(json.loads(body), self.path)

        def handle(self) -> None:
            with suppress(ssl.SSLError):
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if pki is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki.folder / "server.crt", pki.folder / "server.key")
        # Of each connection by itself: who doesn't trust it hangs up, and ends nobody else.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if pki is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
