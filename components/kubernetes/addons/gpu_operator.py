"""NVIDIA's GPU operator: device plugin, MIG, shared GPUs, health metrics; driver where needed.

Values: https://github.com/NVIDIA/gpu-operator/blob/v26.7.0/deployments/gpu-operator/values.yaml
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.catalogue.clusters import GPU, GPU_ERROR_TAINT, NODE_REPAIR
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    MONITORING,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.addons.gpu_metrics import (
    NODE,
    WINDOW_MINUTES,
    WINDOW_VARIABLES,
    listing,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.gpu_node_pool import LEAST_SLICES, MOST_SLICES, Sharing
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.node_pools import GPU_TAINT

NAMESPACE: Final = "gpu-operator"
EXPORTER_LABEL: Final = "app=nvidia-dcgm-exporter"
"""Of the exporter's pods: assets/state-dcgm-exporter/0800_daemonset.yaml of the operator."""
EXPORTER_PORT: Final = 9400
_PROFILES: Final = "falaj-sharing"
_METRICS: Final = "falaj-gpu-metrics"
#: Kubernetes labels of pods that become labels of GPU metrics: usage by tenant, cost centre and
#: queue. Every other label stays out, since each value makes time series of its own.
_CHARGE_BACK: Final = (
    r"^falaj\.io/(tenant|cost-center|component)$",
    r"^kueue\.x-k8s\.io/queue-name$",
)
#: Of agents on nodes with GPUs, those that were taken out included: whoever looks at such a node
#: needs its driver and metrics.
_TOLERATIONS: Final = [
    {"key": key, "operator": "Exists", "effect": GPU_TAINT.effect}
    for key in (GPU_TAINT.key, GPU_ERROR_TAINT)
]


@described
class GpuOperatorOptions(TypedDict):
    """Options of ``gpu-operator``."""

    driver: NotRequired[bool]
    """Whether the operator installs the driver. Default: false on EKS and AKS, whose node images
    have it; true on an ``existing`` cluster."""
    driver_packages: NotRequired[str]
    """ConfigMap in ``gpu-operator`` with the package lists of a mirror in the country: the driver
    is built on the node against the kernel's headers, which it would fetch from the
    distribution's mirrors abroad. Needed with ``driver``."""
    mig_strategy: NotRequired[Annotated[str, OneOf(("mixed", "single")), Default("mixed")]]
    """Whether parts of GPUs are resources of their own, such as ``nvidia.com/mig-1g.18gb``, which
    pools and quotas count (``mixed``), or called as whole GPUs are (``single``)."""
    metrics_seconds: NotRequired[Annotated[int, Between(5, 120), Default(15)]]
    """Seconds between readings of GPU metrics."""


def installs_driver(distribution: str, options: Mapping[str, Any]) -> bool:
    """Whether the operator brings driver and container toolkit.

    Amazon Linux 2023's NVIDIA image and AKS's managed driver have both already; a second driver on
    top of AKS's also switches off the node problem detector's GPU checks.
    """
    asked: bool | None = options["driver"]
    return distribution == "existing" if asked is None else asked


def _check(options: OptionsChecker, placed: InCluster) -> None:
    found = options.checked(GpuOperatorOptions)
    if found["driver"] and placed.distribution != "existing":
        options.say(
            "driver",
            f"given true on {placed.distribution}, whose node images have it; leave it out",
        )
        return
    drives = installs_driver(placed.distribution, found)
    where = "where the operator installs the driver (driver: false where nodes have it)"
    if drives:
        options.needed("driver_packages", where)
    elif found["driver_packages"]:
        options.say("driver_packages", "given, but the operator installs no driver; leave it out")


def sharing_profiles() -> dict[str, str]:
    """Configurations of the device plugin by the value of ``nvidia.com/device-plugin.config``.

    Names are those that pools label their nodes with. Shared GPUs are a resource of another name,
    and a pod gets one share at most, so that quotas count what pods get.
    """

    def profile(sharing: Mapping[str, Any] | None = None) -> str:
        body: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": "mixed"}}
        return json.dumps({**body, **({"sharing": sharing} if sharing else {})}, sort_keys=True)

    found = {"whole": profile()}
    for count in range(LEAST_SLICES, MOST_SLICES + 1):
        shares = [{"name": GPU, "replicas": count}]
        label = Sharing("time-slicing", None, count).label
        found[label] = profile(
            {
                "timeSlicing": {
                    "renameByDefault": True,
                    "failRequestsGreaterThanOne": True,
                    "resources": shares,
                }
            }
        )
        if count in (2, 4, 8):
            # MPS renames too; it is refused on GPUs with MIG by the plugin itself.
            found[f"mps-{count}"] = profile(
                {"mps": {"renameByDefault": True, "resources": shares}}
            )
    return found


