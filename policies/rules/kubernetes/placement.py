"""Where pods, volumes and nodes may be, and what the scheduler goes by.

In allowed regions, and said so; off nodes that are kept for others; by what containers say they
need; restricted data on GPUs that nobody shares, on machines that nobody takes away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import (
    GPU_TAINT,
    IMAGE_PREFETCH,
    PREFETCH_LIMITS,
    PREFETCH_PRIORITY,
    REGION_KEYS,
    SHARED_GPU,
    SYSTEM_TAINTS,
    ZONE_KEYS,
)
from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Settings,
    Severity,
    format_path,
    format_value,
    get,
    is_false,
    is_list,
    is_true,
    is_unknown,
    items,
    number,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Level,
    Manifest,
    all_manifests,
    is_bundle,
    is_object,
    is_system,
    manifests,
)
from falaj.policies.reading.pods import (
    TEMPLATE_KINDS,
    Container,
    Pod,
    each_container,
    each_pod,
    pods,
    pods_of,
)
from falaj.wire.documents import is_mapping, mapping

# What objects demand of nodes: labels by selector, affinity, requirement or topology.
#
# https://kubernetes.io/docs/reference/labels-annotations-taints/

PLACE_KEYS: Final = REGION_KEYS | ZONE_KEYS
#: Azure's nodes bear their location and the zone's number; ``0`` is a node of no zone.
_AZURE_ZONE: Final = re.compile(r"([a-z0-9]+)-\d")
_NOT_SEARCHED: Final = frozenset({"status", "openAPIV3Schema", "annotations"})


@dataclass(frozen=True)
class NodeRequirement:
    """One label that nodes must have, with the values that it may have."""

    at: str
    """Path of the values in the object."""
    key: str
    operator: str
    values: tuple[tuple[str, Any], ...]
    """Each value (a text or an Unknown) with its path."""

    @property
    def pins(self) -> bool:
        """Whether it names the values that are allowed; NotIn and Exists name none."""
        return self.operator == "In" and bool(self.values)


def requirements(manifest: Manifest, keys: frozenset[str]) -> Iterator[NodeRequirement]:
    """Everything in an object that demands one of some labels, wherever it stands."""
    skips = frozenset[str]() if manifest.kind == "Node" else frozenset({"metadata"})
    yield from _walk(manifest.body, (), keys, skips)


def _walk(
    value: Any, path: Path, keys: frozenset[str], skips: frozenset[str] = frozenset()
) -> Iterator[NodeRequirement]:
    if is_mapping(value):
        if path and is_object(value):
            return
        if (found := _expression(value, path, keys)) is not None:
            yield found
            return
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in keys:
                yield NodeRequirement(format_path(at), name, "In", ((format_path(at), each),))
            elif name not in skips and name not in _NOT_SEARCHED:
                yield from _walk(each, at, keys)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _walk(each, (*path, index), keys)


def _expression(
    value: Mapping[str, Any], path: Path, keys: frozenset[str]
) -> NodeRequirement | None:
    key = text(value.get("key"))
    if key not in keys or not any(each in value for each in ("values", "operator", "value")):
        return None
    # Tolerations have one value, and Equal where requirements have In.
    name = "values" if "values" in value else "value"
    written = text(value.get("operator"))
    operator = "In" if written in {"", "Equal"} else written
    given, at = value.get(name), (*path, name)
    values = tuple(
        (format_path((*at, index)) if is_list(given) else format_path(at), each)
        for index, each in enumerate(items(given))
    )
    return NodeRequirement(format_path(at), key, operator, values)


def place_of_label(key: str, value: object) -> str:
    """The place that a node's region or zone label names, as ``azure/uaenorth``; else empty."""
    given = text(value).lower()
    if key in ZONE_KEYS and (zone := _AZURE_ZONE.fullmatch(given)):
        return place_named(zone[1])
    return place_named(given)


def is_allowed(key: str, value: object, settings: Settings) -> bool:
    """Whether a node's region or zone label names an allowed place or one of one's own sites."""
    return place_of_label(key, value) in settings.allowed_places or settings.is_site(text(value))


def is_pinned(pod: Pod, settings: Settings) -> bool | None:
    """Whether a pod can only run in allowed places by its own demands; None where unseen.

    Terms of an affinity are alternatives: each of them must pin.
    """
    selector = pod.get("nodeSelector")
    terms = pod.get(
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    )
    own = _names_place(selector, settings)
    alternatives = [_names_place(get(each, "matchExpressions"), settings) for each in items(terms)]
    if own or (alternatives and all(alternatives)):
        return True
    unseen = is_unknown(selector) or is_unknown(terms) or own is None or None in alternatives
    return None if unseen else False


