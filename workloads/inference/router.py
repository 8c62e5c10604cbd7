"""Which path means what: exact comparison first, words for what is unknown."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from falaj.workloads.inference.errors import RequestError

LIVE = "live"
READY = "ready"
SERVER = "server"
MODEL = "model"
MODEL_READY = "model_ready"
INFER = "infer"
METRICS = "metrics"


class Route(NamedTuple):
    """One thing that the server does: its name, the method it takes and the scope it needs."""

    name: str
    method: bytes
    scope: str | None


ROUTES = (
    Route(LIVE, b"GET", None),
    Route(READY, b"GET", None),
    Route(SERVER, b"GET", "predict"),
    Route(MODEL, b"GET", "predict"),
    Route(MODEL_READY, b"GET", "predict"),
    Route(INFER, b"POST", "predict"),
    Route(METRICS, b"GET", "observe"),
)


class Router:
    """The paths of one model in one version, each with and without a slash at the end."""

    def __init__(self, model: str, version: str) -> None:
        self._model = model
        self._version = version
        routes = {route.name: route for route in ROUTES}
        paths = {
            "/v2": SERVER,
            "/v2/health/live": LIVE,
            "/v2/health/ready": READY,
            "/metrics": METRICS,
        }
        for base in (f"/v2/models/{model}", f"/v2/models/{model}/versions/{version}"):
            paths |= {base: MODEL, f"{base}/ready": MODEL_READY, f"{base}/infer": INFER}
        self._paths = {
            (path + slash).encode(): routes[name]
            for path, name in paths.items()
            for slash in ("", "/")
        }

    def find(self, url: bytes) -> Route | None:
        """Return the route of a request target; its query string means nothing here."""
        route = self._paths.get(url)
        if route is None:
            path = url.partition(b"?")[0]
            route = self._paths.get(unquote_to_bytes(path) if b"%" in path else path)
        return route

    def unknown(self, url: bytes) -> RequestError:
        """Return the 404 for a path that `find` doesn't know, with what would have been right."""
        path = url.partition(b"?")[0].decode("ascii", "replace")[:200]
        parts = path.strip("/").split("/")
        if parts[:2] == ["v2", "models"] and len(parts) > 2:
            if parts[2] != self._model:
                return RequestError(404, f"unknown model '{parts[2]}'; served is '{self._model}'")
            if parts[3:4] == ["versions"] and parts[4:5] != [self._version]:
                given = parts[4] if len(parts) > 4 else ""
                return RequestError(
                    404,
                    f"version '{given}' of model '{self._model}' isn't served; "
                    f"served is version '{self._version}'",
                )
        return RequestError(404, f"unknown path {path}; see /v2 and /v2/models/{self._model}")
