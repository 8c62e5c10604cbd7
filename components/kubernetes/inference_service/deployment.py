"""The replicas of one version: their files, what their containers run, and their placement.

In the GPU tier Triton runs the model, or vLLM one of language, and answers nobody but the proxy
beside it.
"""

from typing import Any, Final

from falaj.components.catalogue.clusters import ZONE_LABEL
from falaj.components.kubernetes._key_ring import (
    BASE,
    KEY_RING,
    KEYS,
    SECRET,
    packed_secret,
    unpack_command,
    volumes,
)
from falaj.components.kubernetes._objects import Manifest, format_number
from falaj.components.kubernetes._placed import PROTECTED
from falaj.components.kubernetes._pods import (
    INFERENCE_IMAGE,
    PACKAGE_KEYS,
    USER,
    unprivileged,
    unprivileged_pod,
)
from falaj.components.kubernetes._secrets import certificate
from falaj.components.kubernetes.inference_service import engine
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    SCRAPER,
    EngineSettings,
    InferenceServiceSpec,
    Version,
)
from falaj.components.specification.node_pools import FLAVOR, GPU_TAINT

TLS: Final = f"{BASE}/tls"
TOKENS: Final = f"{BASE}/tokens"
TOKEN_KEYS: Final = "tokens.jwks.json"  # noqa: S105 - public keys, and a file name
WORK: Final = f"{BASE}/work"
"""The sealed package and what the server writes."""
OBSERVER: Final = f"{BASE}/observer"
"""The certificate that may observe, for who looks at the servers from outside of them."""
REGISTRY: Final = f"{WORK}/registry"
CONFIG: Final = f"{WORK}/service.json"
STATE: Final = f"{WORK}/server/state.json"
LOGS_VOLUME: Final = f"{BASE}/logs"
LOGS: Final = f"{LOGS_VOLUME}/server"
"""Below the volume's root, which belongs to the node and can't be made private."""
PACKAGE: Final = "/package"
"""Where the sealed package comes from; for the container that checks it only."""
WRAPPED_KEYS: Final = "keys.json"
MODELS: Final = f"{BASE}/models"
"""In memory, in the GPU tier: Triton's repository of models, or what vLLM loads."""
#: What the server's own requests use is left; who may see or change models, or map memory of
#: others, needs a header that nobody has. Shared memory was the root of CVE-2025-23319, -23320 and
#: -23334. https://github.com/triton-inference-server/server/blob/main/docs/customization_guide/
#: inference_protocols.md#limit-endpoint-access-beta
_CLOSED: Final = "model-repository,shared-memory,trace,logging"


