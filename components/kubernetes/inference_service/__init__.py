"""A packaged model served in a cluster: versions, shares, scaling, and who may call it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import pulumi

from falaj.components.catalogue.clusters import GPU, TIME_SLICE
from falaj.components.catalogue.pipelines import WATCH_ENDING
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import InCluster, check_in_cluster, check_secret_entry
from falaj.components.kubernetes._pods import INFERENCE_IMAGE
from falaj.components.kubernetes._validation import (
    OBJECT,
    RELATIVE_PATH,
    TIME_ZONE,
    options,
)
from falaj.components.kubernetes.bill_of_materials import resolve
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    REPLICAS,
    Access,
    Caller,
    CallerArgs,
    CanaryArgs,
    EngineSettings,
    HoursArgs,
    InferenceServiceArgs,
    InferenceServiceSpec,
    JudgeArgs,
    ModelVersionArgs,
    Operation,
    Overflow,
    OverflowArgs,
    Package,
    Scaling,
    Size,
    Version,
    WatchArgs,
)
from falaj.components.kubernetes.inference_service.canary import beside, checked_canary, job
from falaj.components.kubernetes.inference_service.deployment import deployment, secrets
from falaj.components.kubernetes.inference_service.network import (
    JUDGE_ENDING,
    isolation,
    routing,
)
from falaj.components.kubernetes.inference_service.scaling import scaling
from falaj.components.kubernetes.inference_service.watch import checked_watch
from falaj.components.kubernetes.inference_service.watch import manifests as watching
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.drift import DriftArgs
from falaj.components.specification.limits import DIGEST, SERVICE
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.workload_bounds import bound
from falaj.wire.documents import is_mapping, mapping, sequence

__all__ = [
    "CallerArgs",
    "CanaryArgs",
    "HoursArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "JudgeArgs",
    "ModelVersionArgs",
    "OverflowArgs",
    "WatchArgs",
    "check",
    "manifests",
]


_FOLLOW: Final = "; `falaj models follow` and `falaj up` write what the aliases stand for"


def checked_versions(
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    with_digest: bool,
    careful: bool,
    cold: bool,
) -> tuple[Version, ...]:
    """The argument ``versions``.

    Args:
        given: the service's arguments.
        checked: what `ArgumentErrors.checked` found them to be.
        errors: gets what can't be used.
        with_digest: whether each version has an image of its own.
        careful: whether a single replica is refused.
        cold: whether the service may have none, asleep.
    """
    if checked["versions"] is None:
        followed = given.get("canary") is not None
        errors.say("versions", f"missing{_FOLLOW if followed else ''}")
        return ()
    found: list[Version] = []
    for position, entry in enumerate(checked["versions"]):
        at = f"versions[{position}]"
        if not isinstance(entry, Mapping):
            errors.add(at, entry, "version and weight, by name")
            continue
        one = options(at, cast("object", entry), ModelVersionArgs, errors)
        own = errors.checked_only(one, ModelVersionArgs, at=f"{at}.")
        low = 1 if cold or not careful else 2
        least = _replicas_of("min_replicas", at, own, checked, errors, low=low, usual=low)
        most = _replicas_of(
            "max_replicas", at, own, checked, errors, low=least, usual=max(_USUAL_MOST, least)
        )
        found.append(
            Version(
                own["version"] or 0,
                own["weight"] or 0,
                _digest(at, one, "package_digest", errors, allowed=with_digest),
                _digest(at, one, "keys_digest", errors, allowed=with_digest),
                own["header"] or "",
                least,
                most,
            )
        )
    _together(found, errors)
    return tuple(sorted(found, key=lambda each: each.number))


_USUAL_MOST: Final = 10


def _replicas_of(
    argument: str,
    at: str,
    own: Mapping[str, Any],
    checked: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    low: int,
    usual: int,
) -> int:
    """How many a version has, by its own argument or the service's: ``low`` at least."""
    path = f"{at}.{argument}" if own[argument] is not None else argument
    count: int | None = checked[argument] if own[argument] is None else own[argument]
    if count is None:
        return usual
    if errors.has(path):
        return max(low, count)
    return errors.within(path, count, replace(REPLICAS, low=low))


