"""`service.json`: read strictly, and written from a command line.

Unknown keys, wrong types and impossible values are refused, also before a file is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import orjson

from falaj.workloads.bounds import (
    CHOICES,
    DATASET,
    DRIFT,
    EXPERIMENT,
    EXPERIMENT_TAKEN,
    FORMS,
    GRPC,
    JOBS,
    MODELS_TAKEN,
    REGISTRY,
    SERVICE,
    SHADOW,
    Bound,
)
from falaj.workloads.documents import is_sequence
from falaj.workloads.files import write_atomic
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.registry.keyring import TOKEN_OVERLAP
from falaj.workloads.registry.sealed import SUFFIX


class Section:
    """One JSON object of the file: takes keys out one by one and refuses what is left."""

    def __init__(self, path: Path, where: str, value: object) -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise self.error("", value, "an object")
        self.values = dict(cast("dict[str, object]", value))

    def error(self, key: str, given: object, allowed: str) -> InferenceError:
        """An error about the value under ``key``."""
        place = ".".join(part for part in (self.where, key) if part) or "the whole file"
        shown = orjson.dumps(given, default=str).decode()[:80]
        return InferenceError(f"{self.path}: {place}: got {shown}, allowed is {allowed}")

    def take(self, key: str, default: object = None) -> object:
        """Take the value of ``key`` out."""
        if key not in self.values and default is None:
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(f"{self.path}: {place} is missing")
        return self.values.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that isn't empty."""
        value = self.take(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, value, "a text that isn't empty")
        return value

    def file(self, key: str) -> Path:
        """A path."""
        return Path(self.text(key))

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number between two limits."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.pop(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def bounded(self, key: str, default: float, bounds: Mapping[str, Bound] = SERVICE) -> float:
        """A number whose bound `falaj.workloads.bounds` states, by default in `SERVICE`."""
        value, bound = self.take(key, default), bounds[key]
        if not bound.allows(value):
            kind = "a whole number" if bound.whole else "a number"
            raise self.error(key, value, f"{kind} from {bound.description}")
        return cast("float", value)

    def optional_bounded(self, key: str, bounds: Mapping[str, Bound] = SERVICE) -> int | None:
        """As `bounded`, a whole number; None where there is no such key."""
        return int(self.bounded(key, 0, bounds)) if key in self.values else None

    def seconds(self, key: str, low: float, high: float, default: float) -> float:
        """A number of seconds between two limits."""
        value = self.take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, value, "a number of seconds")
        if not low <= value <= high:
            raise self.error(key, value, f"a number of seconds from {low:g} to {high:g}")
        return float(value)

    def section(self, key: str, default: object = None) -> Section:
        """The object under ``key``."""
        where = ".".join(part for part in (self.where, key) if part)
        return Section(self.path, where, self.take(key, default))

    def optional(self, key: str) -> Section | None:
        """The object under ``key``; None where there is no such key, or null."""
        value = self.values.pop(key, None)
        if value is None:
            return None
        return Section(self.path, ".".join(part for part in (self.where, key) if part), value)

    def finish(self, allowed: tuple[str, ...]) -> None:
        """Refuse what is left; ``allowed`` are the keys that may be there."""
        if self.values:
            key = sorted(self.values)[0]
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(
                f"{self.path}: {place} is not a known key; allowed here: {', '.join(allowed)}"
            )


INFERENCE, COMPLETIONS = PROTOCOLS = ("inference", "completions")
"""The Open Inference Protocol, and OpenAI's completions as vLLM offers them."""
_LOOPBACK = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}")
_TLS = re.compile(r"https://[A-Za-z0-9]([A-Za-z0-9.-]{0,252})?(:\d{1,5})?")


@dataclass(frozen=True)
class UpstreamSettings:
    """A server on the loopback interface that runs the model, and that only this one reaches."""

    url: str
    timeout_seconds: float
    connections: int
    protocol: str = INFERENCE
    """By which it is asked: for tensors, or for texts that a language model goes on with."""
    context: int | None = None
    """Tokens that an engine of texts looks back on; None: as many as the model does."""


@dataclass(frozen=True)
class OverflowSettings:
    """A server that takes requests over when the queue here is too long."""

    url: str
    version: int
    above_seconds: float
    timeout_seconds: float
    connections: int


def upstream_settings(section: Section | None) -> UpstreamSettings | None:
    """Read ``upstream``. Without TLS nothing but the loopback interface is allowed.

    Raises:
        InferenceError: a key is unknown or wrong.
    """
    if section is None:
        return None
    url = section.text("url")
    if not _LOOPBACK.fullmatch(url):
        raise section.error("url", url, "http://127.0.0.1 with a port: it is neither "
                            "encrypted nor authenticated")  # fmt: skip
    settings = UpstreamSettings(
        url,
        section.seconds("timeout_seconds", 0.01, 3600, 60),
        section.whole("connections", 1, 4096, 128),
        section.text("protocol", INFERENCE),
        section.optional_bounded("context", DATASET),
    )
    if settings.protocol not in PROTOCOLS:
        raise section.error("protocol", settings.protocol, f"one of {', '.join(PROTOCOLS)}")
    if settings.context is not None and settings.protocol != COMPLETIONS:
        raise section.error(
            "context", settings.context, f"nothing, unless protocol is {COMPLETIONS}"
        )
    section.finish(tuple(UpstreamSettings.__dataclass_fields__))
    return settings