def triton(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The container: it starts before the proxy and ends after it.

    It has no probes: the kubelet can't reach the loopback interface, and the proxy's readiness is
    Triton's.
    """
    size = spec.size
    gpus = {size.gpu_resource.replace("/", "__"): size.gpus}
    # What lies in the memory file system counts as memory of who wrote it, or of the pod.
    memory = size.memory_mib + spec.package.model_mib
    found = container(
        "triton", spec.images["triton"], command(spec),
        {MODELS: "models:ro", "/tmp": "tmp"},  # noqa: S108
        resources(size.cpus - min(1.0, size.cpus / 2), memory, 256, **gpus),
    )  # fmt: skip
    return {**found, "restartPolicy": "Always"}


def command(spec: InferenceServiceSpec) -> list[str]:
    """Triton's command line: one model, loopback only, nothing that changes or shares anything."""
    return [
        "tritonserver",
        f"--model-repository={MODELS}/repository",
        "--model-control-mode=explicit",
        f"--load-model={spec.model}",
        "--disable-auto-complete-config",
        "--exit-on-error=true",
        "--allow-http=true",
        "--http-address=127.0.0.1",
        "--http-port=8000",
        # A key that is drawn anew with each start would need a shell; this one opens nothing that
        # is reachable from outside of the pod.
        f"--http-restricted-api={_CLOSED}:falaj-closed=closed",
        "--allow-grpc=false",
        "--allow-metrics=false",
        f"--exit-timeout-secs={spec.operation.drain_seconds}",
    ]


def vllm(spec: InferenceServiceSpec, settings: EngineSettings) -> dict[str, Any]:
    """The same of a language model."""
    size = spec.size
    memory = size.memory_mib + spec.package.model_mib + engine.SHARED_MIB
    needed = resources(
        size.cpus - min(1.0, size.cpus / 2), memory, engine.SCRATCH_MIB,
        **{size.gpu_resource.replace("/", "__"): size.gpus},
    )  # fmt: skip
    return engine.container(spec, settings, MODELS, needed)


UPSTREAM: Final = "http://127.0.0.1:8000"
"""Triton or vLLM, which only the proxy beside it can reach."""
#: Loading twice the package: the sealed bytes and the open ones.
_PREPARE_MIB: Final = 256


def observer_volume(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The volume ``observer``, for `OBSERVER`."""
    secret = {"secretName": f"{spec.name}-scraper", "defaultMode": 0o440}
    return {"name": "observer", "secret": secret}


def container(
    name: str, image: str, command: list[str], mounts: dict[str, str], resources: dict[str, Any]
) -> dict[str, Any]:
    """A container that may do nothing but what it is for.

    Args:
        name: its name.
        image: with its digest.
        command: program and arguments.
        mounts: volumes by where they are mounted; those that end in ``:ro`` read-only.
        resources: requests and limits.
    """
    return {
        "name": name,
        "image": image,
        "command": command,
        "env": [
            # Python's own way to say: no files beside the program's, output line by line.
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": resources,
        "securityContext": unprivileged(),
        "volumeMounts": [
            {
                "name": volume.removesuffix(":ro"),
                "mountPath": path,
                **({"readOnly": True} if volume.endswith(":ro") else {}),
            }
            for path, volume in mounts.items()
        ],
    }


def resources(cpus: float, memory_mib: int, scratch_mib: int = 64, **more: int) -> dict[str, Any]:
    """Requests and limits; memory isn't promised twice, so that no replica is killed for it."""
    core = {"memory": f"{memory_mib}Mi", "ephemeral-storage": f"{scratch_mib}Mi"}
    extended = {name.replace("__", "/"): str(count) for name, count in more.items()}
    cpu = {"cpu": f"{round(cpus * 1000)}m"}
    return {"requests": {**cpu, **core, **extended}, "limits": {**cpu, **core, **extended}}


def preparing(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    """The containers that run before the server: keys, package, configuration."""
    image = spec.images[INFERENCE_IMAGE]
    mib = spec.package.model_mib
    small = resources(0.5, _PREPARE_MIB)
    checked = resources(1, _PREPARE_MIB + 2 * mib, 64 + mib)
    steps = [
        container(
            "keys", image, unpack_command(),
            {SECRET: "secret:ro", KEYS: "keys", "/tmp": "tmp"}, small,  # noqa: S108
        ),
        container(
            "package", image, package_command(spec, version),
            {
                PACKAGE: "package:ro", **_keys_mount(version), KEYS: "keys", WORK: "work",
                "/tmp": "tmp",  # noqa: S108
            },
            checked,
        ),
    ]  # fmt: skip
    if spec.tier == "gpu":
        steps.append(
            container(
                "unseal", image, unseal_command(spec, version),
                {
                    KEYS: "keys", WORK: "work:ro", MODELS: "models",
                    "/tmp": "tmp",  # noqa: S108
                },
                resources(1, _PREPARE_MIB + (5 if spec.engine else 3) * mib),
            )
        )  # fmt: skip
    steps.append(
        container(
            "configure", image, configure_command(spec),
            {WORK: "work", "/tmp": "tmp"},  # noqa: S108
            small,
        )
    )  # fmt: skip
    return steps


def _keys_mount(version: Version) -> dict[str, str]:
    return {PACKAGE_KEYS: "package-keys:ro"} if version.keys_digest else {}


def token_mount(spec: InferenceServiceSpec) -> dict[str, str]:
    """The mount of the issuer's public keys, where they aren't the key ring's."""
    return {TOKENS: "tokens:ro"} if spec.access.token_keys else {}


def package_command(spec: InferenceServiceSpec, version: Version) -> list[str]:
    """Take the sealed package over, once every byte of it is what was signed."""
    folder = PACKAGE
    if spec.package.kind == "claim":
        parts = (folder, spec.package.path, spec.model, "versions", str(version.number))
        folder = "/".join(part for part in parts if part)
    return _python(
        "registry", "import", "--registry", REGISTRY, "--model", spec.model,
        "--version", str(version.number), "--from", folder, "--keyring", KEY_RING,
        *(["--keys", f"{PACKAGE_KEYS}/{WRAPPED_KEYS}"] if version.keys_digest else []),
    )  # fmt: skip


def unseal_command(spec: InferenceServiceSpec, version: Version) -> list[str]:
    """Open the package into memory, as Triton's repository or as what vLLM loads."""
    which = (
        "registry", "unseal", "--registry", REGISTRY, "--model", spec.model,
        "--version", str(version.number), "--keyring", KEY_RING,
    )  # fmt: skip
    if spec.engine is not None:
        length = spec.engine.max_model_length
        most = ("--max-length", str(length)) if length else ()
        return _python(*which, "--to", MODELS, "--layout", "vllm", *most)
    return _python(
        *which,
        "--to", f"{MODELS}/repository", "--layout", "triton",
        "--max-batch", str(spec.size.max_batch), "--gpus", str(spec.size.gpus),
    )  # fmt: skip


def configure_command(spec: InferenceServiceSpec) -> list[str]:
    """Write the server's configuration, checked."""
    access, operation = spec.access, spec.operation
    jwks = f"{TOKENS}/{TOKEN_KEYS}" if access.token_keys else (
        f"{KEY_RING}/{TOKEN_KEYS}"
    )  # fmt: skip
    command = [
        *("--config", CONFIG, "--name", spec.name, "--model", spec.model),
        *("--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104 - a pod has private addresses
        *("--registry", REGISTRY, "--keyring", KEY_RING),
        *("--certificate", f"{TLS}/tls.crt", "--private-key", f"{TLS}/tls.key"),
        *("--client-ca", f"{TLS}/ca.crt", "--client", f"{SCRAPER}=observe"),
        *("--issuer", access.token_issuer, "--audience", access.token_audience, "--jwks", jwks),
        *("--logs", LOGS, "--state", STATE, "--cpus", format_number(spec.size.cpus)),
        *("--max-body-bytes", str(operation.max_body_mib * 1024 * 1024)),
        *("--max-rows", str(min(operation.max_rows, spec.size.max_batch or operation.max_rows))),
        *("--max-tokens", str(operation.max_tokens)),
        *(
            ("--tokens-per-minute", str(operation.tokens_per_minute))
            if operation.tokens_per_minute is not None
            else ()
        ),
        *(
            ("--keep-seconds", str(operation.keep_seconds))
            if operation.keep_seconds is not None
            else ()
        ),
        *("--drain-seconds", str(operation.drain_seconds)),
        *("--load-seconds", str(operation.start_seconds)),
        *_grpc_options(spec),
        *(["--batching"] if spec.batching else []),
        *_drift_options(spec),
    ]
    if access.overflow_from:
        command += ["--client", f"{access.overflow_from}=predict"]
    if spec.tier == "gpu":
        command += ["--upstream", UPSTREAM]
    if spec.engine is not None:
        command += ["--upstream-protocol", "completions"]
        if spec.engine.max_model_length:
            # What follows a full window isn't looked back on in it.
            command += ["--upstream-context", str(spec.engine.max_model_length - 1)]
    if spec.overflow is not None:
        target = f"{spec.overflow.to}-v{spec.overflow.version}.{spec.namespace}.svc"
        command += ["--overflow-to", f"https://{target}:{PORT}"]
        command += ["--overflow-above-ms", format_number(spec.overflow.above_ms)]
        command += ["--overflow-timeout-ms", format_number(spec.overflow.timeout_ms)]
        command += ["--overflow-version", str(spec.overflow.version)]
    return _python("inference", "configure", *command)


def _grpc_options(spec: InferenceServiceSpec) -> list[str]:
    if not spec.grpc:
        return ["--no-grpc"]
    return ["--grpc", "--grpc-memory-bytes", str(grpc_mib(spec) * 1024 * 1024)]


def _drift_options(spec: InferenceServiceSpec) -> list[str]:
    drift = spec.drift
    if not drift["enabled"]:
        return ["--no-drift"]
    return [
        *("--drift-window-rows", str(drift["window_rows"])),
        *("--drift-window-seconds", str(drift["window_seconds"])),
        *("--drift-alpha", str(drift["alpha"])),
    ]


def serve_command() -> list[str]:
    """Serve until told to leave."""
    return _python("inference", "serve", "--config", CONFIG)


def _python(module: str, *arguments: str) -> list[str]:
    return ["python", "-m", f"falaj.workloads.{module}", *arguments]


LEAVING_SECONDS: Final = 10
"""Before a replica that ends is told so: by then every proxy has stopped sending to it."""
_LOGS_MIB: Final = 768
"""Access logs rotate at 5 files of 128 MiB (falaj.workloads.inference.process.logs); beside them
the audit log."""
_PROBE_SECONDS: Final = 5
_GRPC_MIB: Final = 256
"""Of a gRPC process: itself, and many small messages."""
_GRPC_BODIES: Final = 16
"""Two of the largest messages at once: while it is translated, one takes up to eight times its
size."""


def grpc_mib(spec: InferenceServiceSpec) -> int:
    """What a worker's gRPC process can't go beyond, in MiB."""
    return _GRPC_MIB + _GRPC_BODIES * spec.operation.max_body_mib


def worker_count(spec: InferenceServiceSpec) -> int:
    """Workers of a replica's server, as it makes them of its ``--cpus``."""
    return 1 if spec.tier == "gpu" else max(1, int(float(format_number(spec.size.cpus))))


def deployment(spec: InferenceServiceSpec, version: Version) -> Manifest:
    """The Deployment of one version; how many replicas it has is the autoscaler's business."""
    selector = spec.selector(version)
    metadata = spec.metadata(spec.of(version), version)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": spec.operation.start_seconds + 600,
            "selector": {"matchLabels": selector},
            # A new replica is ready before an old one goes.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": metadata["labels"],
                    "annotations": spec.placed.annotations(),
                },
                "spec": pod(spec, version),
            },
        },
    }


