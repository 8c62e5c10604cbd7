"""Kueue: quota, gangs, pre-emption and topology for every job and pod of a tenant.

Values: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/charts/kueue/values.yaml
Configuration: https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypedDict

import yaml

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes._placed import COST_CENTER_LABEL
from falaj.components.kubernetes.addons.addon import (
    ISSUER,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.gpu_queues.queues import NAMESPACE, transformations
from falaj.components.specification.arguments import Default
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS, KUEUE_VISIBILITY
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, Between

#: What users run. JobSet and Trainer wait for their definitions where those come later.
FRAMEWORKS: Final = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "pod",
    "deployment",
    "statefulset",
)

#: Beta gates, on by default, that the platform relies on: named so that an upgrade which turns
#: one off is seen (pkg/features/kube_features.go at v0.19.2).
GATES: Final = (
    "TopologyAwareScheduling", "TASFailedNodeReplacement", "QuotaCheckStrategy",
    "ElasticJobsViaWorkloadSlices", "MultiKueue", "MultiKueueIncrementalDispatcherConfig",
    "MultiKueueIncrementalDispatcherRespectConfigOrder",
)  # fmt: skip
#: Resources that queues don't count: fabrics go with the GPUs of their node, and disks are local.
#: The namespace's quota does, against those that aren't of a job.
_UNCOUNTED: Final = ("vpc.amazonaws.com/", "rdma/", "ephemeral-storage", "hugepages-")


@described
class KueueOptions(TypedDict):
    """Options of ``kueue``."""

    ready_minutes: NotRequired[Annotated[int, Between(1, 240), Default(20)]]
    """Minutes in which all pods of an admitted job have to be ready, new nodes and pulls of images
    included; a gang that doesn't form gives its quota back and queues again."""
    recovery_minutes: NotRequired[Annotated[int, Between(1, 240), Default(10)]]
    """Likewise for a pod of a running job that was replaced."""
    requeue_limit: NotRequired[Annotated[int, Between(1, 100), Default(10)]]
    """How often a job is queued again before it is set aside."""
    retention_hours: NotRequired[Annotated[int, Between(1, 8760), Default(168)]]
    """Hours that records of finished jobs are kept."""
    origin: NotRequired[Annotated[str, OBJECT]]
    """What this cluster is called in those that it sends jobs to (`GpuQueues`, ``burst``), which
    no other cluster is: Kueue clears away what has its own name there and isn't its own. Default:
    the region."""
    worker_lost_minutes: NotRequired[Annotated[int, Between(1, 1440), Default(15)]]
    """Minutes without an answer after which a job that was sent to another cluster is taken for
    lost and waits again."""


def kueue_configuration(spec: PlatformSpec) -> dict[str, Any]:
    """Kueue's own configuration file, as the platform renders it.

    Jobs and pods of namespaces for training are managed whether they name a queue or not:
    otherwise anybody who leaves the label out passes by the quota. What serves has a quota of its
    namespace, and scales without waiting in a queue unless it names one.
    """
    options = spec.options("kueue")

    training = {"key": "falaj.io/duty", "operator": "In", "values": ["training"]}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "internalCertManagement": {"enable": not spec.has("cert-manager")},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchExpressions": [training]},
        "waitForPodsReady": {
            "timeout": f"{options['ready_minutes']}m",
            "recoveryTimeout": f"{options['recovery_minutes']}m",
            # One slow gang doesn't hold up every other queue.
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                "backoffLimitCount": options["requeue_limit"],
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 3600,
            },
        },
        "integrations": {
            "frameworks": list(FRAMEWORKS),
            "labelKeysToCopy": [TENANT_LABEL, COST_CENTER_LABEL],
        },
        "fairSharing": {
            "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        },
        "resources": {
            "quotaCheckStrategy": "BlockUndeclared",
            "excludeResourcePrefixes": list(_UNCOUNTED),
            "transformations": transformations(),
        },
        "multiKueue": {
            "origin": options["origin"] or spec.placed.region,
            "workerLostTimeout": f"{options['worker_lost_minutes']}m",
            # One cluster after the other, in the order of `burst.workers`. By default Kueue asks
            # all at once, and the fastest answer has the job.
            "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
            "incrementalDispatcherConfig": {"stepSize": 1},
        },
        "objectRetentionPolicies": {
            "workloads": {
                "afterFinished": f"{options['retention_hours']}h",
                # Kept finalizers of broken jobs have held quota for weeks: kueue issue 13413.
                "afterDeactivatedByKueue": f"{options['retention_hours']}h",
            }
        },
    }


def _values(spec: PlatformSpec) -> dict[str, Values]:
    return {
        "kueue": {
            "fullnameOverride": "kueue",
            "enablePrometheus": False,
            "enableCertManager": spec.has("cert-manager"),
            "certManager": {"issuerRef": {"kind": "ClusterIssuer", "name": ISSUER}},
            "enableKueueViz": False,
            "controllerManager": {
                "featureGates": [{"name": gate, "enabled": True} for gate in GATES],
                "replicas": 2,
                "nodeSelector": spec.node_selector,
                "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
                "manager": {
                    "image": {
                        "repository": spec.repository("kueue"),
                        "tag": spec.tag("kueue"),
                        "pullPolicy": "IfNotPresent",
                    },
                    "priorityClassName": PRIORITY_CLASS,
                    "resources": resources("1", "2Gi"),
                },
            },
            "managerConfig": {
                "controllerManagerConfigYaml": yaml.safe_dump(
                    kueue_configuration(spec), sort_keys=False
                )
            },
        }
    }


KUEUE: Final = Addon(
    name="kueue",
    summary="quota, gangs, fair sharing, pre-emption and topology of jobs",
    namespaces=(Namespace(NAMESPACE),),
    releases=(Release("kueue", "kueue", NAMESPACE),),
    options=KueueOptions,
    images=lambda spec: ("kueue",),
    values=_values,
    traffic=lambda spec: {
        NAMESPACE: Traffic(webhooks=(CONTROLLER_WEBHOOKS, KUEUE_VISIBILITY), scrapes=(8443,))
    },
    scrapes=(
        Scrape(
            NAMESPACE,
            {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "metrics-service"},
            "https",
            "kueue-metrics-server-cert",
            f"kueue-controller-manager-metrics-service.{NAMESPACE}.svc",
        ),
    ),
    follows=("cert-manager", "jobset"),
)