def overflow_settings(section: Section | None) -> OverflowSettings | None:
    """Read ``overflow``: TLS always, with the server's own certificate as the client's.

    Raises:
        InferenceError: a key is unknown or wrong.
    """
    if section is None:
        return None
    url = section.text("url")
    if not _TLS.fullmatch(url):
        raise section.error("url", url, "https:// with a host and a port")
    version = REGISTRY["version"]
    settings = OverflowSettings(
        url,
        section.whole("version", int(version.low), int(version.high)),
        section.seconds("above_seconds", 0.0001, 600, 0.05),
        section.seconds("timeout_seconds", 0.001, 600, 1),
        section.whole("connections", 1, 4096, 64),
    )
    section.finish(tuple(OverflowSettings.__dataclass_fields__))
    return settings


FORMAT = "falaj.service/1"
SCOPES = CHOICES["service"]["scopes"].words
SCOPE = FORMS["service"]["scope"]
"""How one is written, for all models or for one."""


@dataclass(frozen=True)
class TlsSettings:
    """The server's certificate and, for mutual TLS, the authority of client certificates."""

    certificate: Path
    private_key: Path
    client_ca: Path | None


MAX_TOKEN_MINUTES = 60 * 24 * 366
"""A year: nobody may ask for tokens that live longer."""


@dataclass(frozen=True)
class AuthSettings:
    """Who signs bearer tokens, for whom, and what each client certificate may do."""

    issuer: str
    audience: str
    jwks: Path
    clients: Mapping[str, frozenset[str]]
    revoked: Path | None = None
    """List of revoked tokens; None: none can be."""
    max_token_minutes: int = TOKEN_OVERLAP // timedelta(minutes=1)
    """Longest life of a token: by default a rotation waits for as long."""


@dataclass(frozen=True)
class Limits:
    """Bounds on what a client may send and on how long it may take (sizes in bytes)."""

    max_body_bytes: int = int(SERVICE["max_body_bytes"].usual)
    max_inflight_bytes: int = 64 * 1024 * 1024
    """Of the bodies of all unanswered requests of a worker; at least one body."""
    max_rows: int = int(SERVICE["max_rows"].usual)
    max_tokens: int = int(SERVICE["max_tokens"].usual)
    """That a request may have a language model generate, for each of its texts."""
    tokens_per_minute: int | None = None
    """Of prompts and of what is generated, for each caller of a worker; None: without a limit."""
    keep_seconds: int = int(SERVICE["keep_seconds"].usual)
    """For which what was computed of a language model's text is kept for its next turn; 0: it
    isn't."""
    drain_seconds: float = SERVICE["drain_seconds"].usual
    header_timeout_seconds: float = 10
    idle_timeout_seconds: float = 75
    load_seconds: float = 300
    models_memory_bytes: int | None = None
    """That further models may take of all workers together, as their packages let estimate; None:
    half of the machine's memory."""
    grpc_memory_bytes: int | None = None
    """Of data of each worker's gRPC process; None: a GiB, and four times what may be in flight."""


@dataclass(frozen=True)
class DriftSettings:
    """How rows and answers are compared with what the package says of its own."""

    enabled: bool = True
    window_rows: int = int(DRIFT["window_rows"].usual)
    window_seconds: float = DRIFT["window_seconds"].usual
    """After which a window ends that has rows enough to be judged."""
    alpha: float = DRIFT["alpha"].usual
    """Chance of a false alarm of a window, shared by all features."""


@dataclass(frozen=True)
class JobSettings:
    """How long and how much is kept of requests that are answered later."""

    keep_hours: int = int(JOBS["keep_hours"].usual)
    """For which answers are kept, and requests that nobody got to run."""
    most_jobs: int = int(JOBS["most_jobs"].usual)
    most_bytes: int = int(JOBS["most_bytes"].usual)
    """Of requests and answers together."""


@dataclass(frozen=True)
class ShadowSettings:
    """Which version gets copies of requests beside the one that answers, and how many."""

    percent: float = SHADOW["percent"].usual
    """Of the answered requests."""
    alias: str = "shadow"
    """Stands for the version; where nothing was promoted to it, nothing is copied."""


