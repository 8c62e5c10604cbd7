"""Images on the nodes of a pool before pods need them.

A DaemonSet for each pool mounts them as image volumes into a small pod of Falaj's own: nothing of
them runs, so that they need no shell and no command that does nothing.

What the kubelet does (v1.36.1, `getImageVolumes` in pkg/kubelet/kuberuntime): it pulls the image
volumes of a pod one after the other, goes on where one fails, and starts no container that mounts
one that failed. Its garbage collector spares images that containers run or mount
(`handleImageVolumes` in pkg/kubelet/images): so all are mounted, and the pod goes on running.

Several pulls at once: off by default (`serializeImagePulls` in
https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/), on in nodes of EKS
(nodeadm/internal/kubelet/config.go of https://github.com/awslabs/amazon-eks-ami) and of AKS since
1.31 (https://github.com/Azure/AKS/issues/4499). Where a disk fills up, pods go by
`rankDiskPressureFunc` in pkg/kubelet/eviction: who exceeds his request first, then by priority.

Volumes of images are on by default since Kubernetes 1.35 (`ImageVolume`,
https://kep.k8s.io/4639); an API server of before drops them without a word
(`dropImageVolumes` in pkg/api/pod), which admission and the pod itself then tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pulumi

from falaj.components.catalogue.clusters import (
    IMAGE_PREFETCH,
    IMAGE_VOLUMES_SINCE,
    PREFETCH_LIMITS,
    PREFETCH_PRIORITY,
)
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import InCluster, checked_image
from falaj.components.kubernetes._pods import (
    INFERENCE_IMAGE,
    pod_security,
    unprivileged,
    unprivileged_pod,
)
from falaj.components.kubernetes._rights import account
from falaj.components.kubernetes.bill_of_materials import images, resolve
from falaj.components.kubernetes.gpu_queues.queues import Pool, tolerations
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import DEFAULT_KUBERNETES_VERSION
from falaj.components.specification.node_pools import FLAVOR

MOST_IMAGES: Final = 20
#: Below what the cluster autoscaler takes note of (``--expendable-pods-priority-cutoff``, -10):
#: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
_PRIORITY: Final = -100
_FOLDER: Final = "/images"
_NAME: Final = "app.kubernetes.io/name"


def references(
    wanted: Mapping[str, object],
    placed: InCluster,
    digests: Mapping[str, str] | None,
    errors: ArgumentErrors,
) -> tuple[dict[str, tuple[str, ...]], str]:
    """What pools keep, as pods name it, by argument; and the image of the program that holds it.

    Args:
        wanted: the lists as given, by argument.
        placed: the component's shared arguments.
        digests: by short name; the argument ``images`` of the component.
        errors: gets what can't be kept.
    """
    chosen = {at: errors.texts(at, given) for at, given in wanted.items()}
    known = images()
    short = {each for names in chosen.values() for each in names if each in known}
    resolved = resolve(
        placed, [INFERENCE_IMAGE, *sorted(short - {INFERENCE_IMAGE})], digests, errors
    )
    found: dict[str, tuple[str, ...]] = {}
    for at, names in chosen.items():
        listed: dict[tuple[str, str], str] = {}
        for position, each in enumerate(names):
            where = f"{at}[{position}]"
            if each in known:
                reference = resolved.get(each, "")
            else:
                below = each.removeprefix(placed.registry + "/")
                reference = checked_image(where, below, placed, errors)
            if reference and _identity(reference) in listed:
                errors.add(where, each, "each image only once", "leave out the second")
            elif reference:
                listed[_identity(reference)] = reference
        found[at] = tuple(listed.values())
    return found, resolved.get(INFERENCE_IMAGE, "")


_VERSION: Final = re.compile(r"^v?(\d+)\.(\d+)(?:[.+-].*)?$")


def _reason(version: object) -> tuple[str, str] | None:
    """What is allowed instead of a version, and what to do; None where it mounts images."""
    match = _VERSION.match(version) if isinstance(version, str) else None
    if match is None:
        return "a version such as 1.36", ""
    since = tuple(map(int, IMAGE_VOLUMES_SINCE.split(".")))
    if tuple(map(int, match.groups())) >= since:
        return None
    return (
        f"{IMAGE_VOLUMES_SINCE} or later, where pools have prefetch_images",
        "older ones mount no images; upgrade the cluster, or leave prefetch_images out",
    )


def with_image_volumes(
    version: pulumi.Input[str] | None, holder: str, errors: ArgumentErrors
) -> pulumi.Input[str]:
    """The image of the program that holds others, for a cluster that mounts images.

    Args:
        version: the cluster's; None where it isn't known.
        holder: the image.
        errors: gets a version that is too old, where it is known now.

    Raises:
        pulumi.RunError: (in the output) the version that an output has is too old.
    """
    if isinstance(version, pulumi.Output):

        def checked(known: object) -> str:
            if known is not None and (why := _reason(known)):
                allowed, hint = why
                raise pulumi.RunError(
                    f"kubernetes_version: given {known!r}; allowed: {allowed}; {hint}"
                )
            return holder

        return version.apply(checked)
    if version is not None and (why := _reason(version)):
        errors.add("kubernetes_version", version, *why)
    return holder


def _identity(reference: str) -> tuple[str, str]:
    """Repository and digest of a reference: a tag between them is for people."""
    name, _, digest = reference.partition("@")
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}", digest


def prefetching(
    placed: InCluster, component: str, holder: pulumi.Input[str], pools: Iterable[Pool]
) -> list[Manifest]:
    """A namespace that nothing gets into or out of, and a DaemonSet for each pool with images.

    Args:
        placed: whom the component is for.
        component: its name.
        holder: image of the program that holds the others.
        pools: all of the cluster's.
    """
    keeping = [each for each in pools if each.images]
    if not keeping:
        return []
    about = metadata(placed, component, IMAGE_PREFETCH, IMAGE_PREFETCH)
    version = f"v{DEFAULT_KUBERNETES_VERSION}"
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": metadata(placed, component, PREFETCH_PRIORITY),
            "value": _PRIORITY,
            "globalDefault": False,
            "preemptionPolicy": "Never",
            "description": "Pods that keep images on nodes. Whatever else runs goes first.",
        },
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": metadata(
                placed, component, IMAGE_PREFETCH, labels=pod_security("restricted", version)
            ),
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(placed, component, "default-deny", IMAGE_PREFETCH),
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
        account(about),
        *(_daemon_set(placed, component, holder, each) for each in keeping),
    ]


def _daemon_set(
    placed: InCluster, component: str, holder: pulumi.Input[str], pool: Pool
) -> Manifest:
    selector = {_NAME: IMAGE_PREFETCH, FLAVOR: pool.flavor}
    about = metadata(
        placed,
        component,
        pool.flavor,
        IMAGE_PREFETCH,
        # A pool may have no nodes, and images take minutes: nobody waits for it.
        annotations={"pulumi.com/skipAwait": "true"},
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": about,
        "spec": {
            "selector": {"matchLabels": selector},
            # Of a new list so many nodes pull at once; of the first one all do.
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "20%"},
            },
            "revisionHistoryLimit": 2,
            "template": {
                "metadata": {"labels": {**about["labels"], **selector}},
                "spec": {
                    "serviceAccountName": IMAGE_PREFETCH,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "priorityClassName": PREFETCH_PRIORITY,
                    "terminationGracePeriodSeconds": 5,
                    "nodeSelector": {
                        FLAVOR: pool.flavor, **placed.node_selector, "kubernetes.io/os": "linux",
                    },
                    "tolerations": tolerations(placed, pool, gpus=bool(pool.devices)),
                    "securityContext": unprivileged_pod(),
                    "containers": [_container(holder, pool)],
                    "volumes": [
                        {
                            "name": _volume(position),
                            "image": {"reference": each, "pullPolicy": "IfNotPresent"},
                        }
                        for position, each in enumerate(pool.images)
                    ],
                },
            },
        },
    }  # fmt: skip


def _container(holder: pulumi.Input[str], pool: Pool) -> dict[str, Any]:
    folders = [f"{_FOLDER}/{position}" for position in range(len(pool.images))]
    return {
        "name": "holder",
        "image": holder,
        "command": ["python", "-m", "falaj.workloads.prefetch", *folders],
        # Hardly any, so that a gang finds its node as whole as without it. None of the disk: it
        # writes to none, and is the first to go where a disk fills up.
        "resources": {
            "requests": {"cpu": "1m", "memory": PREFETCH_LIMITS["memory"]},
            "limits": dict(PREFETCH_LIMITS),
        },
        "securityContext": unprivileged(),
        "volumeMounts": [
            {"name": _volume(position), "mountPath": folder, "readOnly": True}
            for position, folder in enumerate(folders)
        ],
    }


def _volume(position: int) -> str:
    return f"image-{position}"
