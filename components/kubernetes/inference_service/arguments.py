"""Arguments of `InferenceService`, and what is rendered from them once they were checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from annotated_types import Len

from falaj.components.catalogue.clusters import (
    CERTIFICATE_ISSUER,
    GATEWAYS,
    MONITORING,
    SECRET_STORE,
    SERVING_ENDING,
    USUAL_TIME_ZONE,
)
from falaj.components.kubernetes._placed import InCluster, InClusterArgs
from falaj.components.kubernetes._registry_access import (
    RegistryAccess,
    RegistryAccessArgs,
)
from falaj.components.specification.answers import AnswersArgs
from falaj.components.specification.arguments import Default, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.drift import DriftArgs, WebhookArgs
from falaj.components.specification.limits import (
    DEFAULT_PACKAGE_MIB,
    PACKAGE_MIB,
    PIPELINE,
    Between,
    OneOf,
    TextRule,
)
from falaj.components.specification.model_names import ALIAS, MODEL, RECORD, SHARE, VERSION
from falaj.components.specification.workload_bounds import bound, fixed

TIERS: Final = ("cpu", "gpu")
KINDS: Final = ("predictive", "language")
SOURCES: Final = ("image", "claim")
PRECISIONS: Final = ("bfloat16", "float16", "float32")
"""Of vLLM's ``--dtype`` those that a model's weights, which are float32, may be rounded to."""
_CONTEXT: Final = bound("dataset", "context")
MODEL_LENGTH: Final = Between(_CONTEXT.low + 1, _CONTEXT.high + 1)
"""Of a window that is full, and the token that follows it."""
MOST_VERSIONS: Final = 8
"""An HTTPRoute holds 16 rules and a rule 16 backends; each version takes up to one rule:
https://gateway-api.sigs.k8s.io/reference/spec/#httproutespec"""
REPLICAS: Final = Between(1, 1_000)
_HEADER: Final = TextRule(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
    "a word of at most 63 letters, digits, '.', '_', '-'",
    "next",
)
"""What can't be confused with another value."""
_PUBLIC_KEY: Final = TextRule(
    r"^\s*(-----BEGIN PUBLIC KEY-----\s[A-Za-z0-9+/=\s]{1,200}-----END PUBLIC KEY-----\s*)+$",
    "public keys in PEM form: the text of the key ring's signing.pub.pem",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2Vw\n-----END PUBLIC KEY-----",
)
_WINDOW: Final = bound("rollout", "window_minutes")
_DEADLINE: Final = bound("rollout", "deadline_hours")
_REQUESTS: Final = bound("rollout", "least_requests")
_ERRORS: Final = bound("rollout", "most_error_rise")
_LATENCY: Final = bound("rollout", "most_latency_rise")
_LIKENESS: Final = bound("rollout", "least_likeness")
_INTERVAL: Final = bound("watch", "interval_seconds")
_COOL_DOWN: Final = bound("watch", "cool_down_hours")
_PER_WEEK: Final = bound("watch", "most_retrainings_per_week")
TELL, RETRAIN = WATCH_STEPS = ("tell", "retrain")
"""What may be done about drift in a cluster, as `falaj.workloads.watching` calls it."""
_WEBHOOK: Final = TextRule(
    r"^https://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9/._~-]{0,999})?$",
    "an address that starts with https://, without a name, password or query in it",
    "https://hooks.corp.internal/falaj",
)
_QUEUE_MS: Final = Between(0.1, 600_000)
_BODY: Final = bound("service", "max_body_bytes")
BODY_MIB: Final = Between(1, int(_BODY.high) >> 20)
_DRAIN: Final = Between(1, bound("service", "drain_seconds").high)
"""A pod's grace and Triton's are whole seconds, of which none at all would cut requests off; and
more by default than on one machine, as gateways hear of a pod's end later than it does."""


