"""Kubeflow Trainer, for users of its SDK.

Values: https://github.com/kubeflow/trainer/blob/v2.3.0/charts/kubeflow-trainer/values.yaml
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._pods import unprivileged, unprivileged_alone
from falaj.components.kubernetes.addons.addon import (
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS
from falaj.components.specification.described import described
from falaj.components.specification.limits import OneOf

_NAMESPACE: Final = "kubeflow-system"
RUNTIME: Final = "falaj-torch"
_SCRATCH_GIB: Final = 50


@described
class TrainerOptions(TypedDict):
    """Options of ``trainer``."""

    image: NotRequired[
        Annotated[str, OneOf(("falaj-training", "falaj-training-cpu")), Default("falaj-training")]
    ]
    """Image of the runtime ``falaj-torch``, by its name in the lock file: ``falaj-training-cpu``
    where no machine has a GPU."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    registry, repository, _, _ = spec.parts("trainer")
    return {
        "trainer": {
            "fullnameOverride": "trainer",
            "jobset": {"install": False},
            "image": {"registry": registry, "repository": repository, "tag": spec.tag("trainer")},
            "manager": {
                "replicas": 2,
                "nodeSelector": spec.node_selector,
                "resources": resources("100m", "256Mi"),
                "securityContext": unprivileged_alone(runAsNonRoot=True),
            },
            "dataCache": {"enabled": False},
            # Its runtimes come from a hook, which isn't run; ours is declared beside the chart.
            "runtimes": {"defaultEnabled": False},
        }
    }


def _budget(spec: PlatformSpec) -> Manifest:
    """One of its two replicas stays when nodes are drained; the chart has no value for it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": spec.metadata("trainer-controller-manager", _NAMESPACE),
        "spec": {
            "minAvailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {"app.kubernetes.io/name": "kubeflow-trainer"}},
        },
    }


def _runtime(spec: PlatformSpec) -> Manifest:
    """The runtime that users name: the packaged training image, in a pod as tenants' must be."""
    # Scratch counts as the container's disk: with less of it the pod would be evicted.
    sizes = {"memory": "16Gi", "ephemeral-storage": f"{_SCRATCH_GIB + 1}Gi"}
    container: dict[str, Any] = {
        "name": "node",
        "image": spec.images[spec.options("trainer")["image"]],
        "securityContext": unprivileged(),
        "resources": {"requests": {"cpu": "4", **sizes}, "limits": sizes},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - memory
        ],
    }
    pod: dict[str, Any] = {
        "nodeSelector": dict(spec.placed.node_selector),
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": f"{_SCRATCH_GIB}Gi"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        ],
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": spec.metadata(RUNTIME, **{"trainer.kubeflow.org/framework": "torch"}),
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }


TRAINER: Final = Addon(
    name="trainer",
    summary="TrainJobs of Kubeflow's SDK",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("kubeflow-trainer", "trainer", _NAMESPACE),),
    options=TrainerOptions,
    images=lambda spec: ("trainer", spec.options("trainer")["image"]),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(webhooks=(CONTROLLER_WEBHOOKS,), scrapes=(8443,))},
    after=lambda spec: [_budget(spec), _runtime(spec)],
    needs=("jobset",),
)
