"""Where the pods of a job send its record: an MLflow server of one's own networks.

The process of rank 0 alone sends, beside the training (workloads/training/tracking.py), and what a
server that is away lacks is sent when the job runs again, or by ``track`` from where the run's
folder is mounted. A program of a team's own gets MLflow's variables and sends by itself. Nothing
but the named ranges or pods is opened to the job's pods, and Falaj's training refuses a name that
leads out of one's own networks once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Final, NotRequired, TypedDict, cast
from urllib.parse import urlsplit

from falaj.components.kubernetes import _registry_access as registry
from falaj.components.kubernetes._key_ring import BASE
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._peers import in_namespace
from falaj.components.kubernetes._placed import PROTECTED, InCluster, check_secret_entry
from falaj.components.kubernetes._secrets import external_secret
from falaj.components.kubernetes._validation import options, private_ranges
from falaj.components.kubernetes.gpu_queues.queues import BURST_QUEUE
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.limits import OBJECT, PORT
from falaj.components.specification.tracking import SERVER, TrackedArgs

_AT: Final = "tracking"
_FOLDER: Final = f"{BASE}/tracking"
_TOKEN: Final = "token"  # noqa: S105 - the name of a file
_AUTHORITY: Final = "authority.pem"
#: https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html
_ADDRESS: Final = "MLFLOW_TRACKING_URI"
_NAMED: Final = "MLFLOW_EXPERIMENT_NAME"
_TRUSTED: Final = "MLFLOW_TRACKING_SERVER_CERT_PATH"
_SECRET: Final = "FALAJ_TRACKING_SECRET"  # noqa: S105 - the name of a variable
"""Where a program of a team's own finds the file of the token: MLflow has no variable of one."""
_VARIABLES: Final = frozenset({_ADDRESS, _NAMED, _TRUSTED, _SECRET})


class TrackingArgs(TypedDict):
    """An MLflow tracking server that a job's pods send its record to."""

    server: Annotated[str, SERVER]
    """Its address, over TLS."""
    experiment: NotRequired[Annotated[str, SameAs(TrackedArgs, "experiment")]]
    cidrs: NotRequired[list[str]]
    """Private ranges that it is in. Needed unless ``namespace`` is given."""
    namespace: NotRequired[Annotated[str, OBJECT]]
    """Namespace of the cluster that its pods are in, instead of ``cidrs``."""
    pod_port: NotRequired[Annotated[int, PORT]]
    """With ``namespace``: the port of its pods, where its Service has another one than they.
    Default: that of ``server``."""
    secret: NotRequired[str]
    """Entry of the secret store, named after the tenant, with a token or ``user:password``, which
    pods have as a file and no other place. Default: the server asks nobody."""
    authority: NotRequired[str]
    """Certificates (PEM) of who signed the server's. Default: those that the image trusts."""


@dataclass(frozen=True)
class Tracking:
    """The arguments of `TrackingArgs`, checked."""

    server: str
    experiment: str
    cidrs: tuple[str, ...]
    namespace: str
    """Empty where ``cidrs`` are given."""
    port: int
    """That a policy opens."""
    entry: str
    """Empty: the server asks nobody."""
    store: str
    authority: str
    """PEM; empty for those that the image trusts."""


def checked(
    given: Mapping[str, Any], store: str, placed: InCluster | None, errors: ArgumentErrors
) -> Tracking | None:
    """The argument ``tracking``; None where nothing is sent.

    Args:
        given: the component's arguments.
        store: the `ClusterSecretStore`.
        placed: where its pods are; None where that was refused.
        errors: gets what is wrong.
    """
    if given.get(_AT) is None:
        return None
    asked = options(_AT, given[_AT], TrackingArgs, errors)
    before = errors.count
    found = errors.checked_only(asked, TrackingArgs, at=f"{_AT}.")
    if given.get("queue") == BURST_QUEUE:
        errors.say(
            _AT,
            f"can't be had in queue {BURST_QUEUE!r}: neither the way to the server nor its secret "
            "is sent along",
        )
    for name in sorted(_VARIABLES & _names(given.get("env"))):
        errors.say(f"env[{name!r}]", f"is set by {_AT}; leave it out")
    host, port = "", 443
    if errors.count == before:
        host, port = _host(found["server"], errors)
    ranges: tuple[str, ...] = ()
    if (found["namespace"] is None) == ("cidrs" not in asked):
        errors.say(
            f"{_AT}.cidrs",
            "name where the server is: either its private ranges, or with namespace that of its "
            "pods in this cluster",
        )
    elif "cidrs" in asked:
        ranges = private_ranges(f"{_AT}.cidrs", asked["cidrs"], errors)
        if errors.count == before and not _is_in(host, ranges):
            errors.add(f"{_AT}.server", found["server"], f"a host in {', '.join(ranges)}")
    if found["pod_port"] is not None and found["namespace"] is None:
        errors.say(
            f"{_AT}.pod_port", "is of pods in this cluster; leave it out, or give namespace"
        )
    entry, authority = str(found["secret"] or ""), asked.get("authority")
    # What is no text at all was refused above, and is told once.
    if not errors.has(f"{_AT}.secret"):
        check_secret_entry(f"{_AT}.secret", entry, placed, errors)
    if errors.has(f"{_AT}.authority"):
        authority = None
    return Tracking(
        server=str(found["server"]),
        experiment=str(found["experiment"] or ""),
        cidrs=ranges,
        namespace=found["namespace"] or "",
        port=found["pod_port"] or port,
        entry=entry,
        store=store,
        authority=registry.certificates(f"{_AT}.authority", authority, errors),
    )