@dataclass(frozen=True)
class ExperimentSettings:
    """Which version answers a share of the requests beside the one that serves, and whose."""

    key: str
    """Name of the header, in lower case, by whose value a request is given to a version."""
    share: float = EXPERIMENT["share"].usual
    """Of the values, per cent that the candidate answers."""
    alias: str = "candidate"
    """Stands for the version; where nothing was promoted to it, there is no experiment."""
    name: str | None = None
    """What the values are drawn by beside themselves; None: the model and the version."""
    timeout_ms: int = int(EXPERIMENT["timeout_ms"].usual)
    """Milliseconds that the candidate is waited for, before the version that serves answers."""


@dataclass(frozen=True)
class FurtherSettings:
    """Another model that is served beside the service's own, with its registry and its keys."""

    registry: Path
    keyring: Path
    alias: str = "production"
    max_rows: int | None = None
    """In a request; None: as many as of the first model."""
    max_body_bytes: int | None = None
    """Of a request, no more than the server reads; None: as many as that."""
    batching: bool = False
    """Requests for it run together, where a worker measures that this is quicker."""
    priorities: bool = False
    """Its queue is in the order of what requests say of themselves."""
    drift: bool = True
    """It is watched for drift, where the first model is, in as long windows."""


@dataclass(frozen=True)
class Settings:
    """One service: what it serves, where, and by which rules."""

    name: str
    host: str
    port: int
    workers: int
    threads: int
    registry: Path
    model: str
    alias: str
    keyring: Path
    tls: TlsSettings
    auth: AuthSettings
    limits: Limits
    upstream: UpstreamSettings | None
    """Another server of the protocol that runs the model; None: this one does."""
    overflow: OverflowSettings | None
    """Where requests go that would wait too long here; None: nowhere."""
    logs: Path
    state: Path
    digest: str
    """SHA-256 of the file's bytes: a change of it is a change of the service."""
    content: bytes
    """The file's bytes, for the workers: all of a generation read the same ones."""
    grpc: bool = True
    """Whether clients may speak gRPC on the same port."""
    drift: DriftSettings = DriftSettings()
    jobs: JobSettings | None = None
    """Requests that are answered later; None: none are taken."""
    shadow: ShadowSettings | None = None
    """A version that gets copies of requests, and answers nobody; None: there is none."""
    experiment: ExperimentSettings | None = None
    """A version that answers a share of the requests; None: there is none."""
    batching: bool = False
    """Whether requests run together, where measuring the model says that it pays."""
    priorities: bool = False
    """Whether requests may say how urgent they are."""
    models: Mapping[str, FurtherSettings] = field(default_factory=dict[str, FurtherSettings])
    """Further models, by the name that they have in their registries. What is beside the first
    model (a shadow, an experiment, jobs, another tier) is beside it alone."""
    further: bool = False
    """Whether these are of a further model, by `of_further`."""

    @property
    def jobs_folder(self) -> Path:
        """Where jobs are kept: beside the state, under its name."""
        return self.state.with_suffix(".jobs")

    @property
    def drift_file(self) -> Path:
        """What is kept of drift over a restart: beside the state, under its name."""
        if self.further:
            return self.drift_folder / f"{self.model}{SUFFIX}"
        return self.state.with_suffix(f".drift{SUFFIX}")

    @property
    def drift_folder(self) -> Path:
        """Likewise of further models, by their names."""
        return self.state.with_suffix(".drift")


