"""Images: from registries inside the country, and by digest."""

from falaj.components.kubernetes.admission.expressions import (
    CONTAINER_LISTS,
    images_pattern,
    text,
    texts,
)
from falaj.components.kubernetes.admission.home import CLUSTER, Home
from falaj.components.kubernetes.admission.pods import PodPolicy, Shape
from falaj.components.kubernetes.admission.policy import Check, Policy

_PINNED = "^[^@]+@(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"
#: The distributor's own programs, which it brings and renews itself, from where: images of other
#: namespaces don't come from there.
#: https://learn.microsoft.com/en-us/azure/aks/outbound-rules-control-egress
CLUSTER_REGISTRIES = {"eks": (), "aks": ("mcr.microsoft.com",), "existing": ()}


def policies(home: Home) -> tuple[Policy, ...]:
    """Every container of every list, and every volume that is an image."""
    placed = home.placed
    own = images_pattern((placed.registry, *home.registries), home.aws_regions)
    cluster_registries = CLUSTER_REGISTRIES[placed.distribution] + home.cluster_registries
    of_cluster = images_pattern(
        (placed.registry, *home.registries, *cluster_registries), home.aws_regions
    )
    named = [placed.registry, *home.registries]
    named += [f"*.dkr.ecr.{each}.amazonaws.com" for each in home.aws_regions]
    in_cluster = f"request.namespace in {texts(CLUSTER)}"
    pattern = (
        f"({in_cluster} ? {text(of_cluster)} : {text(own)})" if of_cluster != own else text(own)
    )
    # Clouds, and installers such as kubeadm, name the cluster's own programs by tags.
    pinned = f"!({in_cluster}) && !i.matches({text(_PINNED)})"

    def checks(shape: Shape) -> tuple[Check, ...]:
        return (
            Check(
                "kubernetes-image-registry",
                f"variables.images.filter(i, !i.lowerAscii().matches({pattern}))",
                "images from registries that aren't allowed",
                ", ".join(named),
                "copy the image into one of them",
            ),
            Check(
                "kubernetes-image-digest",
                f"variables.images.filter(i, {pinned})",
                "images that aren't named by their digest",
                "REGISTRY/NAME@sha256:…",
                "append the digest; a tag may be moved",
            ),
        )

    images = " + ".join(
        f'variables.pod.?{each}.orValue([]).map(c, c.?image.orValue(""))'
        for each in CONTAINER_LISTS
    )
    images += (
        " + variables.pod.?volumes.orValue([]).filter(v, has(v.image))"
        '.map(v, v.image.?reference.orValue(""))'
    )
    return PodPolicy("images", checks, {"images": images}).policies()