def _digest(
    at: str,
    one: Mapping[str, Any],
    argument: str,
    errors: ArgumentErrors,
    *,
    allowed: bool,
) -> str:
    digest = one.get(argument, "")
    if not allowed:
        if digest:
            errors.say(f"{at}.{argument}", "is for package_source 'image'; leave it out")
        return ""
    if not DIGEST.allows(digest):
        errors.add(
            f"{at}.{argument}", digest or None, "sha256: and 64 of 0-9 and a-f",
            "it is the digest of an image in the registry, as a tag could be moved; `falaj models "
            "push` prints both of a version, `falaj models pin` writes them",
        )  # fmt: skip
    return str(digest)


def _together(found: Sequence[Version], errors: ArgumentErrors) -> None:
    """What has to hold for all of them."""
    for what in ("number", "header"):
        values = [getattr(each, what) for each in found if getattr(each, what)]
        for value in sorted({each for each in values if values.count(each) > 1}, key=str):
            name = "version" if what == "number" else what
            errors.add("versions", f"{name} {value} twice", f"each {name} once")
    total = sum(each.weight for each in found)
    if found and total != 100:
        errors.add(
            "versions", f"weights that add up to {total}", "100",
            "the weights are shares in percent; give the stable version what is left",
        )  # fmt: skip


_HOST: Final = re.compile(
    r"^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
)
_KEYS: Final = {("OKP", "Ed25519"), ("EC", "P-256")}


def checked_access(
    name: str,
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    placed: InCluster | None,
    errors: ArgumentErrors,
) -> Access:
    """Tokens, callers, the way in, keys and certificates."""
    gateway = str(checked["gateway"])
    space, slash, gateway_name = gateway.partition("/")
    if not slash or not OBJECT.match(space) or not OBJECT.match(gateway_name):
        errors.add("gateway", gateway, "namespace/name of a Gateway")
    host_names: tuple[str, ...] = checked["host_names"] or ()
    for host in host_names:
        if not _HOST.match(host):
            errors.add("host_names", host, "a DNS name, such as models.acme.example")
    objects: dict[str, str] = {}
    for argument in (
        "trust_domain", "monitoring_namespace", "service_account", "secret_store",
        "certificate_issuer", "overflow_from",
    ):  # fmt: skip
        objects[argument] = checked[argument] or ""
        if objects[argument] and not OBJECT.match(objects[argument]):
            errors.add(argument, objects[argument], "a name of a-z, 0-9, '-' and '.'")
    for argument in ("gateway", "host_names"):
        if objects["overflow_from"] and argument in given:
            errors.say(
                argument,
                "is for a service with a route; with overflow_from its requests come from the "
                "other tier alone: leave it out",
            )
    if objects["overflow_from"] == name:
        errors.add("overflow_from", name, "the name of another InferenceService of the namespace")
    secret = errors.text(given, "key_secret")
    check_secret_entry("key_secret", secret, placed, errors)
    tenant = placed.tenant if placed is not None else ""
    issuer = errors.text(given, "token_issuer")
    # Requests that another tier passes on carry the token that it was shown.
    known_as = objects["overflow_from"] or name
    audience = str(checked["token_audience"] or f"falaj:{tenant}:{known_as}")
    for argument, value in (("token_issuer", issuer), ("token_audience", audience)):
        if not value.isprintable() or not value.strip() or " " in value:
            errors.add(argument, value, "a text without spaces")
    return Access(
        token_issuer=issuer,
        token_audience=audience,
        token_keys=_keys(given, errors),
        callers=_callers(given, errors),
        overflow_from=objects["overflow_from"],
        gateway_namespace=space,
        gateway_name=gateway_name,
        host_names=host_names,
        mesh=checked["mesh"],
        trust_domain=objects["trust_domain"],
        monitoring_namespace=objects["monitoring_namespace"],
        service_account=objects["service_account"],
        key_secret=secret,
        secret_store=objects["secret_store"],
        certificate_issuer=objects["certificate_issuer"],
    )


def _callers(given: Mapping[str, Any], errors: ArgumentErrors) -> tuple[Caller, ...]:
    value = given.get("callers", ())
    if isinstance(value, str) or not isinstance(value, Sequence):
        errors.add("callers", value, "a list of namespace and service_account, by name")
        return ()
    found: list[Caller] = []
    for position, entry in enumerate(cast("Sequence[object]", value)):
        at = f"callers[{position}]"
        one = mapping(entry)
        if set(one) != {"namespace", "service_account"}:
            errors.add(at, entry, "namespace and service_account, by name")
            continue
        caller = Caller(str(one["namespace"]), str(one["service_account"]))
        if not OBJECT.match(caller.namespace) or not OBJECT.match(caller.service_account):
            errors.add(at, entry, "names without wildcards", "name every caller")
        elif caller not in found:
            found.append(caller)
    return tuple(found)