def reached_at(host: str) -> str:
    """The address of a server on this machine; one that listens on every address has loopback's.

    >>> reached_at("0.0.0.0")
    '127.0.0.1'
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _tls(section: Section) -> TlsSettings:
    authority = section.values.pop("client_ca", None)
    if authority is not None and (not isinstance(authority, str) or not authority):
        raise section.error("client_ca", authority, "a path, or no such key")
    settings = TlsSettings(
        certificate=section.file("certificate"),
        private_key=section.file("private_key"),
        client_ca=Path(authority) if authority is not None else None,
    )
    section.finish(("certificate", "private_key", "client_ca"))
    return settings


def _clients(section: Section) -> dict[str, frozenset[str]]:
    clients: dict[str, frozenset[str]] = {}
    for name, scopes in section.values.items():
        if not is_sequence(scopes) or not all(
            isinstance(each, str) and SCOPE.allows(each) for each in scopes
        ):
            raise section.error(name, scopes, f"a list of scopes out of {SCOPE.rule}")
        clients[name] = frozenset(scopes)
    return clients


def _auth(section: Section) -> AuthSettings:
    settings = AuthSettings(
        issuer=section.text("issuer"),
        audience=section.text("audience"),
        jwks=section.file("jwks"),
        clients=_clients(section.section("clients", {})),
        revoked=section.file("revoked") if "revoked" in section.values else None,
        max_token_minutes=section.whole(
            "max_token_minutes", 1, MAX_TOKEN_MINUTES, AuthSettings.max_token_minutes
        ),
    )
    section.finish(tuple(AuthSettings.__dataclass_fields__))
    return settings


def _limits(section: Section) -> Limits:
    known = Limits()
    body = int(section.bounded("max_body_bytes", known.max_body_bytes))
    settings = Limits(
        max_body_bytes=body,
        max_inflight_bytes=section.whole(
            "max_inflight_bytes", body, 2**40, max(body, known.max_inflight_bytes)
        ),
        max_rows=int(section.bounded("max_rows", known.max_rows)),
        max_tokens=int(section.bounded("max_tokens", known.max_tokens)),
        tokens_per_minute=section.optional_bounded("tokens_per_minute"),
        keep_seconds=int(section.bounded("keep_seconds", known.keep_seconds)),
        drain_seconds=section.bounded("drain_seconds", known.drain_seconds),
        header_timeout_seconds=section.seconds(
            "header_timeout_seconds", 0.1, 600, known.header_timeout_seconds
        ),
        idle_timeout_seconds=section.seconds(
            "idle_timeout_seconds", 0.1, 3600, known.idle_timeout_seconds
        ),
        load_seconds=section.seconds("load_seconds", 1, 7200, known.load_seconds),
        models_memory_bytes=section.optional_bounded("models_memory_bytes"),
        grpc_memory_bytes=section.optional_bounded("grpc_memory_bytes"),
    )
    section.finish(tuple(Limits.__dataclass_fields__))
    return settings


def _drift(section: Section) -> DriftSettings:
    known = DriftSettings()
    settings = DriftSettings(
        enabled=section.flag("enabled", default=known.enabled),
        window_rows=int(section.bounded("window_rows", known.window_rows, DRIFT)),
        window_seconds=section.bounded("window_seconds", known.window_seconds, DRIFT),
        alpha=section.bounded("alpha", known.alpha, DRIFT),
    )
    section.finish(tuple(DriftSettings.__dataclass_fields__))
    return settings


def _jobs(section: Section | None) -> JobSettings | None:
    if section is None:
        return None
    known = JobSettings()
    settings = JobSettings(
        keep_hours=int(section.bounded("keep_hours", known.keep_hours, JOBS)),
        most_jobs=int(section.bounded("most_jobs", known.most_jobs, JOBS)),
        most_bytes=int(section.bounded("most_bytes", known.most_bytes, JOBS)),
    )
    section.finish(tuple(JobSettings.__dataclass_fields__))
    return settings


def _shadow(section: Section | None) -> ShadowSettings | None:
    if section is None:
        return None
    known = ShadowSettings()
    settings = ShadowSettings(
        percent=section.bounded("percent", known.percent, SHADOW),
        alias=section.text("alias", known.alias),
    )
    section.finish(tuple(ShadowSettings.__dataclass_fields__))
    return settings


def _experiment(section: Section | None) -> ExperimentSettings | None:
    if section is None:
        return None
    known = ExperimentSettings("")
    forms = FORMS["experiment"]
    key = section.text("key")
    if not forms["key"].allows(key) or key.lower() in EXPERIMENT_TAKEN:
        raise section.error("key", key, forms["key"].rule)
    name = section.values.pop("name", None)
    if name is not None and (not isinstance(name, str) or not forms["name"].allows(name)):
        raise section.error("name", name, forms["name"].rule)
    settings = ExperimentSettings(
        key=key.lower(),
        share=section.bounded("share", known.share, EXPERIMENT),
        alias=section.text("alias", known.alias),
        name=name,
        timeout_ms=int(section.bounded("timeout_ms", known.timeout_ms, EXPERIMENT)),
    )
    section.finish(tuple(ExperimentSettings.__dataclass_fields__))
    return settings


def _models(section: Section) -> dict[str, FurtherSettings]:
    names, aliases = FORMS["registry"]["model"], FORMS["registry"]["alias"]
    found: dict[str, FurtherSettings] = {}
    for name in section.values:
        if not names.allows(name) or name in MODELS_TAKEN:
            raise section.error(
                name,
                name,
                f"as the name of a model {names.rule}, but not {', '.join(MODELS_TAKEN)}",
            )
    for name in list(section.values):
        own = section.section(name)
        alias = own.text("alias", FurtherSettings.alias)
        if not aliases.allows(alias):
            raise own.error("alias", alias, aliases.rule)
        found[name] = FurtherSettings(
            registry=own.file("registry"), keyring=own.file("keyring"), alias=alias,
            max_rows=own.optional_bounded("max_rows"),
            max_body_bytes=own.optional_bounded("max_body_bytes"),
            batching=own.flag("batching", default=FurtherSettings.batching),
            priorities=own.flag("priorities", default=FurtherSettings.priorities),
            drift=own.flag("drift", default=FurtherSettings.drift),
        )  # fmt: skip
        own.finish(tuple(FurtherSettings.__dataclass_fields__))
    return found


def _check_models(path: Path, settings: Settings) -> None:
    """Refuse further models beside what they can't be with, and scopes of models that aren't."""
    if settings.models and settings.upstream is not None:
        raise InferenceError(
            f"{path}: models are for a server that runs its models itself, and a runtime beside "
            "has the one; leave them out, or upstream"
        )
    if settings.model in settings.models:
        raise InferenceError(
            f"{path}: models.{settings.model}: that is the name of the first model; allowed are "
            "further ones, under other names"
        )
    most = settings.limits.max_body_bytes
    for name, each in settings.models.items():
        if each.max_body_bytes is not None and each.max_body_bytes > most:
            raise InferenceError(
                f"{path}: models.{name}.max_body_bytes: got {each.max_body_bytes}, allowed is at "
                f"most limits.max_body_bytes, {most}: the server reads no larger request"
            )
    served = {settings.model, *settings.models}
    for client, scopes in settings.auth.clients.items():
        for scope in sorted(scopes):
            of = scope.partition(":")[2]
            if of and of not in served:
                raise InferenceError(
                    f"{path}: auth.clients.{client}: got {scope!r}, and no model {of} is served; "
                    f"served are {', '.join(sorted(served))}"
                )


def of_candidate(settings: Settings) -> Settings:
    """Return what of a service's settings holds for an experiment's candidate: it runs the model
    as the version that serves does, and no more."""
    return replace(
        settings, upstream=None, overflow=None, jobs=None, grpc=False, experiment=None, models={}
    )  # fmt: skip


def of_shadow(settings: Settings) -> Settings:
    """Likewise for its shadow, which runs one copy after the other."""
    return replace(
        of_candidate(settings), batching=False, drift=replace(settings.drift, enabled=False)
    )  # fmt: skip


def of_further(settings: Settings, name: str) -> Settings:
    """Likewise for one of its further models, which has limits and a queue of its own."""
    own = settings.models[name]
    return replace(
        of_shadow(settings), model=name, registry=own.registry, keyring=own.keyring,
        alias=own.alias, shadow=None, batching=own.batching, priorities=own.priorities,
        drift=replace(settings.drift, enabled=settings.drift.enabled and own.drift), further=True,
        limits=replace(
            settings.limits,
            max_rows=own.max_rows or settings.limits.max_rows,
            max_body_bytes=own.max_body_bytes or settings.limits.max_body_bytes,
        ),
    )  # fmt: skip


def read(path: Path) -> Settings:
    """Read and check a service file.

    Raises:
        InferenceError: the file can't be read, isn't JSON, or a key of it is wrong; the
            message names the key, what was given and what is allowed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InferenceError(f"can't read the service file {path}: {error.strerror}") from error
    return parse(path, content)


