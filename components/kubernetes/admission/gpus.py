"""Machines with GPUs: for who asks for a GPU; restricted data on GPUs of its own."""

from falaj.components.catalogue.clusters.isolation import SHARED_GPU, SYSTEM_TAINTS
from falaj.components.kubernetes._placed import DATA_CLASS_LABEL
from falaj.components.kubernetes.admission.expressions import (
    CONTAINER_LISTS,
    each_container,
    text,
    texts,
)
from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.pods import PodPolicy, Shape
from falaj.components.kubernetes.admission.policy import Check, Policy
from falaj.components.specification.node_labels import GPU_TAINT

#: Operators of pods' resources that a GPU, or a part of one, is called by.
_GPU = 'k.startsWith("nvidia.com/")'


def policies(home: Home) -> tuple[Policy, ...]:
    """Tolerations, which let pods onto machines that are kept free, and GPUs that are shared."""
    return (
        *PodPolicy("tolerations", _tolerations, exempt=home.with_nodes).policies(),
        *PodPolicy(
            "gpus",
            lambda shape: (_shared(home, shape), _runtime_class(home)),
            exempt=home.with_nodes,
        ).policies(),
    )


def _tolerations(_: Shape) -> tuple[Check, ...]:
    asks = " || ".join(
        f"variables.pod.?{each}.orValue([]).exists(c, "
        f"c.?resources.?limits.orValue({{}}).exists(k, {_GPU}))"
        for each in CONTAINER_LISTS[:2]
    )
    gpu = f"({asks} || size(variables.pod.?resourceClaims.orValue([])) > 0)"
    key = 't.?key.orValue("")'
    of_all = f'({key} == "" && t.?operator.orValue("") == "Exists")'
    of_system = f"{key} in {texts(SYSTEM_TAINTS)}"
    of_gpu = f"({key} == {text(GPU_TAINT.key)} && !{gpu})"
    said = f'({key} == "" ? "every taint" : {key})'
    return (
        Check(
            "kubernetes-tolerations",
            "variables.pod.?tolerations.orValue([]).filter(t, "
            f"{of_all} || {of_system} || {of_gpu}).map(t, {said})",
            "taints are tolerated that keep nodes for others",
            f"single taints; {GPU_TAINT.key} with a GPU among the pod's resources",
            "remove the toleration, or ask for the GPU",
        ),
    )


def _shared(home: Home, shape: Shape) -> Check:
    of_class = f'[?{text(DATA_CLASS_LABEL)}].orValue("")'
    classes = (
        f"[object.metadata.?labels{of_class}, {shape.labels}{of_class}, "
        f"namespaceObject.metadata.?labels{of_class}]"
    )
    restricted = f'{classes}.exists(k, k == "restricted")'
    if home.placed.data_class == "restricted":
        restricted = f'({restricted} || {classes}.all(k, k == ""))'
    limits = "c.?resources.?limits.orValue({})"
    shared = f"k.matches({text(f'^(?:{SHARED_GPU})$')})"
    return Check(
        "kubernetes-shared-gpu",
        each_container(
            f"{restricted} && {limits}.exists(k, {shared})",
            f'c.name + " asks for " + {limits}.filter(k, {shared}).join(" and ")',
        ),
        "restricted data on parts of GPUs that keep no memory apart",
        "nvidia.com/gpu, nvidia.com/mig-…",
        "use whole GPUs, or MIG's partitions",
    )


def _runtime_class(home: Home) -> Check:
    allowed = home.runtime_classes
    name = 'variables.pod.?runtimeClassName.orValue("")'
    return Check(
        "cluster-runtime-class",
        f'({name} == "" || {name} in {texts(allowed)} ? [] : [{name}])',
        "the pod asks for another runtime",
        ", ".join(allowed),
        "remove runtimeClassName: the GPU operator's is the default on nodes with GPUs",
    )
