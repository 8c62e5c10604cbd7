"""Restricted data in clusters: on GPUs that nobody shares, on machines that nobody takes away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters.isolation import SHARED_GPU
from falaj.policies.model import (
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_value,
    is_list,
    is_true,
    is_unknown,
    rule,
    spell,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, Manifest, is_bundle, manifests
from falaj.policies.reading.node_placement import requirements
from falaj.policies.reading.pods import pods

_CONTROLS: Final = (
    "uae-ia:T1.3.x", "iso27001:A.5.13", "iso27001:A.8.22", "health-data:13",
)  # fmt: skip
_CLASS: Final = re.compile(r"(?:.*[./:])?data-class")


def _is_restricted(manifest: Manifest, context: Context) -> bool:
    """Whether an object's data is of that class: by its labels, its pods', or the stack's."""
    labels = [manifest.labels]
    for pod in pods(manifest):
        found = pod.metadata.get("labels")
        labels.append(found if isinstance(found, Mapping) else {})
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
_NOT_SEARCHED: Final = frozenset({"status", "openAPIV3Schema"})


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
    if isinstance(value, Mapping):
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in _NOT_SEARCHED:
                continue
            if _SHARED.fullmatch(name):
                yield manifest.violation(spell(at), f"{name} is a part of a GPU that others use")
            elif name in _FRACTIONS:
                yield manifest.violation(spell(at), f"{name} shares a GPU with others")
            elif name in _SHARING and (is_unknown(each) or isinstance(each, Mapping)):
                yield manifest.violation(
                    spell(at), f"{name} shares GPUs without keeping memory apart"
                )
            else:
                yield from _sharing(manifest, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _sharing(manifest, each, (*path, index))
    elif isinstance(value, str) and _SHARING_TEXT.search(value):
        yield manifest.violation(
            spell(path), "it tells the driver to share GPUs (timeSlicing, mps)"
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


RULES: tuple[Rule, ...] = (shared_gpu, spot_nodes)