class ModelVersionArgs(TypedDict):
    """One version of the model that is served."""

    version: Annotated[int, VERSION]
    """Its number in the registry of models."""
    weight: Annotated[int, Between(0, 100)]
    """Share of the requests in percent; those of all versions are all of them. A version with 0
    stays up at its fewest replicas, so that a rollback is a change of weights alone."""
    package_digest: NotRequired[str]
    """``sha256:…`` of the version's package in the registry of images, as ``falaj models push``
    prints it. Needed where ``package_source`` is ``image``."""
    keys_digest: NotRequired[str]
    """``sha256:…`` of the package's wrapped keys in the same repository, which ``falaj models
    push`` prints beside the package's; another one after a rotation. Needed where
    ``package_source`` is ``image``: no image of a package has its keys in it."""
    header: NotRequired[Annotated[str, _HEADER]]
    """Requests whose header ``Falaj-Variant`` has this value get this version, whatever its
    weight: a canary for testers, or the arm of an A/B test. Default: none."""
    min_replicas: NotRequired[Annotated[int, REPLICAS]]
    """Fewest replicas of the version. Default: the service's."""
    max_replicas: NotRequired[Annotated[int, REPLICAS]]
    """Most replicas of the version. Default: the service's."""


class JudgeArgs(RegistryAccessArgs):
    """What a canary is judged by, against the stable version meanwhile, and with whose keys."""

    window_minutes: NotRequired[Annotated[float, _WINDOW, Default(_WINDOW.default)]]
    """How long both are looked at, at least; a canary of which too many requests fail isn't waited
    for."""
    deadline_hours: NotRequired[Annotated[float, _DEADLINE, Default(_DEADLINE.default)]]
    """After so many hours with too few requests nothing is decided, and both go on."""
    least_requests: NotRequired[Annotated[int, _REQUESTS, Default(_REQUESTS.default)]]
    """Requests that each of both has to have had."""
    most_error_rise: NotRequired[Annotated[float, _ERRORS, Default(_ERRORS.default)]]
    """Percentage points by which more of the canary's requests may fail: any status but 200, 401
    and 403, and workers that ended unasked."""
    most_latency_rise: NotRequired[Annotated[float, _LATENCY, Default(_LATENCY.default)]]
    """Per cent by which 99 of 100 of its answers may take longer. Servers count times in buckets,
    each twice as wide as the one before, so that less than 10 means little."""
    least_likeness: NotRequired[Annotated[float, _LIKENESS, Default(_LIKENESS.default)]]
    """Per cent of the answers that have to be spread as the stable version's are: labels by
    themselves, numbers by their size. 0 asks for nothing, for a model of another task or without
    one answer a row."""


class CanaryArgs(TypedDict):
    """A version that an alias of the registry stands for, tried beside the stable one."""

    model: str
    """``MODEL@ALIAS``, such as ``credit@candidate``. ``falaj up`` and ``falaj models follow``
    write what it and ``stable`` stand for into ``versions``; where both are one version, there is
    no canary."""
    share: Annotated[int, SHARE]
    """Share of the requests in percent."""
    steps: NotRequired[Annotated[list[Annotated[int, SHARE]], Len(1)]]
    """Shares in percent that it has afterwards, each greater than the one before: it is judged
    with each, and ``stable`` stands for it after the last. Needs a ``judge``. Default: ``share``
    is its only one."""
    stable: NotRequired[Annotated[str, ALIAS, Default("production")]]
    """Alias of the version that takes the rest."""
    verify_key: Annotated[str, _PUBLIC_KEY]
    """Public key (PEM) of who signs packages and records of aliases: the key ring's
    ``signing.pub.pem``."""
    record: NotRequired[Annotated[int, RECORD]]
    """Number of the record by which the alias stands for the canary, which ``falaj up`` and
    ``falaj models follow`` write: by another one it is judged anew. Default: none."""
    judge: NotRequired[JudgeArgs]
    """A Job that compares both and then lets ``stable`` stand for a canary that passed, or the
    canary's alias for the stable version. It has no right in the cluster. Default: people decide,
    with ``falaj models promote``."""


