"""Which path means what: exact comparison first, words for what is unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from falaj.workloads.inference.errors import RequestError, retry_after

LIVE = "live"
READY = "ready"
SERVER = "server"
MODEL = "model"
MODEL_READY = "model_ready"
INFER = "infer"
METRICS = "metrics"
DRIFT = "drift"
FEEDBACK = "feedback"
STATISTICS = "statistics"
VERSION_STATISTICS = "version_statistics"
CONFIGURATION = "configuration"
INDEX = "index"
OPENAPI = "openapi"
JOBS = "jobs"
JOB = "job"
JOB_RESULT = "job_result"
COMPLETIONS = "completions"
CHATS = "chats"
CARDS = "cards"
CARD = "card"
TEXTS = frozenset({COMPLETIONS, CHATS})
"""Routes by which a language model is asked for texts."""
INFERENCES = TEXTS | {INFER}
"""Routes by which a model is asked; a job's runs are counted as `INFER`."""
WITH_BODY = INFERENCES | {FEEDBACK, INDEX, JOBS}
"""Routes whose requests have a body that is read."""
BODY_OPTIONAL = frozenset({INDEX})
"""Those of them whose body may be left out, and its length (RFC 9112, 6.3)."""


class Route(NamedTuple):
    """One thing that the server does: its name, the methods it takes and the scope it needs."""

    name: str
    methods: tuple[bytes, ...]
    scope: str | None
    model: str | None = None
    """The model that is asked, for which alone the scope may be held; None: none alone."""


_READ = (b"GET", b"HEAD")
ROUTES = (
    Route(LIVE, _READ, None),
    Route(READY, _READ, None),
    Route(SERVER, _READ, "predict"),
    Route(MODEL, _READ, "predict"),
    Route(MODEL_READY, _READ, "predict"),
    Route(INFER, (b"POST",), "predict"),
    Route(METRICS, _READ, "observe"),
    Route(DRIFT, _READ, "observe"),
    Route(FEEDBACK, (b"POST",), "feedback"),
    Route(STATISTICS, _READ, "observe"),
    Route(VERSION_STATISTICS, _READ, "observe"),
    Route(CONFIGURATION, _READ, "observe"),
    Route(INDEX, (b"POST",), "observe"),
    Route(OPENAPI, _READ, "predict"),
    Route(JOBS, (b"POST",), "predict"),
    Route(JOB, (*_READ, b"DELETE"), "predict"),
    Route(JOB_RESULT, _READ, "predict"),
    Route(COMPLETIONS, (b"POST",), "predict"),
    Route(CHATS, (b"POST",), "predict"),
    Route(CARDS, _READ, "predict"),
    Route(CARD, _READ, "predict"),
)
OF_SERVER = frozenset({LIVE, READY, SERVER, METRICS, INDEX})
"""Routes of no one model."""
OF_ANY = frozenset({SERVER, INDEX, STATISTICS})
"""Routes that answer of the models that the caller has the scope for, where they are of none."""
OF_FURTHER = frozenset(
    {
        MODEL, MODEL_READY, INFER, DRIFT, FEEDBACK, CONFIGURATION, STATISTICS, VERSION_STATISTICS,
        OPENAPI, JOBS, JOB, JOB_RESULT,
    }
)  # fmt: skip
"""Routes that a further model has; all others are of the first."""
_JOB = re.compile(rb"(?P<jobs>/v2/models/.+/jobs)/(?P<id>[^/]+)(?P<result>/result)?/?")
"""Path of one job; what comes before the id is found as the path of all of them."""
_CARD = re.compile(rb"/v1/models/(?P<id>[^/]+)/?")


