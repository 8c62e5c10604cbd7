"""Pods that hold images on nodes: on machines with GPUs without a GPU, and so of one form alone.

The packs say the same of what is declared (`kubernetes-tolerations`). The namespace has nothing
else, so that whoever may make objects there gets no other pod onto those machines either.

An API server before Kubernetes 1.35 drops image volumes before it asks policies (`BeforeCreate`
and then `createValidation` in k8s.io/apiserver/pkg/registry/generic/registry/store.go): what is
left would hold nothing, and is refused.
"""

from falaj.components.catalogue.clusters import (
    IMAGE_PREFETCH,
    IMAGE_VOLUMES_SINCE,
    PREFETCH_LIMITS,
    PREFETCH_PRIORITY,
)
from falaj.components.catalogue.pod_rules import CONTAINER_LISTS
from falaj.components.kubernetes.admission.policy import (
    Check,
    ClusterScope,
    Policy,
    joined,
    literal,
    texts,
    when,
)
from falaj.components.kubernetes.admission.shapes import DAEMON_SETS, PodPolicy, Shape

_HERE = f"request.namespace == {literal(IMAGE_PREFETCH)}"


def holds_images(shape: Shape) -> str:
    """Whether ``variables.pod`` does nothing but hold images, in the namespace for that.

    It may have lost them all: that is told by the namespace's own policy alone, with the reason.
    """
    if shape.is_pod:
        # Pods are only changed afterwards by others: their finalizers, their labels.
        by = f'(request.operation != "CREATE" || {DAEMON_SETS})'
    else:
        by = 'request.kind.kind == "DaemonSet"'
    limits = "c.?resources.?limits.orValue({})"
    within = " && ".join(
        f"{literal(key)} in {limits} && "
        f"quantity(string({limits}[{literal(key)}])).compareTo(quantity({literal(most)})) <= 0"
        for key, most in PREFETCH_LIMITS.items()
    )
    further = "".join(
        f" && size(variables.pod.?{each}.orValue([])) == 0" for each in CONTAINER_LISTS[1:]
    )
    return (
        f"({_HERE} && {by}"
        f' && variables.pod.?serviceAccountName.orValue("") == {literal(IMAGE_PREFETCH)}'
        f' && variables.pod.?priorityClassName.orValue("") == {literal(PREFETCH_PRIORITY)}'
        " && !variables.pod.?automountServiceAccountToken.orValue(true)"
        " && !has(variables.pod.resources)"
        " && size(variables.pod.?resourceClaims.orValue([])) == 0"
        " && variables.pod.?volumes.orValue([]).all(v, has(v.image))"
        f" && size(variables.pod.containers) == 1{further}"
        f" && variables.pod.containers.all(c, {limits}.all(k, k in {texts(PREFETCH_LIMITS)})"
        f" && {within}))"
    )


def policies(_: ClusterScope) -> tuple[Policy, ...]:
    """Nothing else is in the namespace."""
    of = ", ".join(f"{most} {key}" for key, most in PREFETCH_LIMITS.items())

    lost = "size(variables.pod.?volumes.orValue([])) == 0"

    def checks(shape: Shape) -> tuple[Check, ...]:
        other = when(f"!{holds_images(shape)}", literal(shape.name))
        wrong = joined((other, when(lost, literal("no image volumes"))))
        return (
            Check(
                "cluster-image-prefetch",
                wrong,
                "pods here do nothing but hold images",
                f"DaemonSets of one container with image volumes alone, up to {of}, no token",
                "leave it to GpuQueues; where it has image volumes, the API server dropped them: "
                f"they need Kubernetes {IMAGE_VOLUMES_SINCE}",
            ),
        )

    return PodPolicy(
        "image-prefetch", checks, conditions={"where-images-are-held": _HERE}
    ).policies()
