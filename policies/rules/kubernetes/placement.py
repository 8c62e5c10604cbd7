"""Where pods, volumes and nodes may be: in allowed regions, and said so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    rule,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, Manifest, is_bundle, manifests
from falaj.policies.reading.namespaces import is_system
from falaj.policies.reading.node_placement import (
    PLACE_KEYS,
    Requirement,
    is_allowed,
    is_pinned,
    place_of_label,
    requirements,
)
from falaj.policies.reading.pods import TEMPLATE_KINDS, Pod, pods_of

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


def _judge(manifest: Manifest, each: Requirement, context: Context) -> Iterator[Finding]:
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


RULES: tuple[Rule, ...] = (placement_abroad, placement_pinned)