class Router:
    """The paths of the first model in one version, each with and without a slash at the end.

    Args:
        model: its name.
        version: of it.
        further: the versions of further models by name; None: that one can't be asked now.
    """

    def __init__(
        self, model: str, version: str, further: Mapping[str, str | None] | None = None
    ) -> None:
        self._model = model
        self._version = version
        self._served: dict[str, str | None] = {model: version, **(further or {})}
        routes = self._routes = {
            route.name: route if route.name in OF_SERVER else route._replace(model=model)
            for route in ROUTES
        }
        paths = {
            "/v2": SERVER,
            "/v2/health/live": LIVE,
            "/v2/health/ready": READY,
            "/v2/openapi.json": OPENAPI,
            "/v2/models/stats": STATISTICS,
            "/v2/repository/index": INDEX,
            "/metrics": METRICS,
            "/v1/completions": COMPLETIONS,
            "/v1/chat/completions": CHATS,
            "/v1/models": CARDS,
            "/v1/models/{id}": CARD,
        }
        of_model = f"/v2/models/{model}"
        of_version = f"{of_model}/versions/{version}"
        for base in (of_model, of_version):
            paths |= {
                base: MODEL, f"{base}/ready": MODEL_READY, f"{base}/infer": INFER,
                f"{base}/drift": DRIFT, f"{base}/feedback": FEEDBACK, f"{base}/jobs": JOBS,
                f"{base}/config": CONFIGURATION,
            }  # fmt: skip
            paths |= {f"{base}/jobs/{{id}}": JOB, f"{base}/jobs/{{id}}/result": JOB_RESULT}
        paths |= {f"{of_model}/stats": STATISTICS, f"{of_version}/stats": VERSION_STATISTICS}
        self.places = {path: routes[name] for path, name in paths.items()}
        """What each path means, without a slash at its end; ``{id}`` stands for any. Those of
        further models are in `places_of`."""
        self.places["/v2/models/stats"] = routes[STATISTICS]._replace(model=None)
        every = [self.places, *(places_of(*each) for each in (further or {}).items())]
        self._paths = {
            (path + slash).encode(): route
            for places in every
            for path, route in places.items()
            if "{" not in path
            for slash in ("", "/")
        }
        # A job is asked for below the name of the model that it is of.
        self._of_jobs = {
            path.encode(): route
            for places in every
            for path, route in places.items()
            if route.name in (JOB, JOB_RESULT)
        }

    def find(self, url: bytes) -> Route | None:
        """Return the route of a request target; its query string means nothing here."""
        route = self._paths.get(url)
        if route is None:
            path = path_of(url)
            route = self._paths.get(path)
            found = _JOB.fullmatch(path) if route is None else None
            if found is not None and found["jobs"] in self._paths:
                route = self._of_jobs.get(found["jobs"] + b"/{id}" + (found["result"] or b""))
            elif route is None and _CARD.fullmatch(path):
                route = self._routes[CARD]
        return route

    @staticmethod
    def job_of(url: bytes) -> str:
        """Return the id in the target of a job's route, whatever it holds."""
        found = _JOB.fullmatch(path_of(url))
        return found["id"].decode("ascii", "replace") if found is not None else ""

    @staticmethod
    def card_of(url: bytes) -> str:
        """Return the name in the target of a model's card, whatever it holds."""
        found = _CARD.fullmatch(path_of(url))
        return found["id"].decode("utf-8", "replace") if found is not None else ""

    def asked(self, url: bytes) -> tuple[str, str] | None:
        """Return the model that an unknown path names, and the scope that the path would need.

        The same for a model that is served and for one that isn't, so that who may not know
        learns nothing. None: it names no model.
        """
        parts = path_of(url).decode("utf-8", "replace").strip("/").split("/")
        if parts[0] == "v1":
            return self._model, "predict"
        if parts[:2] != ["v2", "models"] or len(parts) < 3:
            return None
        rest = parts[5:] if parts[3:4] == ["versions"] else parts[3:]
        route = self.find("/".join(["/v2/models", self._model, *rest]).encode())
        return parts[2], (route and route.scope) or "predict"

    def unknown(
        self,
        url: bytes,
        offered: Mapping[str, Route] | None = None,
        sees: Callable[[str], bool] = lambda _: True,
    ) -> RequestError:
        """Return the 404 for a path that `find` doesn't know, with what would have been right.

        Args:
            url: the request's target.
            offered: the `places` that this model and its settings have. Default: all.
            sees: whether the caller may know of a model. Default: of all.
        """
        path = url.partition(b"?")[0].decode("ascii", "replace")[:200]
        parts = path.strip("/").split("/")
        if parts[:3] == ["v2", "repository", "models"] and parts[-1] in ("load", "unload"):
            return RequestError(
                400,
                "versions are neither loaded nor unloaded by requests: the server follows its "
                "registry; promote a version there, or go back to one",
            )
        if parts[:2] == ["v2", "models"] and len(parts) > 2:
            found = self._unknown_of(parts, path, sees)
            if found is not None:
                return found
        if not sees(self._model):
            return RequestError(404, f"unknown path {path}; see /v2")
        if parts[0] == "v1":
            answered = ", ".join(self._nearest(self.places if offered is None else offered))
            return RequestError(404, f"unknown path {path}; '{self._model}' answers {answered}")
        return RequestError(404, f"unknown path {path}; see /v2 and /v2/models/{self._model}")

    def _unknown_of(
        self, parts: Sequence[str], path: str, sees: Callable[[str], bool]
    ) -> RequestError | None:
        """The refusal of a path below a model's name; None: it is the first model's."""
        model = parts[2]
        if model not in self._served:
            names = [f"'{each}'" for each in self._served if sees(each)]
            served = f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"
            return RequestError(404, f"unknown model '{model}'; served {served}")
        version = self._served[model]
        if version is None:
            return absent(model)
        if parts[3:4] == ["versions"] and parts[4:5] != [version]:
            given = parts[4] if len(parts) > 4 else ""
            return RequestError(
                404,
                f"version '{given}' of model '{model}' isn't served; "
                f"served is version '{version}'",
            )
        if model == self._model:
            return None
        return RequestError(
            404,
            f"unknown path {path}; what '{model}' answers is in /v2/models/{model}/openapi.json",
        )

    def _nearest(self, offered: Mapping[str, Route]) -> list[str]:
        """What there is of OpenAI's paths; of a model that has none, how it is asked."""
        of_openai = {path: each for path, each in offered.items() if path.startswith("/v1/")}
        own = f"/v2/models/{self._model}/{INFER}"
        found = of_openai or {own: offered[own]}
        return [f"{each.methods[0].decode()} {path}" for path, each in found.items()]