def _names_place(value: Any, settings: Settings) -> bool | None:
    """Whether a selector or a term's expressions name allowed places; None where unseen."""
    if is_unknown(value):
        return None
    unseen = False
    for each in _walk(value if value is not ABSENT else {}, (), PLACE_KEYS):
        if not each.pins:
            continue
        if any(is_unknown(given) for _, given in each.values):
            unseen = True
        elif all(is_allowed(each.key, given, settings) for _, given in each.values):
            return True
    return None if unseen else False


_ABROAD: Final = (
    "pdpl:22", "pdpl:23", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.23",
    "uae-ia:T6.3.1",
)  # fmt: skip


@rule(
    "kubernetes-placement-abroad",
    "Nodes, pods and volumes are placed in allowed regions only",
    Severity.CRITICAL,
    ANY_OBJECT,
    _ABROAD,
    "Name regions and zones of the allowed places only; name one's own sites in allowedSites.",
)
def placement_abroad(resource: Resource, context: Context) -> Iterator[Finding]:
    """No selector, affinity, requirement or topology names a place that isn't allowed."""
    for manifest in (*manifests(resource), *_values(resource)):
        for each in requirements(manifest, PLACE_KEYS):
            if each.operator == "In":
                yield from _judge(manifest, each, context)


def _values(resource: Resource) -> Iterator[Manifest]:
    """A chart's values, which become selectors of its pods."""
    if resource.package == "kubernetes" and is_bundle(resource):
        values = get(resource.properties, "values")
        yield Manifest(resource, "helm.sh", "chart", {"values": values})


def _judge(manifest: Manifest, each: NodeRequirement, context: Context) -> Iterator[Finding]:
    allowed = ", ".join((*context.settings.allowed_places, *context.settings.allowed_sites))
    for path, value in each.values:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the place {value.reason}; allowed are {allowed}")
            continue
        if not is_allowed(each.key, value, context.settings):
            place = place_of_label(each.key, value)
            where = f"is in {place}" if place else "is in no region that is known"
            yield manifest.violation(path, f"{format_value(value)} {where}; allowed are {allowed}")


@rule(
    "kubernetes-placement-pinned",
    "Workloads are pinned to nodes of allowed regions",
    Severity.MEDIUM,
    ANY_OBJECT,
    ("health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.23", "uae-ia:T6.3.1"),
    "Add topology.kubernetes.io/region with an allowed region to the pod's nodeSelector, or "
    "require it by node affinity in every term.",
)
def placement_pinned(resource: Resource, context: Context) -> Iterator[Finding]:
    """Pods say where they run, so that a node group abroad never gets them.

    Agents of every node (DaemonSets), templates that others use, and the system's own namespaces
    need not: they go where the nodes are.
    """
    for pod in pods_of(resource):
        if _must_be_pinned(pod):
            if pod.hidden:
                yield pod.indeterminate("", f"the pod {pod.hidden}")
                continue
            pinned = is_pinned(pod, context.settings)
            if pinned is None:
                yield pod.indeterminate("nodeSelector", "where the pod may run can't be known")
            elif not pinned:
                yield pod.violation(
                    "nodeSelector",
                    "nothing keeps the pod in an allowed region: no node selector, nor every term "
                    "of a required node affinity, names one (NotIn and Exists don't)",
                )


def _must_be_pinned(pod: Pod) -> bool:
    manifest = pod.manifest
    return not (
        pod.is_partial
        or manifest.kind in TEMPLATE_KINDS | {"DaemonSet"}
        or is_system(manifest.namespace)
    )


_SCHEDULING: Final = ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2")
#: Resources that are a GPU, or a part of one.
_GPUS: Final = "nvidia.com/"


@rule(
    "kubernetes-tolerations",
    "Pods tolerate only taints of nodes that are meant for them",
    Severity.MEDIUM,
    ANY_OBJECT,
    _SCHEDULING,
    "Remove the toleration; tolerate nvidia.com/gpu only where the pod asks for a GPU.",
)
@each_pod()
def tolerations(pod: Pod, context: Context) -> Iterator[Finding]:
    """Not all taints at once, not those of the system's nodes, and a GPU's only with a GPU."""
    if is_system(pod.manifest.namespace):
        return
    for index, each in enumerate(items(pod.get("tolerations"))):
        path = f"tolerations[{index}]"
        key, operator = get(each, "key"), get(each, "operator")
        if is_unknown(each) or is_unknown(key):
            hidden = each if is_unknown(each) else key
            yield pod.indeterminate(path, f"which taint is tolerated {hidden.reason}")
        elif not text(key) and is_unknown(operator):
            yield pod.indeterminate(path, f"whether all taints are tolerated {operator.reason}")
        elif not text(key) and operator == "Exists":
            yield pod.violation(path, "every taint is tolerated")
        elif text(key) in SYSTEM_TAINTS:
            yield pod.violation(
                f"{path}.key", f"nodes with the taint {format_value(key)} are kept for the system"
            )
        elif text(key) == GPU_TAINT and not (_asks_for_gpu(pod) or _holds_images(pod)):
            yield pod.violation(
                f"{path}.key", "machines with GPUs are kept for pods that ask for one"
            )


