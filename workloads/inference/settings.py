"""`service.json`: what a service is, and how the file is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

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
)
from falaj.workloads.documents import TwiceError, is_sequence, parse_json
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.section import Section
from falaj.workloads.registry.keyring import TOKEN_OVERLAP
from falaj.workloads.registry.sealed import SUFFIX

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
    model (a shadow, an experiment, another tier) is beside it alone."""
    further: bool = False
    """Whether these are of a further model, by `of_further`."""

    @property
    def all_models(self) -> tuple[str, ...]:
        """Names of all models, the first one first."""
        return (self.model, *self.models)

    @property
    def jobs_folder(self) -> Path:
        """Where jobs of all models are kept: beside the state, under its name."""
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
        document = parse_json(content)
    except TwiceError as error:
        raise InferenceError(f"{path}: {error}; allowed is once") from error
    except (ValueError, RecursionError) as error:
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