def parse(path: Path, content: bytes) -> Settings:
    """Check the content of a service file; ``path`` is named in messages."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InferenceError(f"{path} is not JSON: {error}") from error
    top = Section(path, "", document)
    if (given := top.text("format")) != FORMAT:
        raise top.error("format", given, f'"{FORMAT}"')
    settings = Settings(
        name=top.text("name"),
        host=top.text("host", "127.0.0.1"),
        port=top.whole("port", 0, 65535),
        workers=int(top.bounded("workers", 1)),
        threads=int(top.bounded("threads", 1)),
        registry=top.file("registry"),
        model=top.text("model"),
        alias=top.text("alias", "production"),
        keyring=top.file("keyring"),
        tls=_tls(top.section("tls")),
        auth=_auth(top.section("auth")),
        limits=_limits(top.section("limits", {})),
        upstream=upstream_settings(top.optional("upstream")),
        overflow=overflow_settings(top.optional("overflow")),
        grpc=top.flag("grpc", default=True),
        drift=_drift(top.section("drift", {})),
        jobs=_jobs(top.optional("jobs")),
        shadow=_shadow(top.optional("shadow")),
        experiment=_experiment(top.optional("experiment")),
        batching=top.flag("batching", default=False),
        priorities=top.flag("priorities", default=False),
        models=_models(top.section("models", {})),
        logs=top.file("logs"),
        state=top.file("state"),
        digest=hashlib.sha256(content).hexdigest(),
        content=content,
    )
    if settings.upstream is not None and settings.overflow is not None:
        raise InferenceError(
            f"{path}: overflow is for a server that runs the model itself; leave it out, "
            "or upstream"
        )
    body, bound = settings.limits.max_body_bytes, GRPC["max_body_bytes"]
    if settings.grpc and not bound.allows(body):
        raise InferenceError(
            f"{path}: limits.max_body_bytes: got {body}, allowed is a whole number from "
            f"{bound.description} where gRPC is answered; make it smaller, or set grpc to false"
        )
    if settings.upstream is not None and settings.batching:
        raise InferenceError(
            f"{path}: batching is for a server that runs the model itself, and a runtime beside "
            "batches by its own configuration; leave it out, or upstream"
        )
    if settings.upstream is not None and settings.priorities:
        raise InferenceError(
            f"{path}: priorities are of the queue of a server that runs the model itself; leave "
            "them out, or upstream"
        )
    if settings.shadow is not None and settings.upstream is not None:
        raise InferenceError(
            f"{path}: shadow is for a server that runs the model itself, and a runtime beside has "
            "the one version; leave it out, or upstream"
        )
    if settings.shadow is not None and settings.shadow.alias == settings.alias:
        raise InferenceError(
            f"{path}: shadow.alias: got {settings.alias!r}, which is what is served; allowed is "
            "another alias"
        )
    upstream = settings.upstream
    if settings.jobs is not None and upstream is not None and upstream.protocol == COMPLETIONS:
        raise InferenceError(
            f"{path}: jobs are of tensors, and upstream.protocol '{COMPLETIONS}' is of texts; "
            "leave one of both out"
        )
    if settings.experiment is not None:
        _check_experiment(path, settings, settings.experiment)
    _check_models(path, settings)
    own = {"digest", "content"}
    top.finish(tuple(k for k in ("format", *Settings.__dataclass_fields__) if k not in own))
    return settings


def _check_experiment(path: Path, settings: Settings, experiment: ExperimentSettings) -> None:
    """Refuse an experiment beside what it can't be with."""
    for name, given, reason in (
        ("upstream", settings.upstream, "a runtime beside has the one version"),
        ("overflow", settings.overflow, "the next tier answers by a version of its own"),
        ("shadow", settings.shadow, "a server has one version beside the one that serves"),
    ):
        if given is not None:
            raise InferenceError(f"{path}: experiment and {name} don't go together: {reason}; "
                                 "leave one of them out")  # fmt: skip
    if experiment.alias == settings.alias:
        raise InferenceError(
            f"{path}: experiment.alias: got {settings.alias!r}, which is what is served; allowed "
            "is another alias"
        )