def _asks_for_gpu(pod: Pod) -> bool:
    """Whether it asks for a GPU, or may do so where that can't be seen.

    A claim (`resourceClaims`) doesn't say what it is for, and none of a GPU is one all the same.
    """
    if pod.is_partial or pod.is_bare:
        return True
    for container in pod.containers:
        limits = ABSENT if container.hidden else container.get("resources.limits")
        if container.hidden or is_unknown(limits):
            return True
        if is_mapping(limits) and any(
            str(key).startswith(_GPUS) and not _is_none(value) for key, value in limits.items()
        ):
            return True
    return False


def _holds_images(pod: Pod) -> bool:
    """Whether it does nothing but hold images on nodes, as `GpuQueues` has it.

    Admission says the same (`components/kubernetes/admission/image_prefetch.py`): only the
    platform's own pods for that are on machines with GPUs without asking for one.
    """
    manifest = pod.manifest
    volumes, containers = pod.get("volumes"), pod.containers
    return (
        (manifest.group, manifest.kind) == ("apps", "DaemonSet")
        and text(manifest.namespace) == IMAGE_PREFETCH
        and text(pod.get("serviceAccountName")) == IMAGE_PREFETCH
        and text(pod.get("priorityClassName")) == PREFETCH_PRIORITY
        and is_false(pod.get("automountServiceAccountToken"))
        and pod.get("resources") is ABSENT
        and not items(pod.get("resourceClaims"))
        and bool(items(volumes))
        and all(is_mapping(get(each, "image")) for each in items(volumes))
        and [each.list for each in containers] == ["containers"]
        and containers[0].get("resources.limits") == PREFETCH_LIMITS
    )


#: Quantities that are nothing: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_NOTHING: Final = re.compile(r"[+-]?(?:0+\.?0*|\.0+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")


def _is_none(quantity: object) -> bool:
    """Whether a quantity is nothing."""
    return quantity is None or number(quantity) == 0 or bool(_NOTHING.fullmatch(text(quantity)))


#: Devices that schedulers only count where they are a limit.
_DEVICES: Final = ("nvidia.com/", "amd.com/gpu", "aws.amazon.com/neuron", "gpu.intel.com/")


@rule(
    "kubernetes-resource-limits",
    "Containers say how much memory and processor time they need",
    Severity.LOW,
    ANY_OBJECT,
    ("iso27001:A.8.9", "iso27001:A.8.14"),
    "Set resources.limits.memory and resources.requests.cpu on the container, and devices such as "
    "nvidia.com/gpu as limits; or give the namespace a LimitRange with defaults.",
)
@each_container(Level.RESTRICTED)
def resource_limits(container: Container, context: Context) -> Iterator[Finding]:
    """One container can't starve the others of its node."""
    if container.list == "ephemeralContainers" or container.pod.is_partial:
        return  # Debugging containers can't have resources of their own.
    resources = container.get("resources")
    if is_unknown(resources):
        yield container.indeterminate("resources", f"its resources {resources.reason}")
        return
    for key, places in (("memory", ("limits",)), ("cpu", ("requests", "limits"))):
        yield from _demand(container, context, key, places)
    requests, limits = get(resources, "requests"), get(resources, "limits")
    for device in sorted(requests) if is_mapping(requests) else ():
        has_limit = is_mapping(limits) and limits.get(device) is not None
        if str(device).startswith(_DEVICES) and not has_limit:
            yield container.violation(
                f'resources.limits["{device}"]',
                f"{device} is requested and no limit; devices are given as limits only",
            )


def _demand(
    container: Container, context: Context, key: str, places: tuple[str, ...]
) -> Iterator[Finding]:
    path = f"resources.{places[0]}.{key}"
    found = [container.get(f"resources.{each}.{key}") for each in places]
    found += [container.pod.get(f"resources.{each}.{key}") for each in places]
    given = [each for each in found if each is not ABSENT and each != ""]
    if any(not is_unknown(each) for each in given):
        return
    what = "memory limit" if key == "memory" else "CPU request"
    if given:
        yield container.indeterminate(path, f"the {what} {given[0].reason}")
    elif context.stack is None:
        yield container.indeterminate(
            path, f"there is no {what}, unless a LimitRange of the namespace gives one"
        )
    elif not _has_default(container, context, key):
        yield container.violation(
            path,
            f"container {container.name!r} has no {what}, and no LimitRange of its namespace "
            "gives one",
        )