def places_of(model: str, version: str | None) -> dict[str, Route]:
    """Return what the paths of a further model mean, without a slash at their end.

    Args:
        model: its name.
        version: of it; None: it can't be asked now, and each path says so.
    """
    routes = {
        route.name: route._replace(model=model) for route in ROUTES if route.name in OF_FURTHER
    }
    base = f"/v2/models/{model}"
    paths = {f"{base}/stats": STATISTICS, f"{base}/openapi.json": OPENAPI}
    if version is not None:
        paths[f"{base}/versions/{version}/stats"] = VERSION_STATISTICS
    for each in (base, f"{base}/versions/{version}"):
        if each == base or version is not None:
            paths |= {
                each: MODEL, f"{each}/ready": MODEL_READY, f"{each}/infer": INFER,
                f"{each}/drift": DRIFT, f"{each}/feedback": FEEDBACK,
                f"{each}/config": CONFIGURATION, f"{each}/jobs": JOBS,
                f"{each}/jobs/{{id}}": JOB, f"{each}/jobs/{{id}}/result": JOB_RESULT,
            }  # fmt: skip
    return {path: routes[name] for path, name in paths.items()}


def absent(model: str) -> RequestError:
    """Return the 503 of a further model that can't be asked now; the index says why."""
    return RequestError(
        503,
        f"the model '{model}' can't be asked now, others can; why is in /v2/repository/index, for "
        f"those with the scope observe (or observe:{model})",
        headers=(retry_after(10),),
    )


def names_model(url: bytes) -> bool:
    """Tell whether a target has a model's name in its path; OpenAI's ask the first without it."""
    return url.startswith(b"/v2/models/")


def path_of(url: bytes) -> bytes:
    """Return the path of a target in origin form, decoded."""
    path = url.partition(b"?")[0]
    return unquote_to_bytes(path) if b"%" in path else path
