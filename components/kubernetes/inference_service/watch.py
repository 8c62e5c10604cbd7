"""Who watches drift of a service, outside of its servers: one pod beside them.

It sees what the servers report, by the certificate that Prometheus shows them, and tells. A run of
a pipeline it asks for, and makes none: it may change the one ConfigMap that the pipeline's starter
looks into (`Pipeline`'s ``on_drift``). Which version is served stays the stack's and the canary
judge's. What it remembers lies with the audit logs, so that no cool-down ends with a pod.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from falaj.components.catalogue.clusters import TRAINING_ENDING
from falaj.components.catalogue.pipelines import REQUESTS_ENDING
from falaj.components.kubernetes import _registry_access as registry
from falaj.components.kubernetes._key_ring import BASE
from falaj.components.kubernetes._objects import Manifest, format_number
from falaj.components.kubernetes._peers import api_server_egress, in_namespace, resolver_egress
from falaj.components.kubernetes._placed import PROTECTED, InCluster, check_secret_entry
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, USER, unprivileged_pod
from falaj.components.kubernetes._rights import account
from falaj.components.kubernetes._secrets import certificate, external_secret
from falaj.components.kubernetes._validation import options, private_ranges
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    RETRAIN,
    TELL,
    InferenceServiceSpec,
    Watch,
    WatchArgs,
)
from falaj.components.kubernetes.inference_service.deployment import (
    LOGS_VOLUME,
    OBSERVER,
    container,
    in_zones,
    observer_volume,
    resources,
)
from falaj.components.kubernetes.inference_service.network import (
    addresses,
    beside,
    server_ports,
    watch_labels,
    watch_name,
)
from falaj.components.kubernetes.inference_service.scaling import pod_monitor
from falaj.components.specification.argument_errors import ArgumentErrors

_AT: Final = "watch"
_ROLL_BACK: Final = "rollBack"
_NUMBERS: Final = ("interval_seconds", "cool_down_hours", "most_retrainings_per_week")
_WEBHOOK: Final = "webhook"
_GOES_WITH: Final[Mapping[str, Mapping[str, bool]]] = {
    RETRAIN: {"pipeline": True, "control_plane_cidrs": True},
    _WEBHOOK: {"webhook_cidrs": True, "webhook_secret": True, "webhook_authority": False},
}
"""Arguments by what they are for, each whether it is needed there."""


def checked_watch(
    given: Mapping[str, Any], placed: InCluster | None, *, watched: bool, errors: ArgumentErrors
) -> Watch | None:
    """The argument ``watch``; None where nobody is to watch.

    Args:
        given: the service's arguments.
        placed: where it is; None where that was refused.
        watched: whether its servers report drift.
        errors: gets what is wrong.
    """
    if given.get(_AT) is None:
        return None
    asked = options(_AT, given[_AT], WatchArgs, errors)
    found = errors.checked_only(asked, WatchArgs, at=f"{_AT}.")
    if not watched:
        errors.say(_AT, "needs reports on drift: leave drift.enabled out, or leave watch out")
    if not given.get("audit_claim"):
        errors.say(
            "audit_claim",
            "missing; needed with watch, which keeps there what it did: without it neither a "
            "cool-down nor a ceiling of retrainings would outlive its pod",
        )
    steps: tuple[str, ...] = tuple(dict.fromkeys(found["steps"]))
    if _ROLL_BACK in (asked.get("steps") or ()):
        errors.say(
            f"{_AT}.steps",
            f"{_ROLL_BACK} is for a stack of one machine: in a cluster a new version is tried as "
            "a canary, and canary.judge withdraws one that is worse",
        )
    elif not errors.has(f"{_AT}.steps") and TELL not in steps:
        errors.add(f"{_AT}.steps", ", ".join(steps), f"{TELL} as well, as what is done is told")
    for what, is_there in ((RETRAIN, RETRAIN in steps), (_WEBHOOK, bool(asked.get(_WEBHOOK)))):
        for key, needed in _GOES_WITH[what].items():
            if asked.get(key) and not is_there:
                errors.say(f"{_AT}.{key}", f"is for {what}; leave it out")
            elif needed and is_there and not asked.get(key):
                errors.say(f"{_AT}.{key}", f"missing; needed with {what}")
    ranges = {
        key: private_ranges(f"{_AT}.{key}", asked[key], errors) if key in asked else ()
        for key in ("control_plane_cidrs", "webhook_cidrs")
    }
    entry = str(asked.get("webhook_secret") or "")
    if entry:
        check_secret_entry(f"{_AT}.webhook_secret", entry, placed, errors)
    return Watch(
        steps=steps,
        numbers={key: found[key] for key in _NUMBERS},
        pipeline=found["pipeline"] or "",
        control_plane=ranges["control_plane_cidrs"],
        webhook=found["webhook"] or "",
        webhook_cidrs=ranges["webhook_cidrs"],
        webhook_entry=entry,
        webhook_authority=registry.certificates(
            f"{_AT}.webhook_authority", asked.get("webhook_authority"), errors
        ),
    )


def manifests(spec: InferenceServiceSpec, watch: Watch) -> list[Manifest]:
    """The pod, and what it needs: its account, its secrets, and whom it reaches."""
    name = watch_name(spec)
    found: list[Manifest] = [
        account(_metadata(spec, name)),
        _network_policy(spec, watch),
        # Of the version that most requests go to.
        addresses(_metadata(spec, name), spec.selector(spec.leading)),
    ]
    found += [_certificate(spec), _monitor(spec)]
    if watch.webhook_entry:
        about = _metadata(spec, f"{name}-webhook", PROTECTED)
        store = spec.access.secret_store
        found.append(external_secret(about, store, watch.webhook_entry, _KEY))
    if watch.webhook_authority:
        found.append({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(spec, f"{name}-authority", PROTECTED),
            "data": {_AUTHORITY: watch.webhook_authority},
        })  # fmt: skip
    return [*found, _deployment(spec, watch)]


def _metadata(
    spec: InferenceServiceSpec, name: str, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return beside(spec, name, watch_labels(spec), labels)


def _network_policy(spec: InferenceServiceSpec, watch: Watch) -> Manifest:
    """It reaches the replicas and what it tells or asks, and Prometheus reaches it."""
    replicas = {"podSelector": {"matchLabels": spec.selector()}}
    egress = [resolver_egress(), {"to": [replicas], "ports": server_ports(spec)}]
    if watch.pipeline:
        egress.append(api_server_egress(watch.control_plane))
    if watch.webhook:
        port = urlsplit(watch.webhook).port or 443
        egress.append({
            "to": [{"ipBlock": {"cidr": each}} for each in watch.webhook_cidrs],
            "ports": [{"port": port, "protocol": "TCP"}],
        })  # fmt: skip
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(spec, watch_name(spec)),
        "spec": {
            "podSelector": {"matchLabels": watch_labels(spec)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "from": [in_namespace(spec.access.monitoring_namespace)],
                    "ports": server_ports(spec),
                }
            ],
            "egress": egress,
        },
    }


_FIGURES: Final = f"{BASE}/tls"
_SIGNING: Final = f"{BASE}/webhook"
_KEY: Final = "webhook.key"
_AUTHORITY: Final = "webhook.pem"
_GRACE_SECONDS: Final = 60
"""What it is in the midst of, when it is told to end, takes a request or two."""


def _certificate(spec: InferenceServiceSpec) -> Manifest:
    """What it answers Prometheus with."""
    name = watch_name(spec)
    return certificate(
        _metadata(spec, f"{name}-tls"),
        {**spec.placed.labels("inference-service"), **PROTECTED},
        spec.access.certificate_issuer,
        name,
        names=[_host(spec)],
        usages=["server auth"],
    )


def _host(spec: InferenceServiceSpec) -> str:
    return f"{watch_name(spec)}.{spec.namespace}.svc"


def _monitor(spec: InferenceServiceSpec) -> Manifest:
    """Prometheus shows it the certificate that it shows the replicas."""
    about = _metadata(spec, watch_name(spec))
    return pod_monitor(spec, about, watch_labels(spec), host=_host(spec))


def _deployment(spec: InferenceServiceSpec, watch: Watch) -> Manifest:
    """One pod, which goes before the next one comes: they would have one folder."""
    about = _metadata(spec, watch_name(spec))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": about,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": watch_labels(spec)},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {
                    "labels": about["labels"],
                    "annotations": spec.placed.annotations(),
                },
                "spec": _pod(spec, watch),
            },
        },
    }


def _pod(spec: InferenceServiceSpec, watch: Watch) -> dict[str, Any]:
    name = watch_name(spec)
    mounts = {OBSERVER: "observer:ro", _FIGURES: "tls:ro", LOGS_VOLUME: "logs", "/tmp": "tmp"}  # noqa: S108
    volumes: list[dict[str, Any]] = [
        observer_volume(spec),
        {"name": "tls", "secret": {"secretName": f"{name}-tls", "defaultMode": 0o440}},
        {
            "name": "logs",
            "persistentVolumeClaim": {"claimName": spec.operation.audit_claim},
        },
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
    ]
    if watch.webhook_entry:
        mounts[_SIGNING] = "webhook:ro"
        secret = {"secretName": f"{name}-webhook", "defaultMode": 0o440}
        volumes.append({"name": "webhook", "secret": secret})
    if watch.webhook_authority:
        mounts[registry.TRUSTED] = "authority:ro"
        volumes.append({"name": "authority", "configMap": {"name": f"{name}-authority"}})
    watching = container(
        "watch", spec.images[INFERENCE_IMAGE], _command(spec, watch), mounts, resources(0.1, 256)
    )
    watching["ports"] = [{"name": "https", "containerPort": PORT, "protocol": "TCP"}]
    for mount in watching["volumeMounts"]:
        if mount["name"] == "logs":
            # Beside the replicas' folders, which are named after their pods.
            mount["subPath"] = f"{spec.name}/watch"
    watching["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return {
        "serviceAccountName": name,
        # It asks the API server for a pipeline's two ConfigMaps, or nothing at all.
        "automountServiceAccountToken": bool(watch.pipeline),
        "enableServiceLinks": False,
        "priorityClassName": spec.operation.priority_class,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": unprivileged_pod(fsGroup=USER),
        "nodeSelector": dict(spec.placed.node_selector),
        **in_zones(spec),
        "containers": [watching],
        "volumes": volumes,
    }


def _command(spec: InferenceServiceSpec, watch: Watch) -> list[str]:
    found = [
        "python", "-m", "falaj.workloads.watching", "watch",
        "--service", spec.name, "--model", spec.model,
        "--servers", f"{watch_name(spec)}.{spec.namespace}.svc:{PORT}",
        "--server-name", spec.host,
        "--observer", OBSERVER,
        # Below the volume's root, which belongs to the node and can't be made private.
        "--folder", f"{LOGS_VOLUME}/own",
        "--steps", ",".join(watch.steps),
    ]  # fmt: skip
    for key, value in watch.numbers.items():
        found += [f"--{key.replace('_', '-')}", format_number(value)]
    # A pod has private addresses.
    found += ["--metrics", f"0.0.0.0:{PORT}", "--metrics-tls", _FIGURES]
    if watch.pipeline:
        found += [
            "--pipeline", watch.pipeline,
            "--namespace", f"{spec.placed.tenant}{TRAINING_ENDING}",
            "--requests", f"{watch.pipeline}{REQUESTS_ENDING}",
        ]  # fmt: skip
    if watch.webhook:
        found += ["--webhook", watch.webhook, "--webhook-key", f"{_SIGNING}/{_KEY}"]
    if watch.webhook_authority:
        found += ["--webhook-authority", f"{registry.TRUSTED}/{_AUTHORITY}"]
    return found
