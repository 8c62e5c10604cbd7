"""An API server of the test's own, on the loopback: ConfigMaps, JobSets, and who may do what."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SPACE = "acme-training"
MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
STATE, REQUESTS = f"{MAPS}/credit-pipeline", f"{MAPS}/credit-drift"
WATCH, STARTER = "watch-token", "starter-token"
#: What the roles of `Pipeline` allow.
RIGHTS = {
    WATCH: {("GET", REQUESTS), ("PATCH", REQUESTS), ("GET", STATE)},
    STARTER: {
        ("GET", REQUESTS), ("GET", STATE), ("PATCH", STATE), ("GET", f"{SETS}/credit"),
        ("GET", SETS), ("POST", SETS),
    },
}  # fmt: skip
TEMPLATE: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {
        "name": "credit", "namespace": SPACE,
        "labels": {"falaj.io/pipeline": "credit", "falaj.io/pipeline-template": "true"},
        "annotations": {"falaj.io/queue": "default"},
    },
    "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {
        "metadata": {"annotations": {"falaj.io/dataset": "credit-*"}}, "spec": {},
    }}}}]},
}  # fmt: skip


@dataclass
class Objects:
    """What is there, by path; and what was asked."""

    port: int = 0
    found: dict[str, Any] = field(
        default_factory=lambda: {REQUESTS: {}, STATE: {}, f"{SETS}/credit": TEMPLATE}
    )
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def request(self) -> dict[str, Any] | None:
        """What the pipeline is asked for."""
        text = self.found[REQUESTS].get("data", {}).get("drift.json")
        return json.loads(text) if text is not None else None

    def data(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Merge one (RFC 7386), of two levels."""
        data = dict(self.found[path].get("data", {}))
        for key, value in patch["data"].items():
            data.pop(key, None)
            if value is not None:
                data[key] = value
        self.found[path] = {"data": data}
        return self.found[path]

    def runs(self) -> list[dict[str, Any]]:
        """The JobSets but for the template."""
        return [
            each for path, each in self.found.items()
            if path.startswith(f"{SETS}/") and each is not TEMPLATE
        ]  # fmt: skip


@contextmanager
def serving(pki: Path) -> Generator[Objects]:
    """Serve for the block, with the certificate of a site's server."""
    objects = Objects()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            del format, args

        def _answer(self) -> None:
            path, verb = urlsplit(self.path).path, self.command
            objects.asked.append((verb, path))
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            token = str(self.headers.get("Authorization", "")).removeprefix("Bearer ")
            if (verb, path) == ("POST", REVIEWS) and token in RIGHTS:
                # Everybody may ask who they are: system:basic-user.
                self._say(201, body | {"status": {"userInfo": {"username": token, "uid": "7e"}}})
            elif (verb, path) not in RIGHTS.get(token, set()):
                self._say(403, {"message": f"{verb} of {path} is forbidden"})
            elif verb == "PATCH":
                self._say(200, objects.data(path, body))
            elif verb == "POST":
                objects.found[f"{path}/{body['metadata']['name']}"] = body
                self._say(201, body)
            elif path == SETS:
                self._say(200, {"items": objects.runs(), "metadata": {}})
            elif path in objects.found:
                self._say(200, objects.found[path])
            else:
                self._say(404, {"message": f"{path} isn't there"})

        do_GET = do_PATCH = do_POST = _answer  # noqa: N815 - as the library calls them

        def _say(self, status: int, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        objects.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield objects
        finally:
            server.shutdown()
            thread.join()