class WatchArgs(TypedDict):
    """What is done about drift of the version that most requests go to, and by whose rights."""

    steps: NotRequired[
        Annotated[list[Annotated[str, OneOf(WATCH_STEPS)]], Len(1), Default(WATCH_STEPS[:1])]
    ]
    """What may be done: ``tell`` says what drifted, in the audit log and to the webhook;
    ``retrain`` asks ``pipeline`` for a run. A version that is worse than the one before is what
    ``canary.judge`` withdraws."""
    interval_seconds: NotRequired[Annotated[int, _INTERVAL, Default(_INTERVAL.default)]]
    """Between two looks at the replicas' reports, in seconds."""
    pipeline: NotRequired[Annotated[str, PIPELINE]]
    """The tenant's `Pipeline` that is asked for a run on newer data; its ``on_drift`` names this
    service. Needed for ``retrain``."""
    control_plane_cidrs: NotRequired[list[str]]
    """Private ranges that the API server is in, as pods see it: those of the platform's
    ``installation.controlPlaneCidrs``. Needed for ``retrain``."""
    cool_down_hours: NotRequired[Annotated[float, _COOL_DOWN, Default(_COOL_DOWN.default)]]
    """How long after a run was asked for none is, in hours."""
    most_retrainings_per_week: NotRequired[Annotated[int, _PER_WEEK, Default(_PER_WEEK.default)]]
    """Most runs that are asked for within seven days, whatever became of them."""
    webhook: NotRequired[Annotated[str, _WEBHOOK, SameAs(WebhookArgs, "webhook")]]
    webhook_cidrs: NotRequired[list[str]]
    """Private ranges that the webhook is in: nothing is sent elsewhere. Needed with
    ``webhook``."""
    webhook_secret: NotRequired[str]
    """Entry of the secret store with the key that signs messages, a text that the receiver has as
    well. Needed with ``webhook``."""
    webhook_authority: NotRequired[str]
    """Certificates (PEM) of who signed the webhook's. Default: those that the image trusts."""


class CallerArgs(TypedDict):
    """A workload in the cluster that may call the service."""

    namespace: str
    """Its namespace."""
    service_account: str
    """Its service account there: its identity in the mesh."""


class OverflowArgs(TypedDict):
    """Another service of the same model that takes what this one is too slow for."""

    to: str
    """Name of the other `InferenceService`, in the same namespace: that of the GPU tier."""
    version: Annotated[int, VERSION]
    """The version of it that answers."""
    above_ms: Annotated[float, _QUEUE_MS]
    """Expected time in the queue, in milliseconds, from which requests are passed on."""
    timeout_ms: NotRequired[Annotated[float, Between(1, 600_000), Default(1_000)]]
    """How long the other tier may take before this one does the work itself."""


class HoursArgs(TypedDict):
    """When a service that sleeps is awake: KEDA's cron scaler."""

    start: str
    """Cron expression, such as ``0 7 * * 1-5``."""
    end: str
    """Cron expression."""
    timezone: NotRequired[Annotated[str, Default(USUAL_TIME_ZONE)]]
    """Of the IANA's list."""