def pod(spec: InferenceServiceSpec, version: Version) -> dict[str, Any]:
    """The specification of a replica."""
    gpu = spec.tier == "gpu"
    steps = preparing(spec, version)
    if gpu:
        steps.append(triton(spec) if spec.engine is None else vllm(spec, spec.engine))
    found: dict[str, Any] = {
        "serviceAccountName": spec.access.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": spec.operation.priority_class,
        "terminationGracePeriodSeconds": LEAVING_SECONDS + spec.operation.drain_seconds + 15,
        "securityContext": unprivileged_pod(fsGroup=USER),
        "nodeSelector": {
            **spec.placed.node_selector,
            **({FLAVOR: spec.size.flavor} if spec.size.flavor else {}),
        },
        "topologySpreadConstraints": _spread(spec, version),
        "initContainers": steps,
        "containers": [_server(spec)],
        "volumes": _volumes(spec, version),
    }
    found |= in_zones(spec)
    if gpu:
        taint = GPU_TAINT
        found["tolerations"] = [{"key": taint.key, "operator": "Exists", "effect": taint.effect}]
    return found


def in_zones(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The affinity of a pod to the zones that were named; empty where none was."""
    if not spec.placed.zones:
        return {}
    zones = {"key": ZONE_LABEL, "operator": "In", "values": list(spec.placed.zones)}
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [zones]}]
                }
            }
        }
    }


def _server(spec: InferenceServiceSpec) -> dict[str, Any]:
    size, gpu = spec.size, spec.tier == "gpu"
    # In the GPU tier the server hands tensors on: a core of the replica's is enough for it.
    cpus = min(1.0, size.cpus / 2) if gpu else size.cpus
    memory = 1024 + 8 * spec.operation.max_body_mib if gpu else size.memory_mib
    memory += worker_count(spec) * grpc_mib(spec) if spec.grpc else 0
    # The vocabulary lies in the model's graph, which is opened for it.
    memory += 3 * spec.package.model_mib if spec.engine is not None else 0
    mounts = {
        KEYS: "keys", TLS: "tls:ro", **token_mount(spec), WORK: "work",
        LOGS_VOLUME: "logs", "/tmp": "tmp",  # noqa: S108
    }  # fmt: skip
    scratch = 128 + spec.package.model_mib + (0 if spec.operation.audit_claim else _LOGS_MIB)
    found = container(
        "server", spec.images[INFERENCE_IMAGE], serve_command(), mounts,
        resources(cpus, memory, scratch),
    )  # fmt: skip
    if spec.operation.audit_claim:
        found["env"].append(
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        )
        for mount in found["volumeMounts"]:
            if mount["name"] == "logs":
                mount["subPathExpr"] = f"{spec.name}/$(POD_NAME)"
    attempts = -(-spec.operation.start_seconds // _PROBE_SECONDS)
    return {
        **found,
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("ready", period=_PROBE_SECONDS, failures=attempts),
        "readinessProbe": _probe("ready", period=5, failures=2),
        "livenessProbe": _probe("live", period=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVING_SECONDS}}},
    }


def _probe(what: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/v2/health/{what}", "port": "https", "scheme": "HTTPS"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _spread(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    """Over zones, where nodes have one, and over nodes where possible.

    A rollout counts by itself (``matchLabelKeys``), else old replicas would push new ones into one
    zone. GPUs are often sold in one zone only, so there the spread is a wish.

    Where nodes carry no zone not even a wish names it: no pod gets on a node that lacks the label
    of a strict constraint, and a node that lacks that of any wish isn't scored for the others.
    pkg/scheduler/framework/plugins/podtopologyspread/{filtering,scoring}.go of Kubernetes
    """
    wishes = [("kubernetes.io/hostname", "ScheduleAnyway")]
    if spec.placed.has_zones:
        strict = "ScheduleAnyway" if spec.tier == "gpu" else "DoNotSchedule"
        wishes.insert(0, (ZONE_LABEL, strict))
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": unsatisfiable,
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": spec.selector(version)},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key, unsatisfiable in wishes
    ]


def _volumes(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    mib = spec.package.model_mib
    secret, keys = volumes(f"{spec.name}-keys")
    found: list[dict[str, Any]] = [
        # The kubelet keeps secrets in memory.
        secret,
        {"name": "tls", "secret": {"secretName": f"{spec.name}-tls", "defaultMode": 0o440}},
        keys,
        _memory("tmp", 32),
        {"name": "work", "emptyDir": {"sizeLimit": f"{64 + mib}Mi"}},
        {"name": "package", **_package(spec, version)},
    ]
    if version.keys_digest:
        found.append({"name": "package-keys", **_image(spec, version.keys_digest)})
    if spec.operation.audit_claim:
        claim = {"claimName": spec.operation.audit_claim}
        found.append({"name": "logs", "persistentVolumeClaim": claim})
    else:
        found.append({"name": "logs", "emptyDir": {"sizeLimit": f"{_LOGS_MIB}Mi"}})
    if spec.access.token_keys:
        found.append({"name": "tokens", "configMap": {"name": f"{spec.name}-tokens"}})
    if spec.tier == "gpu":
        found.append(_memory("models", 64 + mib))
    if spec.engine is not None:
        found += engine.volumes()
    return found


def _memory(name: str, mib: int) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": f"{mib}Mi"}}


def _package(spec: InferenceServiceSpec, version: Version) -> dict[str, Any]:
    package = spec.package
    if package.kind == "image":
        return _image(spec, version.package_digest)
    return {"persistentVolumeClaim": {"claimName": package.name, "readOnly": True}}


def _image(spec: InferenceServiceSpec, digest: str) -> dict[str, Any]:
    """A volume of an image in the packages' repository."""
    reference = spec.placed.image(f"{spec.package.name}@{digest}")
    return {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}}