def _keys(given: Mapping[str, Any], errors: ArgumentErrors) -> str:
    """A JWK set of public keys alone: it lies open in a ConfigMap."""
    text = given.get("token_keys", "")
    if not text:
        return ""
    allowed = "a JWK set of public Ed25519 or P-256 keys, as text"
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        document = None
    entries = sequence(mapping(document).get("keys"))
    if not entries:
        errors.add("token_keys", "something else", allowed)
        return ""
    for entry in entries:
        if not is_mapping(entry) or (entry.get("kty"), entry.get("crv")) not in _KEYS:
            errors.add("token_keys", "a key of another kind", allowed)
        elif "d" in entry:
            errors.add(
                "token_keys", "a private key", allowed, "whoever reads it could make tokens"
            )
    return json.dumps(document, sort_keys=True)


_CRON_FIELD: Final = r"(\*|[0-9A-Za-z,/*-]+)"
_CRON: Final = re.compile(rf"^{_CRON_FIELD}( {_CRON_FIELD}){{4}}$")
_URL: Final = re.compile(r"^https?://[a-z0-9.-]+(:\d{1,5})?(/[\w./-]*)?$")


def checked_scaling(
    given: Mapping[str, Any], checked: Mapping[str, Any], careful: bool, errors: ArgumentErrors
) -> Scaling:
    """Targets, sleep and waking; ``careful`` refuses sleep."""
    to_zero: bool = checked["scale_to_zero"]
    hours = _hours(given, errors)
    if to_zero and careful:
        errors.add(
            "scale_to_zero", True, "false in production",
            "the first caller would wait for a model to load; set allow_cold_production, if so",
        )  # fmt: skip
    if to_zero and hours is None and not given.get("overflow_from"):
        errors.say(
            "scale_to_zero",
            "nothing would ever wake the service: give hours, or overflow_from",
        )
    if hours is not None and not to_zero:
        errors.say("hours", "are for a service with scale_to_zero; leave them out, or set it")
    namespace = checked["monitoring_namespace"]
    address = str(checked["prometheus"] or f"http://prometheus-operated.{namespace}.svc:9090")
    if not _URL.match(address):
        errors.add("prometheus", address, "an address such as http://prometheus.monitoring:9090")
    return Scaling(
        checked["target_queue_ms"],
        checked["target_use_percent"],
        to_zero,
        hours,
        address,
    )


def _hours(given: Mapping[str, Any], errors: ArgumentErrors) -> dict[str, str] | None:
    hours = _section("hours", given, HoursArgs, errors)
    if hours is None:
        return None
    for key in ("start", "end"):
        if hours[key] is not None and not _CRON.match(hours[key]):
            errors.add(f"hours.{key}", hours[key], "five fields of cron, such as '0 7 * * 1-5'")
    if not TIME_ZONE.match(hours["timezone"]):
        errors.add("hours.timezone", hours["timezone"], "a time zone such as Asia/Dubai")
    return dict(hours)


def checked_overflow(
    name: str, given: Mapping[str, Any], gpu: bool, errors: ArgumentErrors
) -> Overflow | None:
    """The argument ``overflow``."""
    overflow = _section("overflow", given, OverflowArgs, errors)
    if overflow is None:
        return None
    if gpu:
        errors.say("overflow", "is for tier 'cpu': the GPU tier is where its requests go")
    to = overflow["to"]
    if to is not None and (not SERVICE.allows(to) or to == name):
        errors.add("overflow.to", to, "the name of another InferenceService of this namespace")
    return Overflow(
        str(to),
        overflow["version"],
        overflow["above_ms"],
        overflow["timeout_ms"],
    )


def _section(
    argument: str, given: Mapping[str, Any], kind: type, errors: ArgumentErrors
) -> Mapping[str, Any] | None:
    """An argument with arguments of its own; None where it is left out or can't be used."""
    value = given.get(argument)
    if value is None:
        return None
    found = errors.checked_only(options(argument, value, kind, errors), kind, at=f"{argument}.")
    return found if isinstance(value, Mapping) else None