@described
class InferenceServiceArgs(InClusterArgs):
    """Arguments of `InferenceService`."""

    model: Annotated[str, MODEL]
    """Name of the model in its packages."""
    kind: NotRequired[Annotated[str, OneOf(KINDS), Default(KINDS[0])]]
    """``language`` is for a model that goes on with texts: what OpenAI's clients ask for below
    ``/v1`` goes through the gateway to it as well, by ``host_names`` that are its alone, as those
    paths don't name the model. With ``gpu`` vLLM generates them."""
    versions: NotRequired[Annotated[list[ModelVersionArgs], Len(1, MOST_VERSIONS)]]
    """The versions that are served side by side. Needed; where there is a ``canary``,
    ``falaj up`` writes them."""
    canary: NotRequired[CanaryArgs]
    """Which aliases ``versions`` follow, and who decides between them. Default: none; ``falaj
    models pin`` writes versions."""
    package_source: NotRequired[Annotated[str, OneOf(SOURCES), Default(SOURCES[0])]]
    """Where the sealed packages lie: in an image of the registry per version, mounted as a volume,
    or in a volume claim (a shared file system, or a bucket through its driver)."""
    package_name: str
    """Repository of the packages' images below the registry (``models/credit-risk``); or name of
    the claim."""
    package_path: NotRequired[str]
    """Folder of the registry of models in the claim. Default: the claim's root."""
    key_secret: str
    """Entry of the secret store that holds the key ring, named after the tenant
    (``<tenant>/model-keys``; on AKS ``<tenant>--model-keys``): the text that
    ``python -m falaj.workloads.registry keyring pack`` writes, which has no key that signs."""
    secret_store: NotRequired[Annotated[str, Default(SECRET_STORE)]]
    """Name of the `ClusterSecretStore` of External Secrets."""
    certificate_issuer: NotRequired[Annotated[str, Default(CERTIFICATE_ISSUER)]]
    """Name of the `ClusterIssuer` of cert-manager for certificates within the cluster."""
    token_issuer: str
    """``iss`` of callers' tokens."""
    token_audience: NotRequired[str]
    """``aud`` of callers' tokens. Default: ``falaj:<tenant>:<name>``, with the name of the tier
    that overflows to this one, if one does."""
    token_keys: NotRequired[str]
    """Public keys of the issuer: a JWK set (RFC 7517) of Ed25519 or P-256 keys, as text. Default:
    the key ring's own, whose tokens ``python -m falaj.workloads.inference token`` makes."""
    tier: NotRequired[Annotated[str, OneOf(TIERS), Default(TIERS[0])]]
    """With ``cpu`` Falaj's server runs the model, with ``gpu`` Triton does, or vLLM one of
    ``language``, behind Falaj's."""
    flavor: NotRequired[str]
    """Which nodes: the value of the label ``falaj.io/flavor`` (``l4``, ``h200-mig-1g.18gb``,
    ``l4-time-slicing-4``). Needed for ``gpu``; its ending says which fraction of a GPU is asked
    for. Default for ``cpu``: any node."""
    gpus: NotRequired[Annotated[int, Between(1, 8), Default(1)]]
    """GPUs, or fractions, of each replica; for ``gpu``."""
    cpus: NotRequired[Annotated[float, Between(0.5, 256)]]
    """Cores of each replica. Default: 2 (``gpu``: 4)."""
    memory_mib: NotRequired[Annotated[int, Between(256, 2**22)]]
    """Memory of each replica, without the model in its memory file system (``gpu``). Default:
    2,048 (``gpu``: 8,192)."""
    model_mib: NotRequired[Annotated[int, PACKAGE_MIB, Default(DEFAULT_PACKAGE_MIB)]]
    """Size of the package at most, in MiB: bounds the volumes that hold it, sealed on disk and,
    for ``gpu``, open in memory."""
    min_replicas: NotRequired[Annotated[int, REPLICAS]]
    """Fewest replicas of each version. Default: 2 in production, else 1."""
    max_replicas: NotRequired[Annotated[int, REPLICAS]]
    """Most replicas of each version. Default: 10, or ``min_replicas`` where that is more."""
    target_queue_ms: NotRequired[Annotated[float, _QUEUE_MS, Default(20)]]
    """Mean time in the queue, in milliseconds, that replicas are added above."""
    target_use_percent: NotRequired[Annotated[int, Between(10, 95), Default(70)]]
    """Use of the cores (``gpu``: of the GPU's engines) that replicas are added above."""
    scale_to_zero: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether a service without work has no replicas. A request can't wake it: it is awake in
    ``hours``, or when the tier that overflows to it (``overflow_from``) asks. Not in production,
    unless ``allow_cold_production``."""
    allow_cold_production: NotRequired[Annotated[bool, Default(value=False)]]
    """Lets a production service scale to zero, and run with a single replica."""
    hours: NotRequired[HoursArgs]
    """When a service that may scale to zero is awake. Default: no hours."""
    overflow_from: NotRequired[str]
    """Name of the `InferenceService` in the same namespace that overflows to this one. Its
    replicas may call this one, and its requests wake this one, which has no route of its own
    through the gateway. Default: none."""
    overflow: NotRequired[OverflowArgs]
    """Where requests go that would wait too long here. For ``cpu`` only. Default: nowhere."""
    callers: NotRequired[list[CallerArgs]]
    """Who may call it from within the cluster, beside the gateway. Default: nobody."""
    gateway: NotRequired[Annotated[str, Default(f"{GATEWAYS}/falaj")]]
    """``namespace/name`` of the Gateway that requests come through."""
    host_names: NotRequired[list[str]]
    """Host names of the route. Default: the gateway's."""
    mesh: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether the namespace is in Istio's ambient mesh: adds mutual TLS between identities and
    their authorisation."""
    trust_domain: NotRequired[Annotated[str, Default("cluster.local")]]
    """Of the mesh's identities."""
    monitoring_namespace: NotRequired[Annotated[str, Default(MONITORING)]]
    """Where Prometheus runs."""
    prometheus: NotRequired[str]
    """Address that KEDA asks. Default: that of the Prometheus operator in
    ``monitoring_namespace``."""
    service_account: NotRequired[Annotated[str, Default("inference")]]
    """Of the replicas, in ``<tenant>-serving``; it gets no token of the cluster. `Tenant` makes
    the default one."""
    priority_class: NotRequired[Annotated[str, Default("falaj-high")]]
    """Class of priority of the replicas."""
    audit_claim: NotRequired[str]
    """Claim, writable by many nodes, that keeps the replicas' access and audit logs, each in a
    folder of its own. Default: they last as long as their replica."""
    start_seconds: NotRequired[Annotated[int, Between(30, 7_200)]]
    """How long a replica may take to be ready: a large model, or an engine that TensorRT builds.
    Default: 300 (``gpu``: 900)."""
    drain_seconds: NotRequired[Annotated[int, _DRAIN, Default(30)]]
    """How long a replica that ends may finish its requests."""
    max_body_mib: NotRequired[Annotated[int, BODY_MIB, Default(_BODY.default >> 20)]]
    """Largest request, in MiB."""
    max_rows: NotRequired[Annotated[int, SameAs(AnswersArgs, "max_rows")]]
    max_tokens: NotRequired[Annotated[int, SameAs(AnswersArgs, "max_tokens")]]
    """Of each text, for ``language``."""
    tokens_per_minute: NotRequired[Annotated[int, SameAs(AnswersArgs, "tokens_per_minute")]]
    """For ``language``."""
    keep_seconds: NotRequired[Annotated[int, SameAs(AnswersArgs, "keep_seconds")]]
    """For ``language``. Default: as the server does on one machine."""
    max_batch: NotRequired[Annotated[int, Between(1, 4_096), Default(32)]]
    """Most rows that Triton runs together; for ``gpu``."""
    gpu_memory_utilization: NotRequired[Annotated[float, Between(0.1, 0.98), Default(0.9)]]
    """Share of each GPU's memory that vLLM takes, for weights and for what it keeps of texts; for
    ``language`` on ``gpu``."""
    max_model_length: NotRequired[Annotated[int, MODEL_LENGTH]]
    """Tokens that a text may have in vLLM, prompt and answer together, before its window begins
    anew; for ``language`` on ``gpu``. Default: one more than the model looks back on, which is the
    most."""
    precision: NotRequired[Annotated[str, OneOf(PRECISIONS), Default(PRECISIONS[0])]]
    """What vLLM computes in; the package's figures are of ``float32``. For ``language`` on
    ``gpu``."""
    grpc: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether replicas answer callers in the cluster by gRPC as well, on the same port. Each gets
    256 MiB, and sixteen times ``max_body_mib``, of memory more for each of its cores (``gpu``:
    once), which its gRPC processes can't go beyond; ``max_body_mib`` is 255 at most then."""
    batching: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether replicas run requests that wait together, where measuring the model says that it
    pays; for ``cpu``: Triton does by itself, up to ``max_batch`` rows."""
    drift: NotRequired[DriftArgs]
    """What each replica watches of its rows and answers. Default: that it does, in windows of
    1,000 rows."""
    watch: NotRequired[WatchArgs]
    """A program of its own that looks at what the replicas report of drift, tells of it, and may
    ask a pipeline for a newer model. Needs ``audit_claim``, where it keeps what it did. Default:
    nobody acts on drift; an alert tells of it."""
    images: NotRequired[dict[str, str]]
    """Digests (``sha256:…``) of ``falaj-inference``, ``triton`` and ``vllm``. Default: the bill of
    materials'."""