def _has_default(container: Container, context: Context, key: str) -> bool:
    namespace = container.pod.manifest.namespace
    for each in all_manifests(context.stack) if context.stack else ():
        if each.kind != "LimitRange" or (
            not is_unknown(namespace) and each.namespace != namespace
        ):
            continue
        for limit in items(each.get("spec.limits")):
            default = get(limit, "default")
            if text(get(limit, "type")) == "Container" and get(default, key) is not ABSENT:
                return True
    return False


_CONTROLS: Final = (
    "uae-ia:T1.3.x", "iso27001:A.5.13", "iso27001:A.8.22", "health-data:13",
)  # fmt: skip
_CLASS: Final = re.compile(r"(?:.*[./:])?data-class")


def _is_restricted(manifest: Manifest, context: Context) -> bool:
    """Whether an object's data is of that class: by its labels, its pods', or the stack's."""
    labels = [manifest.labels]
    for pod in pods(manifest):
        found = pod.metadata.get("labels")
        labels.append(mapping(found))
    named = [value for each in labels for key, value in each.items() if _CLASS.fullmatch(str(key))]
    if named:
        return any(is_unknown(each) or text(each) == "restricted" for each in named)
    return context.settings.data_class == "restricted"


def _objects(resource: Resource) -> Iterator[Manifest]:
    if resource.package == "kubernetes" and is_bundle(resource):
        yield Manifest(resource, "helm.sh", "chart", {"values": resource.get("values")})
    yield from manifests(resource)


_SHARED: Final = re.compile(SHARED_GPU)
_FRACTIONS: Final = frozenset({"gpu-fraction", "gpu-memory"})
_SHARING: Final = frozenset({"timeSlicing", "mps", "timeSlicingConfig", "mpsConfig"})
_SHARING_TEXT: Final = re.compile(r"(?m)^\s*[\"']?(?:timeSlicing|mps)[\"']?\s*:")
_NOT_SEARCHED_FOR_SHARES: Final = frozenset({"status", "openAPIV3Schema"})


@rule(
    "kubernetes-shared-gpu",
    "Restricted data is on GPUs of its own",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Use whole GPUs, or MIG's partitions, whose memory is apart. Time slicing and MPS keep no "
    "memory apart.",
)
def shared_gpu(resource: Resource, context: Context) -> Iterator[Finding]:
    """No pod asks for a shared GPU, and no driver is told to share them."""
    for manifest in _objects(resource):
        if _is_restricted(manifest, context):
            yield from _sharing(manifest, manifest.body, ())


def _sharing(manifest: Manifest, value: Any, path: Path) -> Iterator[Finding]:
    if is_mapping(value):
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in _NOT_SEARCHED_FOR_SHARES:
                continue
            if _SHARED.fullmatch(name):
                yield manifest.violation(
                    format_path(at), f"{name} is a part of a GPU that others use"
                )
            elif name in _FRACTIONS:
                yield manifest.violation(format_path(at), f"{name} shares a GPU with others")
            elif name in _SHARING and (is_unknown(each) or is_mapping(each)):
                yield manifest.violation(
                    format_path(at), f"{name} shares GPUs without keeping memory apart"
                )
            else:
                yield from _sharing(manifest, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _sharing(manifest, each, (*path, index))
    elif isinstance(value, str) and _SHARING_TEXT.search(value):
        yield manifest.violation(
            format_path(path), "it tells the driver to share GPUs (timeSlicing, mps)"
        )


_SPOT: Final = frozenset({
    "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType",
    "kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot",
    "node.kubernetes.io/lifecycle",
})  # fmt: skip


@rule(
    "kubernetes-spot-nodes",
    "Restricted data isn't on machines that may be taken away",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Use on-demand or reserved machines: remove spot from the requirement, selector or "
    "toleration.",
)
def spot_nodes(resource: Resource, context: Context) -> Iterator[Finding]:
    """No selector, requirement or toleration asks for spot machines."""
    for manifest in _objects(resource):
        if not _is_restricted(manifest, context):
            continue
        for each in requirements(manifest, _SPOT):
            if each.operator != "In":
                continue
            for path, value in each.values:
                if is_unknown(value):
                    yield manifest.indeterminate(
                        path, f"what kind of machine it is {value.reason}"
                    )
                elif text(value).lower() == "spot" or (
                    each.key.endswith("gke-spot") and is_true(value)
                ):
                    yield manifest.violation(path, f"{format_value(each.key)} is spot")


RULES: tuple[Rule, ...] = (
    placement_abroad,
    placement_pinned,
    tolerations,
    resource_limits,
    shared_gpu,
    spot_nodes,
)