#: Threads of one session that wait for each other gain little on the small models of the CPU tier,
#: and lose much when the machine is loaded: so workers are what fills the cores.
_THREADS = 1


def _upstream_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--upstream", help="http://127.0.0.1:PORT of the model's runtime")
    command.add_argument(
        "--upstream-protocol", choices=PROTOCOLS, default=INFERENCE,
        help="completions: it goes on with texts, as vLLM does; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--upstream-context", type=int, metavar="TOKENS",
        help="tokens that it looks back on, of completions; default: as many as the model",
    )  # fmt: skip


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of ``python -m falaj.workloads.inference configure``."""
    folders = {
        "config": "the service.json to write",
        "registry": "the registry of packages",
        "keyring": "the key ring",
        "certificate": "the server's certificate, PEM",
        "private-key": "its private key, PEM",
        "jwks": "the public keys of tokens",
        "logs": "folder of the logs",
        "state": "file that says what the server does",
    }
    for name, text in folders.items():
        command.add_argument(f"--{name}", type=Path, required=True, help=text)
    command.add_argument(
        "--revoked", type=Path, help="the list of revoked tokens; default: none can be revoked"
    )
    command.add_argument(
        "--max-token-minutes",
        type=int,
        help=f"longest life of a token; default: {AuthSettings.max_token_minutes}, a day",
    )
    command.add_argument("--client-ca", type=Path, help="authority of client certificates")
    command.add_argument("--name", required=True, help="the service's name")
    command.add_argument("--model", required=True)
    command.add_argument("--alias", default="production", help="default: %(default)s")
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    command.add_argument("--port", type=int, required=True)
    command.add_argument("--issuer", required=True, help="of tokens")
    command.add_argument("--audience", required=True, help="of tokens")
    command.add_argument(
        "--client", action="append", default=[], metavar="NAME=[SCOPE[,SCOPE]]",
        help="what a client certificate may do; may be repeated",
    )  # fmt: skip
    command.add_argument("--cpus", type=float, help="cores that the server has for itself")
    command.add_argument(
        "--workers", type=int, help="processes, each with the model; default: one for each core"
    )
    command.add_argument(
        "--threads", type=int, default=_THREADS, help="of each worker's runtime (default 1)"
    )
    known = Limits()
    command.add_argument("--max-body-bytes", type=int, default=known.max_body_bytes)
    command.add_argument(
        "--max-inflight-bytes", type=int,
        help="of the bodies of all unanswered requests of a worker; default: "
        f"{known.max_inflight_bytes}, or one body if that is more",
    )  # fmt: skip
    command.add_argument("--max-rows", type=int, default=known.max_rows)
    command.add_argument("--max-tokens", type=int, default=known.max_tokens)
    command.add_argument(
        "--tokens-per-minute", type=int,
        help="of prompts and of what a language model generates, for each caller of a worker "
        "(default: no limit)",
    )  # fmt: skip
    command.add_argument(
        "--keep-seconds", type=int, default=known.keep_seconds,
        help="for which what was computed of a language model's text is kept for its next turn; "
        "0: it isn't; default: %(default)s",
    )  # fmt: skip
    command.add_argument("--drain-seconds", type=float, default=known.drain_seconds)
    command.add_argument("--load-seconds", type=float, default=known.load_seconds)
    command.add_argument(
        "--grpc", action=argparse.BooleanOptionalAction, default=True,
        help="answer gRPC on the same port; its process is started with the first connection of a "
        "client that speaks it (default: yes)",
    )  # fmt: skip
    command.add_argument(
        "--grpc-memory-bytes", type=int,
        help="of data of each worker's gRPC process, which beyond it ends and is started anew; "
        "default: 1 GiB, and four times what may be in flight",
    )  # fmt: skip
    drift = DriftSettings()
    command.add_argument(
        "--no-drift", action="store_true", help="compare no rows with what the package says"
    )
    command.add_argument(
        "--drift-window-rows", type=int, default=drift.window_rows, help="default: %(default)s"
    )
    command.add_argument(
        "--drift-window-seconds", type=float, default=drift.window_seconds,
        help="after which a window is judged that has fewer rows; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--drift-alpha", type=float, default=drift.alpha,
        help="chance of a false alarm of a window; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--batching", action="store_true",
        help="run requests that wait together, where measuring the model says that it pays "
        "(default: no)",
    )  # fmt: skip
    command.add_argument(
        "--priorities", action="store_true",
        help="requests may say how urgent they are, for high with the scope urgent (default: no)",
    )  # fmt: skip
    jobs = JobSettings()
    command.add_argument(
        "--jobs", action="store_true",
        help="take requests that are answered later (default: no); they are kept sealed beside "
        "the state",
    )  # fmt: skip
    command.add_argument("--jobs-keep-hours", type=int, help=f"default: {jobs.keep_hours}")
    command.add_argument("--jobs-most", type=int, help=f"jobs kept; default: {jobs.most_jobs}")
    command.add_argument(
        "--jobs-most-bytes", type=int,
        help=f"of their requests and answers; default: {jobs.most_bytes}",
    )  # fmt: skip
    command.add_argument(
        "--shadow-percent", type=float,
        help="of the answered requests, that a second version gets copies of, once one was "
        "promoted to --shadow-alias (default: no request is copied)",
    )  # fmt: skip
    command.add_argument(
        "--shadow-alias", help=f"stands for that version; default: {ShadowSettings.alias}"
    )
    _add_experiment(command)
    _add_models(command)
    _upstream_options(command)
    command.add_argument("--overflow-to", help="https://HOST:PORT of the next tier")
    command.add_argument("--overflow-version", type=int, help="the version that it serves")
    command.add_argument("--overflow-above-ms", type=float, help="expected time in the queue")
    command.add_argument("--overflow-timeout-ms", type=float, default=1000)
    command.add_argument(
        "--json", action="store_true", help="print it as one JSON object, and write nothing"
    )


def _add_models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--models", metavar="JSON",
        help="further models by name, each with registry and keyring, and alias, max_rows, "
        "max_body_bytes, batching, priorities and drift where they aren't as usual (default: "
        "none)",
    )  # fmt: skip
    command.add_argument(
        "--models-memory-bytes", type=int,
        help="that they may take of all workers; default: half of the machine's memory",
    )  # fmt: skip


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--experiment-key", metavar="HEADER",
        help="name of the header by whose value a second version answers a share of the requests, "
        "once one was promoted to --experiment-alias (default: there is no experiment)",
    )  # fmt: skip
    command.add_argument(
        "--experiment-share",
        type=float,
        help=f"of the values, per cent; default: {ExperimentSettings.share:g}",
    )
    command.add_argument(
        "--experiment-alias", help=f"stands for that version; default: {ExperimentSettings.alias}"
    )
    command.add_argument(
        "--experiment-name",
        help="another name draws other values; default: the model and the version",
    )
    command.add_argument(
        "--experiment-timeout-ms", type=int,
        help="that it is waited for, before the version that serves answers; default: "
        f"{ExperimentSettings.timeout_ms}",
    )  # fmt: skip


def configure(options: argparse.Namespace) -> bytes:
    """Write the configuration, once it has been read back as the server would.

    With ``--json`` nothing is written.

    Returns:
        The configuration, as JSON; with ``--json`` on one line.

    Raises:
        InferenceError: an option's value isn't one that the server takes.
        WorkloadError: it can't be written.
    """
    found = document(options)
    content = orjson.dumps(found, option=orjson.OPT_INDENT_2)
    parse(options.config, content)
    if options.json:
        return orjson.dumps(found)
    write_atomic(options.config, content)
    return content


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration.

    Raises:
        InferenceError: options that don't go together.
    """
    found: dict[str, Any] = {
        "format": FORMAT,
        "name": options.name,
        "host": options.host,
        "port": options.port,
        "workers": _workers(options),
        "threads": options.threads,
        "registry": str(options.registry),
        "model": options.model,
        "alias": options.alias,
        "keyring": str(options.keyring),
        "tls": {
            "certificate": str(options.certificate),
            "private_key": str(options.private_key),
            **({"client_ca": str(options.client_ca)} if options.client_ca else {}),
        },
        "auth": {
            "issuer": options.issuer,
            "audience": options.audience,
            "jwks": str(options.jwks),
            **({"revoked": str(options.revoked)} if options.revoked else {}),
            **(
                {"max_token_minutes": options.max_token_minutes}
                if options.max_token_minutes is not None
                else {}
            ),
            "clients": _clients_of_options(options.client),
        },
        "limits": {
            "max_body_bytes": options.max_body_bytes,
            "max_rows": options.max_rows,
            "max_tokens": options.max_tokens,
            "keep_seconds": options.keep_seconds,
            "drain_seconds": options.drain_seconds,
            "load_seconds": options.load_seconds,
            **{
                name: given
                for name in (
                    "max_inflight_bytes",
                    "tokens_per_minute",
                    "models_memory_bytes",
                    "grpc_memory_bytes",
                )
                if (given := getattr(options, name)) is not None
            },
        },
        "grpc": options.grpc,
        "drift": {
            "enabled": not options.no_drift,
            "window_rows": options.drift_window_rows,
            "window_seconds": options.drift_window_seconds,
            "alpha": options.drift_alpha,
        },
        "logs": str(options.logs),
        "state": str(options.state),
    }
    if (jobs := _jobs_of_options(options)) is not None:
        found["jobs"] = jobs
    if options.batching:
        found["batching"] = True
    if options.priorities:
        found["priorities"] = True
    if options.shadow_percent is not None:
        found["shadow"] = {
            "percent": options.shadow_percent,
            "alias": options.shadow_alias or ShadowSettings.alias,
        }
    elif options.shadow_alias is not None:
        raise InferenceError(
            "--shadow-alias is for a shadow, which gets no copies: give --shadow-percent, or "
            "leave it out"
        )
    if (experiment := _experiment_of_options(options)) is not None:
        found["experiment"] = experiment
    if options.models:
        found["models"] = models_of_option(options.models)
    if options.upstream:
        found["upstream"] = {"url": options.upstream}
        if options.upstream_protocol != INFERENCE:
            found["upstream"]["protocol"] = options.upstream_protocol
        if options.upstream_context is not None:
            found["upstream"]["context"] = options.upstream_context
    if options.overflow_to:
        if options.overflow_version is None or options.overflow_above_ms is None:
            raise InferenceError("--overflow-to needs --overflow-version and --overflow-above-ms")
        found["overflow"] = {
            "url": options.overflow_to,
            "version": options.overflow_version,
            "above_seconds": options.overflow_above_ms / 1000,
            "timeout_seconds": options.overflow_timeout_ms / 1000,
        }
    return found