PORT: Final = fixed("image", "server_port")
"""Of Falaj's server in the pod: one that needs no privileges."""
VARIANT_HEADER: Final = "Falaj-Variant"
SCRAPER: Final = "prometheus"
"""Common name of the certificate that Prometheus shows; it may observe, and nothing else."""


@dataclass(frozen=True)
class Version:
    """One version that is served."""

    number: int
    weight: int
    package_digest: str
    keys_digest: str
    """Empty where the package's image holds them."""
    header: str
    least: int
    most: int


@dataclass(frozen=True)
class Caller:
    """A workload that may call."""

    namespace: str
    service_account: str


@dataclass(frozen=True)
class Overflow:
    """Where requests go that would wait too long."""

    to: str
    version: int
    above_ms: float
    timeout_ms: float


@dataclass(frozen=True)
class Package:
    """Where the sealed packages lie."""

    kind: str
    name: str
    path: str
    model_mib: int


@dataclass(frozen=True)
class Size:
    """What a replica gets."""

    cpus: float
    memory_mib: int
    gpus: int
    gpu_resource: str
    """Such as ``nvidia.com/gpu``; empty without a GPU."""
    flavor: str
    max_batch: int


@dataclass(frozen=True)
class EngineSettings:
    """How vLLM runs a language model."""

    gpu_memory_utilization: float
    max_model_length: int | None
    """None: as long as the model allows."""
    precision: str


