"""When replicas come and go, how many may go at once, and what Prometheus asks them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes._objects import Manifest, format_number
from falaj.components.kubernetes.inference_service.arguments import InferenceServiceSpec, Version

_POLL_SECONDS: Final = 15
_SLEEP_SECONDS: Final = 300
_SCRAPE: Final = "15s"


def scaling(spec: InferenceServiceSpec) -> list[Manifest]:
    """For each version its autoscaler and its budget of disruptions; one monitor for all."""
    each = [(_scaled_object(spec, one), _budget(spec, one)) for one in spec.versions]
    return [*(manifest for pair in each for manifest in pair), _monitor(spec)]


def queue_query(spec: InferenceServiceSpec, version: Version) -> str:
    """Mean milliseconds in the queue, over all requests of the last minute (PromQL)."""
    chosen = _chosen(spec, version)
    name = "falaj_inference_queue_duration_seconds"
    # Without requests there is no time either: 0, where a quotient would be no number.
    return (
        f"1000 * sum(rate({name}_sum{chosen}[1m])) / "
        f"clamp_min(sum(rate({name}_count{chosen}[1m])), 0.001)"
    )


def gpu_query(spec: InferenceServiceSpec, version: Version) -> str:
    """Mean use of the replicas' GPUs in percent (PromQL): the DCGM exporter's profiling metric.

    https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#profiling
    """
    return f"100 * avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE{_chosen(spec, version)})"


def wake_query(spec: InferenceServiceSpec) -> str:
    """Requests per second that another tier wants to pass on (PromQL)."""
    tier = spec.access.overflow_from
    chosen = f'{{namespace="{spec.namespace}",pod=~"{tier}-v[0-9]+-.*"}}'
    return f"sum(rate(falaj_inference_overflow_wanted_total{chosen}[1m]))"


def _chosen(spec: InferenceServiceSpec, version: Version) -> str:
    return f'{{namespace="{spec.namespace}",pod=~"{spec.of(version)}-.*"}}'


def _scaled_object(spec: InferenceServiceSpec, version: Version) -> Manifest:
    scaling, gpu = spec.scaling, spec.tier == "gpu"
    # Means are compared as they are; KEDA would divide sums by the replicas.
    triggers = [
        _prometheus(
            spec, "queue", queue_query(spec, version), format_number(scaling.target_queue_ms)
        )
    ]
    target = str(scaling.target_use_percent)
    if gpu:
        triggers.append(_prometheus(spec, "gpu", gpu_query(spec, version), target))
    elif not scaling.to_zero:
        # A model of microseconds never queues: its cores are what fills up.
        triggers.append(
            {"type": "cpu", "metricType": "Utilization", "metadata": {"value": target}}
        )
    if scaling.to_zero and spec.access.overflow_from:
        triggers.append(_prometheus(spec, "overflow", wake_query(spec), "100"))
    if scaling.hours is not None:
        triggers.append(
            {
                "type": "cron",
                "metadata": {**scaling.hours, "desiredReplicas": str(version.least)},
            }
        )
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": spec.metadata(spec.of(version), version),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": spec.of(version),
            },
            "minReplicaCount": 0 if scaling.to_zero else version.least,
            "maxReplicaCount": version.most,
            "pollingInterval": _POLL_SECONDS,
            "cooldownPeriod": _SLEEP_SECONDS,
            # Without Prometheus nobody knows the load: no replica goes then.
            "fallback": {
                "failureThreshold": 4,
                "replicas": version.least,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": _behavior(gpu)},
            },
            "triggers": triggers,
        },
    }  # fmt: skip


def _prometheus(
    spec: InferenceServiceSpec, name: str, query: str, threshold: str
) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": name,
        "metricType": "Value",
        "metadata": {
            "serverAddress": spec.scaling.prometheus,
            "query": query,
            "threshold": threshold,
            "activationThreshold": "0",
            "ignoreNullValues": "true",
        },
    }


def _behavior(gpu: bool) -> dict[str, Any]:
    """Up at once by as much as there is, or four; down slowly, as models are long in loading."""
    window = 600 if gpu else 300
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 30 if gpu else 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 30},
                {"type": "Pods", "value": 4, "periodSeconds": 30},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": window,
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 20, "periodSeconds": 60}],
        },
    }


def _budget(spec: InferenceServiceSpec, version: Version) -> Manifest:
    """One at a time goes when nodes are emptied; one that isn't ready may always go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": spec.metadata(spec.of(version), version),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": spec.selector(version)},
        },
    }


def _monitor(spec: InferenceServiceSpec) -> Manifest:
    about = spec.metadata(spec.name)
    labels = (TENANT_LABEL, "falaj.io/version")
    return pod_monitor(spec, about, spec.selector(), host=spec.host, labels=labels)


def pod_monitor(
    spec: InferenceServiceSpec, about: Mapping[str, Any], selector: Mapping[str, str], *,
    host: str, labels: Sequence[str] = (TENANT_LABEL,),
) -> Manifest:  # fmt: skip
    """Prometheus shows a certificate that may observe and nothing else.

    Args:
        spec: the service's.
        about: metadata.
        selector: labels of the pods.
        host: what their certificate is for, which is of the issuer of the replicas'.
        labels: of pods, that series get.
    """

    def of(name: str, key: str) -> dict[str, str]:
        return {"name": f"{spec.name}-{name}", "key": key}

    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": dict(about),
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "podTargetLabels": list(labels),
            "podMetricsEndpoints": [
                {
                    "port": "https",
                    "scheme": "https",
                    "path": "/metrics",
                    "interval": _SCRAPE,
                    "tlsConfig": {
                        "serverName": host,
                        "minVersion": "TLS13",
                        "ca": {"secret": of("tls", "ca.crt")},
                        "cert": {"secret": of("scraper", "tls.crt")},
                        "keySecret": of("scraper", "tls.key"),
                    },
                }
            ],
        },
    }