def _values(spec: PlatformSpec) -> dict[str, Values]:
    options = spec.options("gpu-operator")
    drives = installs_driver(spec.placed.distribution, options)

    def operand(image: str, **more: Any) -> Values:
        registry, _, name = spec.repository(image).rpartition("/")
        return {"repository": registry, "image": name, "version": spec.tag(image), **more}

    absent: Values = {"enabled": False}
    return {
        "gpu-operator": {
            "nfd": {"enabled": True, "nodefeaturerules": False},
            "psa": {"enabled": True},
            "cdi": {"enabled": True},
            "mig": {"strategy": options["mig_strategy"]},
            "operator": {
                **operand("gpu-operator"),
                # Hooks, which aren't run: definitions come with the chart.
                "upgradeCRD": False,
                "cleanupCRD": False,
                "resources": resources("200m", "350Mi"),
                "nodeSelector": spec.node_selector,
            },
            "validator": operand("gpu-operator"),
            "daemonsets": {"tolerations": _TOLERATIONS, "updateStrategy": "OnDelete"},
            "driver": _driver(spec, operand) if drives else absent,
            "toolkit": operand("container-toolkit", enabled=drives),
            "devicePlugin": operand(
                "nvidia-device-plugin",
                config={
                    "create": True,
                    "name": _PROFILES,
                    "default": "whole",
                    "data": sharing_profiles(),
                },
            ),
            "gfd": operand("nvidia-device-plugin"),
            "migManager": operand("mig-manager", enabled=True, config={"default": "all-disabled"}),
            "dcgm": operand("dcgm", enabled=True),
            "dcgmExporter": operand(
                "dcgm-exporter",
                config={"name": _METRICS, "create": True, "data": listing()},
                env=[
                    {"name": each, "value": str(WINDOW_MINUTES * 60_000)}
                    for each in WINDOW_VARIABLES
                ],
                enablePodLabels=True,
                enablePodUID=False,
                podLabelAllowlistRegex=list(_CHARGE_BACK),
                serviceMonitor={
                    "enabled": spec.has(MONITORING),
                    "interval": f"{options['metrics_seconds']}s",
                    "honorLabels": True,
                    "relabelings": [
                        {
                            "sourceLabels": ["__meta_kubernetes_pod_node_name"],
                            "targetLabel": NODE,
                            "action": "replace",
                        }
                    ],
                },
            ),
            "nodeStatusExporter": absent,
            "gds": absent,
            "gdrcopy": absent,
            "vgpuManager": absent,
            "vgpuDeviceManager": absent,
            "vfioManager": absent,
            "sandboxDevicePlugin": absent,
            "ccManager": absent,
            "node-feature-discovery": _discovery(spec),
        }
    }


def _driver(spec: PlatformSpec, operand: Any) -> Values:
    values: Values = operand("gpu-driver", enabled=True)
    # With a digest alone the operator appends no name of an operating system to the tag.
    values["version"] = "sha256:" + spec.parts("gpu-driver")[3]
    values["manager"] = operand("gpu-driver-manager")
    values["repoConfig"] = {"configMapName": spec.options("gpu-operator")["driver_packages"]}
    # One node at a time, and never by draining it: a training job would be lost with each node.
    values["upgradePolicy"] = {
        "autoUpgrade": True,
        "maxParallelUpgrades": 1,
        "drain": {"enable": False},
    }
    return values


def _discovery(spec: PlatformSpec) -> Values:
    pods: Values = {"nodeSelector": spec.node_selector, "resources": resources("20m", "128Mi")}
    image = {
        "repository": spec.repository("node-feature-discovery"),
        "tag": spec.tag("node-feature-discovery"),
    }
    return {
        "image": image,
        # A hook, which isn't run.
        "postDeleteCleanup": False,
        "master": pods,
        "gc": pods,
        "worker": {**pods, "tolerations": _TOLERATIONS},
    }


def _images(spec: PlatformSpec) -> tuple[str, ...]:
    drives = installs_driver(spec.placed.distribution, spec.options("gpu-operator"))
    return (
        "gpu-operator", "container-toolkit", "nvidia-device-plugin", "mig-manager", "dcgm",
        "dcgm-exporter", "node-feature-discovery",
        *(("gpu-driver", "gpu-driver-manager") if drives else ()),
    )  # fmt: skip


GPU_OPERATOR: Final = Addon(
    name="gpu-operator",
    summary="GPUs as resources, divided by MIG or shared, with their health",
    namespaces=(
        Namespace(
            NAMESPACE, "privileged", "drivers, devices and sockets of the kubelet on the host"
        ),
    ),
    releases=(Release("gpu-operator", "gpu-operator", NAMESPACE),),
    options=GpuOperatorOptions,
    check=_check,
    images=_images,
    values=_values,
    traffic=lambda spec: {
        NAMESPACE: Traffic(
            scrapes=(EXPORTER_PORT, 8080),
            # The driver's packages come from the mirror in the country.
            endpoints=installs_driver(spec.placed.distribution, spec.options("gpu-operator")),
            callers={
                caller: (EXPORTER_PORT,)
                for caller, addon in ((MONITORING, MONITORING), (NODE_REPAIR, NODE_REPAIR))
                if spec.has(addon)
            },
        )
    },
    follows=(MONITORING,),
)