@dataclass(frozen=True)
class Scaling:
    """When replicas come and go."""

    target_queue_ms: float
    target_use_percent: int
    to_zero: bool
    hours: Mapping[str, str] | None
    prometheus: str


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may call, and how they prove who they are."""

    token_issuer: str
    token_audience: str
    token_keys: str
    callers: tuple[Caller, ...]
    overflow_from: str
    gateway_namespace: str
    gateway_name: str
    host_names: tuple[str, ...]
    mesh: bool
    trust_domain: str
    monitoring_namespace: str
    service_account: str
    key_secret: str
    secret_store: str
    certificate_issuer: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    """How replicas start, end and keep records."""

    priority_class: str
    audit_claim: str
    start_seconds: int
    drain_seconds: int
    max_body_mib: int
    max_rows: int
    max_tokens: int
    tokens_per_minute: int | None = None
    keep_seconds: int | None = None


@dataclass(frozen=True)
class Judge:
    """Who decides between two versions."""

    access: RegistryAccess
    aliases: tuple[str, str]
    """Of the stable version, and of the canary."""
    demands: Mapping[str, float]
    """Options of ``falaj.workloads.rollout`` that are numbers."""
    record: int
    """Of the canary's alias; 0 where that isn't said."""
    steps: tuple[int, ...]
    """Shares in percent that a canary has in its turn, behind its first."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Who watches drift."""

    steps: tuple[str, ...]
    numbers: Mapping[str, float]
    """Options of ``falaj.workloads.watching`` that are numbers."""
    pipeline: str
    """Empty: none is asked."""
    control_plane: tuple[str, ...]
    webhook: str
    """Empty: nothing is sent."""
    webhook_cidrs: tuple[str, ...]
    webhook_entry: str
    webhook_authority: str
    """PEM; empty for those that the image trusts."""


@dataclass(frozen=True, kw_only=True)
class InferenceServiceSpec:
    """The arguments of `InferenceService`, checked."""

    placed: InCluster
    name: str
    model: str
    tier: str
    versions: tuple[Version, ...]
    package: Package
    size: Size
    scaling: Scaling
    access: Access
    overflow: Overflow | None
    operation: Operation
    images: Mapping[str, str]
    grpc: bool = False
    """Whether callers may speak gRPC, too."""
    batching: bool = False
    """Whether requests that wait run together, where it pays."""
    is_language: bool = False
    """Whether it goes on with texts."""
    engine: EngineSettings | None = None
    """How vLLM generates these; None: it doesn't."""
    drift: Mapping[str, Any]
    """What of `DriftArgs` holds."""
    judge: Judge | None = None
    """None: nobody judges, or there is one version alone."""
    watch: Watch | None = None
    """None: nobody acts on drift."""

    @property
    def namespace(self) -> str:
        """The tenant's namespace for serving."""
        return f"{self.placed.tenant}{SERVING_ENDING}"

    @property
    def host(self) -> str:
        """The name in the cluster that certificates are made for."""
        return f"{self.name}.{self.namespace}.svc"

    def of(self, version: Version) -> str:
        """Name of what belongs to one version; the same for good, so that none is rewritten."""
        return f"{self.name}-v{version.number}"

    def selector(self, version: Version | None = None) -> dict[str, str]:
        """Labels that select the pods of the service, or of one version of it."""
        found = {"app.kubernetes.io/name": self.name, "app.kubernetes.io/component": "inference"}
        return found if version is None else {**found, "falaj.io/version": str(version.number)}

    def metadata(self, name: str, version: Version | None = None) -> dict[str, Any]:
        """Metadata of one of the service's objects."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.placed.labels("inference-service"), **self.selector(version)},
            "annotations": self.placed.annotations(),
        }

    @property
    def leading(self) -> Version:
        """The version with the greatest share; of equals the oldest."""
        return max(self.versions, key=lambda each: (each.weight, -each.number))