def needs_store(given: Mapping[str, Any]) -> bool:
    """Whether what was given has a secret, so that a secret store may be named."""
    asked: object = given.get(_AT)
    return isinstance(asked, Mapping) and bool(cast(Mapping[str, object], asked).get("secret"))


def _names(env: object) -> set[str]:
    return set(cast(Mapping[str, object], env)) if isinstance(env, Mapping) else set()


def _host(server: str, errors: ArgumentErrors) -> tuple[str, int]:
    """Host and port of the server's address."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError as error:
        errors.add(f"{_AT}.server", server, SERVER, str(error))
        return "", 443
    if parts.scheme != "https":
        errors.add(
            f"{_AT}.server", server, "an address that starts with https://",
            "a pod has no server on its loopback interface",
        )  # fmt: skip
    return host, port


def _is_in(host: str, ranges: tuple[str, ...]) -> bool:
    """Whether an address is in one of the ranges; a name's are found by the pods."""
    try:
        address = ip_address(host)
    except ValueError:
        return True
    return any(address in ip_network(each, strict=False) for each in ranges)


def egress(tracking: Tracking) -> dict[str, Any]:
    """The way out to the server."""
    to = [{"ipBlock": {"cidr": each}} for each in tracking.cidrs]
    return {
        "to": [in_namespace(tracking.namespace)] if tracking.namespace else to,
        "ports": [{"port": tracking.port, "protocol": "TCP"}],
    }


def object_name(run: str) -> str:
    """Name of the Secret and of the ConfigMap that stand beside a job for it."""
    return f"{run}-tracking"


def manifests(about: registry.About, tracking: Tracking) -> list[Manifest]:
    """The token that External Secrets brings, and the server's authority.

    Args:
        about: makes their metadata.
        tracking: the server.
    """
    found: list[Manifest] = []
    if tracking.entry:
        secret = about("", labels=PROTECTED)
        found.append(external_secret(secret, tracking.store, tracking.entry, _TOKEN))
    if tracking.authority:
        found.append({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": about("", labels=PROTECTED),
            "data": {_AUTHORITY: tracking.authority},
        })  # fmt: skip
    return found


def add_files(pod: dict[str, Any], run: str, tracking: Tracking) -> None:
    """Add token and authority to a pod's template, as files.

    Args:
        pod: the template, which is changed.
        run: the job's name.
        tracking: the server.
    """
    sources: list[dict[str, Any]] = []
    if tracking.entry:
        sources.append({"secret": {"name": object_name(run)}})
    if tracking.authority:
        sources.append({"configMap": {"name": object_name(run)}})
    if not sources:
        return
    (container,) = pod["spec"]["containers"]
    mount = {"name": "tracking", "mountPath": _FOLDER, "readOnly": True}
    container["volumeMounts"].append(mount)
    projected = {"sources": sources, "defaultMode": 0o440}
    pod["spec"]["volumes"].append({"name": "tracking", "projected": projected})


def arguments(tracking: Tracking | None) -> list[str]:
    """Options of Falaj's training for it."""
    if tracking is None:
        return []
    found = ["--tracking", tracking.server]
    if tracking.experiment:
        found += ["--tracking-experiment", tracking.experiment]
    if tracking.entry:
        found += ["--tracking-secret", f"{_FOLDER}/{_TOKEN}"]
    if tracking.authority:
        found += ["--tracking-authority", f"{_FOLDER}/{_AUTHORITY}"]
    return found


def variables(tracking: Tracking) -> dict[str, str]:
    """What tells a program of a team's own of it."""
    found = {_ADDRESS: tracking.server}
    if tracking.experiment:
        found[_NAMED] = tracking.experiment
    if tracking.entry:
        found[_SECRET] = f"{_FOLDER}/{_TOKEN}"
    if tracking.authority:
        found[_TRUSTED] = f"{_FOLDER}/{_AUTHORITY}"
    return found
