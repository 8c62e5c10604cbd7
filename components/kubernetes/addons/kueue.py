"""Kueue: quota, gangs, pre-emption and topology for every job and pod of a tenant.

Values: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/charts/kueue/values.yaml
Configuration: https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/
"""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

import yaml

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes._placed import COST_CENTER_LABEL
from falaj.components.kubernetes._validation import OptionsChecker
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
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS, KUEUE_VISIBILITY

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


class KueueOptions(TypedDict):
    """Options of ``kueue``."""

    ready_minutes: NotRequired[int]
    """Minutes in which all pods of an admitted job have to be ready, new nodes and pulls of images
    included, 1 to 240; a gang that doesn't form gives its quota back and queues again.
    Default: 20."""
    recovery_minutes: NotRequired[int]
    """Likewise for a pod of a running job that was replaced, 1 to 240. Default: 10."""
    requeue_limit: NotRequired[int]
    """How often a job is queued again before it is set aside, 1 to 100. Default: 10."""
    retention_hours: NotRequired[int]
    """Hours that records of finished jobs are kept, 1 to 8,760. Default: 168."""
    origin: NotRequired[str]
    """What this cluster is called in those that it sends jobs to (`GpuQueues`, ``burst``), which
    no other cluster is: Kueue clears away what has its own name there and isn't its own. Default:
    the region."""
    worker_lost_minutes: NotRequired[int]
    """Minutes without an answer after which a job that was sent to another cluster is taken for
    lost and waits again, 1 to 1,440. Default: 15."""


def _check(options: OptionsChecker, _: object) -> None:
    for option, most in (("ready_minutes", 240), ("recovery_minutes", 240),
                         ("requeue_limit", 100), ("retention_hours", 8760),
                         ("worker_lost_minutes", 1440)):  # fmt: skip
        options.whole(option, 1, most)
    options.object_name("origin")


def kueue_configuration(spec: PlatformSpec) -> dict[str, Any]:
    """Kueue's own configuration file, as the platform renders it.

    Jobs and pods of namespaces for training are managed whether they name a queue or not:
    otherwise anybody who leaves the label out passes by the quota. What serves has a quota of its
    namespace, and scales without waiting in a queue unless it names one.
    """
    options = spec.options("kueue")

    def minutes(option: str, default: int) -> str:
        return f"{int(options.get(option) or default)}m"

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
            "timeout": minutes("ready_minutes", 20),
            "recoveryTimeout": minutes("recovery_minutes", 10),
            # One slow gang doesn't hold up every other queue.
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                "backoffLimitCount": int(options.get("requeue_limit") or 10),
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
            "origin": options.get("origin") or spec.placed.region,
            "workerLostTimeout": minutes("worker_lost_minutes", 15),
            # One cluster after the other, in the order of `burst.workers`. By default Kueue asks
            # all at once, and the fastest answer has the job.
            "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
            "incrementalDispatcherConfig": {"stepSize": 1},
        },
        "objectRetentionPolicies": {
            "workloads": {
                "afterFinished": f"{int(options.get('retention_hours') or 168)}h",
                # Kept finalizers of broken jobs have held quota for weeks: kueue issue 13413.
                "afterDeactivatedByKueue": f"{int(options.get('retention_hours') or 168)}h",
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
    check=_check,
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