def models_of_option(text: str) -> Any:
    """Return what ``--models`` gives.

    Raises:
        InferenceError: it isn't JSON, or a name stands in it twice, of which one would be dropped.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise InferenceError(f"--models: {name} stands twice; allowed is once")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InferenceError(
            f"--models is not JSON: {error}; give an object of models by name"
        ) from error


def _experiment_of_options(options: argparse.Namespace) -> dict[str, Any] | None:
    names = ("share", "alias", "name", "timeout_ms")
    given = {
        name: value
        for name in names
        if (value := getattr(options, f"experiment_{name}")) is not None
    }
    if options.experiment_key is not None:
        return {"key": options.experiment_key, **given}
    if given:
        option = next(iter(given)).replace("_", "-")
        raise InferenceError(
            f"--experiment-{option} is for an experiment, which there is none of: give "
            "--experiment-key, or leave it out"
        )
    return None


def _jobs_of_options(options: argparse.Namespace) -> dict[str, int] | None:
    given = {
        "keep_hours": options.jobs_keep_hours,
        "most_jobs": options.jobs_most,
        "most_bytes": options.jobs_most_bytes,
    }
    if options.jobs:
        known = JobSettings()
        return {k: getattr(known, k) if v is None else v for k, v in given.items()}
    for name, value in zip(("keep-hours", "most", "most-bytes"), given.values(), strict=True):
        if value is not None:
            raise InferenceError(
                f"--jobs-{name} is for jobs, which aren't taken: give --jobs, or leave it out"
            )
    return None


def _workers(options: argparse.Namespace) -> int:
    cpus: float | None = options.cpus
    if cpus is not None and (not math.isfinite(cpus) or cpus <= 0):
        raise InferenceError(f"--cpus must be a number over 0; got {cpus}")
    if options.workers is not None:
        return options.workers
    if cpus is None:
        raise InferenceError("give --cpus, from which the number of workers follows, or --workers")
    # A proxy's work is small, and one process knows best how much is under way.
    return 1 if options.upstream else max(1, math.floor(cpus))


def _clients_of_options(given: list[str]) -> dict[str, list[str]]:
    clients: dict[str, list[str]] = {}
    for text in given:
        # No scope has a "=", a certificate's name may have one.
        name, equals, scopes = text.rpartition("=")
        if not name or not equals:
            raise InferenceError(f"--client must be NAME=[SCOPE[,SCOPE]]; got {text!r}")
        clients[name] = scopes.split(",") if scopes else []
    return clients