# Certificates and keys: what replicas prove themselves with and open their package with.


def secrets(spec: InferenceServiceSpec) -> list[Manifest]:
    """The certificates of the servers and of Prometheus, the key ring, the issuer's keys."""
    found = [
        _certificate(spec, "tls", spec.name, _names(spec), ["server auth", "client auth"]),
        _certificate(spec, "scraper", SCRAPER, [], ["client auth"]),
        packed_secret(
            _protected(spec, f"{spec.name}-keys"),
            spec.access.secret_store,
            spec.access.key_secret,
        ),
    ]
    if spec.access.token_keys:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": _protected(spec, f"{spec.name}-tokens"),
                "data": {TOKEN_KEYS: spec.access.token_keys},
            }
        )
    return found


def _protected(spec: InferenceServiceSpec, name: str) -> dict[str, Any]:
    """Metadata of what deployers and the tenant's administrators don't change."""
    found = spec.metadata(name)
    return {**found, "labels": {**found["labels"], **PROTECTED}}


def _names(spec: InferenceServiceSpec) -> list[str]:
    """The names that clients in the cluster know the servers by."""
    services = [spec.name, *(spec.of(version) for version in spec.versions)]
    hosts = [f"{each}.{spec.namespace}.svc" for each in services]
    return [*hosts, *(f"{host}.cluster.local" for host in hosts)]


def _certificate(
    spec: InferenceServiceSpec, what: str, common_name: str, names: list[str], usages: list[str]
) -> Manifest:
    return certificate(
        spec.metadata(f"{spec.name}-{what}"),
        {**spec.placed.labels("inference-service"), **PROTECTED},
        spec.access.certificate_issuer,
        common_name,
        names=names,
        usages=usages,
    )