_REPOSITORY: Final = re.compile(r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$")
_MIG: Final = re.compile(r"-(mig-\d+g\.\d+gb)\b")


def check(name: str, args: InferenceServiceArgs) -> InferenceServiceSpec:
    """Check the arguments of an `InferenceService`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"InferenceService {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    errors.names(given, InferenceServiceArgs)
    # A private key that was put in by mistake isn't shown to anybody.
    shown = {key: value for key, value in given.items() if key != "token_keys"}
    checked = errors.checked_only(shown, InferenceServiceArgs)
    if not SERVICE.allows(name):
        errors.add("name", name, SERVICE.rule)
    for ending, whose in ((JUDGE_ENDING, "judges"), (WATCH_ENDING, "who watches drift")):
        if name.endswith(ending):
            errors.add("name", name, f"no {ending!r} at the end: objects of {whose} are called so")
    placed = check_in_cluster(given, errors)
    tier = checked["tier"]
    gpu = tier == "gpu"
    is_language = _is_language(given, checked, errors)
    package = _package(checked, errors)
    size = _size(given, checked, placed, gpu, errors)
    engine = _engine(given, checked, size, gpu and is_language, errors)
    cold: bool = checked["allow_cold_production"]
    careful = placed is not None and placed.environment == "production" and not cold
    scaling = checked_scaling(given, checked, careful, errors)
    overflow = checked_overflow(name, given, gpu, errors)
    versions = checked_versions(
        given, checked, errors, with_digest=package.kind == "image", careful=careful,
        cold=scaling.to_zero,
    )  # fmt: skip
    access = checked_access(name, given, checked, placed, errors)
    judge = checked_canary(given, placed, package, versions, errors)
    grpc: bool = checked["grpc"]
    batching: bool = checked["batching"]
    if batching and gpu:
        errors.say(
            "batching",
            "is for tier 'cpu': Triton batches by itself, up to max_batch; leave it out",
        )
    if grpc and engine is not None:
        errors.say("grpc", "is of tensors, and vLLM goes on with texts alone; leave it out")
    operation = _operation(given, checked, gpu, grpc, errors)
    drift = _drift(given, errors)
    watch = checked_watch(given, placed, watched=drift["enabled"], errors=errors)
    images: dict[str, str] = {}
    if placed is not None:
        beside = "vllm" if engine is not None else "triton"
        names = (INFERENCE_IMAGE, beside) if gpu else (INFERENCE_IMAGE,)
        digests = errors.mapping("images", given["images"]) if "images" in given else None
        images = resolve(placed, names, digests, errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return InferenceServiceSpec(
        placed=placed,
        name=name,
        model=checked["model"],
        tier=str(tier),
        versions=versions,
        package=package,
        size=size,
        scaling=scaling,
        access=access,
        overflow=overflow,
        operation=operation,
        images=images,
        grpc=grpc,
        batching=batching,
        is_language=is_language,
        engine=engine,
        drift=drift,
        judge=judge,
        watch=watch,
    )


def _is_language(
    given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> bool:
    if checked["kind"] != "language":
        return False
    if "overflow_from" in given:
        errors.say(
            "kind",
            "'language' is for a service with a route; texts are never passed on by the tier that "
            "overflow_from names: leave one of both out",
        )
    elif not given.get("host_names"):
        errors.say(
            "host_names",
            "missing; needed where kind is 'language', as paths below /v1 name no model",
        )
    return True


_OF_ENGINE: Final = ("gpu_memory_utilization", "max_model_length", "precision")


def _engine(
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    size: Size,
    wanted: bool,
    errors: ArgumentErrors,
) -> EngineSettings | None:
    """How vLLM runs the model, where it does."""
    if not wanted:
        for name in _OF_ENGINE:
            if name in given:
                errors.say(name, "is for kind 'language' of tier 'gpu', by vLLM; leave it out")
        return None
    if "max_batch" in given:
        errors.say("max_batch", "is Triton's, and vLLM batches by itself; leave it out")
    if size.gpu_resource.endswith(".shared"):
        errors.add(
            "flavor", size.flavor, "a whole GPU or a MIG slice, where kind is 'language'",
            "vLLM takes its share of a GPU's whole memory, which others have by time-slicing",
        )  # fmt: skip
    if size.gpus > 1 and size.gpu_resource != GPU:
        errors.add(
            "gpus", size.gpus, "1 of a flavor that is a part of a GPU, where kind is 'language'",
            "vLLM divides a model among whole GPUs",
        )  # fmt: skip
    if size.gpus not in _DIVIDED:
        errors.add(
            "gpus", size.gpus, f"one of {', '.join(map(str, _DIVIDED))}, where kind is 'language'",
            "vLLM divides the heads of a model among them",
        )  # fmt: skip
    return EngineSettings(
        checked["gpu_memory_utilization"], checked["max_model_length"], checked["precision"]
    )


_DIVIDED: Final = (1, 2, 4, 8)


def _package(checked: Mapping[str, Any], errors: ArgumentErrors) -> Package:
    kind, name = checked["package_source"], checked["package_name"] or ""
    allowed = _REPOSITORY if kind == "image" else OBJECT
    if name and not allowed.match(name):
        errors.add(
            "package_name", name,
            "a repository below the registry, such as models/credit-risk" if kind == "image"
            else "the name of a volume claim",
        )  # fmt: skip
    path = checked["package_path"] or ""
    if path and kind != "claim":
        errors.say("package_path", "is for package_source 'claim'; leave it out")
    elif path and not RELATIVE_PATH.match(path):
        errors.add("package_path", path, "a folder in the claim, such as registry/models")
    return Package(str(kind), name, path, checked["model_mib"])


class _Usual(NamedTuple):
    """What a tier's replicas get where nothing else is said."""

    cpus: float
    memory_mib: int
    start_seconds: int


_USUAL: Final = {False: _Usual(2, 2_048, 300), True: _Usual(4, 8_192, 900)}
"""By whether it is the GPU tier."""


def _size(
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    placed: InCluster | None,
    gpu: bool,
    errors: ArgumentErrors,
) -> Size:
    flavor = checked["flavor"] or ""
    if gpu:
        errors.needed(given, ("flavor",), "where tier is 'gpu'")
    if flavor and not OBJECT.match(flavor):
        errors.add("flavor", flavor, "a value of the label falaj.io/flavor, such as l4")
        flavor = ""
    usual = _USUAL[gpu]
    cpus: float = usual.cpus if checked["cpus"] is None else checked["cpus"]
    memory: int = checked["memory_mib"] or usual.memory_mib
    for argument in ("gpus", "max_batch"):
        if argument in given and not gpu:
            errors.say(argument, "is for tier 'gpu'; leave it out, or set tier to 'gpu'")
    if not gpu:
        return Size(cpus, memory, 0, "", flavor, 0)
    resource = _gpu_resource(flavor)
    if resource.endswith(".shared") and placed and placed.data_class == "restricted":
        errors.add(
            "flavor", flavor, "a whole GPU or a MIG slice, where data_class is 'restricted'",
            "pods that share a GPU by time-slicing share its memory unprotected",
        )  # fmt: skip
    return Size(cpus, memory, checked["gpus"], resource, flavor, checked["max_batch"])


def _gpu_resource(flavor: str) -> str:
    """What the device plugin calls a GPU of this flavour, or the part of one that it names."""
    if found := _MIG.search(flavor):
        return f"nvidia.com/{found[1]}"
    return TIME_SLICE if "-time-slicing-" in flavor else GPU


def _operation(
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    gpu: bool,
    grpc: bool,
    errors: ArgumentErrors,
) -> Operation:
    names: dict[str, str] = {}
    for argument in ("priority_class", "audit_claim"):
        names[argument] = checked[argument] or ""
        if names[argument] and not OBJECT.match(names[argument]):
            errors.add(argument, names[argument], "the name of an object in the cluster")
    return Operation(
        priority_class=names["priority_class"],
        audit_claim=names["audit_claim"],
        start_seconds=checked["start_seconds"] or _USUAL[gpu].start_seconds,
        drain_seconds=checked["drain_seconds"],
        max_body_mib=_max_body_mib(checked["max_body_mib"], grpc, errors),
        max_rows=checked["max_rows"],
        max_tokens=checked["max_tokens"],
        tokens_per_minute=_of_language("tokens_per_minute", checked, errors),
        keep_seconds=_of_language("keep_seconds", checked, errors),
    )


def _of_language(name: str, checked: Mapping[str, Any], errors: ArgumentErrors) -> int | None:
    """A number that is of texts: nothing is said of it where a model has no tokens."""
    asked: int | None = checked[name]
    if asked is not None and checked["kind"] != "language":
        errors.say(name, "is for kind: language; leave it out")
    return asked


def _max_body_mib(found: int, grpc: bool, errors: ArgumentErrors) -> int:
    most_by_grpc = int(bound("grpc", "max_body_bytes").high) // 2**20
    if grpc and found > most_by_grpc:
        errors.add(
            "max_body_mib", found, f"a whole number from 1 to {most_by_grpc} where grpc is true",
            "a message of gRPC goes from one process to another in one piece",
        )  # fmt: skip
    return found


def _drift(given: Mapping[str, Any], errors: ArgumentErrors) -> Mapping[str, Any]:
    asked = options("drift", given.get("drift", {}), DriftArgs, errors)
    return errors.checked_only(asked, DriftArgs, at="drift.")


class InferenceService(pulumi.ComponentResource):
    """Serves a signed, encrypted model package to those who may call it.

    ::

        InferenceService("credit-risk", {
            "distribution": "eks", "region": "me-central-1", "registry": "registry.acme.example",
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "confidential",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "model": "credit-risk", "package_name": "models/credit-risk",
            "versions": [
                {"version": 7, "weight": 90,
                 "package_digest": "sha256:…", "keys_digest": "sha256:…"},
                {"version": 8, "weight": 10, "header": "next",
                 "package_digest": "sha256:…", "keys_digest": "sha256:…"},
            ],
            "key_secret": "acme/model-keys", "token_issuer": "https://id.acme.example",
            "callers": [{"namespace": "acme-apps", "service_account": "scoring"}],
        })

    For each version a `Deployment` and a `Service` that keep their name for good, a KEDA
    `ScaledObject` and a `PodDisruptionBudget`; for all of them an `HTTPRoute` with the shares and
    headers, certificates, the key ring through External Secrets, a `NetworkPolicy` that lets in
    only the gateway, Prometheus and the named callers, and in the mesh strict mutual TLS with an
    `AuthorizationPolicy` by identity. A rollback is the weights of before.

    With a ``canary`` the versions are those that two aliases of the registry stand for, and a
    `Job` may compare both by what their servers counted, and let one alias stand for the better.

    With a ``watch`` a `Deployment` of one pod looks at what the replicas report of drift.

    A replica checks the package's signature and every byte before it starts. The server opens the
    model in its own memory; in the GPU tier it is opened into a memory file system that it shares
    with Triton, or vLLM for a language model, which listens on the loopback interface only, behind
    Falaj's server.
    """

    url: str
    """Address of the leading version within the cluster."""
    namespace: str
    """Namespace of the replicas."""

    def __init__(
        self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("InferenceService"), name, engine_inputs(args), opts)
        made = declare(self, name, _replicas(spec))
        deployments = [each for key, each in made.items() if key.startswith("Deployment/")]
        # Requests go to another version, or by other shares, once what is to answer them is ready.
        declare(self, name, routing(spec), depends_on=deployments)
        declare(self, name, scaling(spec))
        if spec.judge is not None:
            declare(self, name, beside(spec, spec.judge))
            declare(
                self, name, [job(spec, spec.judge)], depends_on=deployments,
                replace_on_changes=["spec"], delete_before_replace=True,
            )  # fmt: skip
        if spec.watch is not None:
            declare(self, name, watching(spec, spec.watch), depends_on=deployments)
        self.url = f"https://{spec.host}:{PORT}"
        self.namespace = spec.namespace
        self.register_outputs({"url": self.url, "namespace": self.namespace})


def manifests(spec: InferenceServiceSpec) -> list[Manifest]:
    """The objects, what shuts the doors first."""
    judging = [*beside(spec, spec.judge), job(spec, spec.judge)] if spec.judge else []
    seeing = watching(spec, spec.watch) if spec.watch else []
    return [*_replicas(spec), *routing(spec), *scaling(spec), *judging, *seeing]


def _replicas(spec: InferenceServiceSpec) -> list[Manifest]:
    """The replicas, and what they need to start."""
    return [
        *isolation(spec),
        *secrets(spec),
        *(deployment(spec, version) for version in spec.versions),
    ]
