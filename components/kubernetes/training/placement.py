"""Which nodes, which devices of theirs, and how close together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from falaj.components import catalogue
from falaj.components.catalogue.clusters import GPU, REGION_LABEL, TIME_SLICE
from falaj.components.kubernetes._placed import CLOUDS, InCluster
from falaj.components.kubernetes._validation import options
from falaj.components.kubernetes.training.arguments import FABRICS as EVERY_FABRIC
from falaj.components.kubernetes.training.arguments import Placement, TopologyArgs
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.node_pools import CAPACITY, FABRIC, FLAVOR, GPU_TAINT

FABRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "eks": ("none", "efa"),
    "aks": ("none", "infiniband"),
    "existing": ("none", "infiniband"),
}
LEVELS: Final[Mapping[str, Mapping[str, str]]] = {
    "eks": {
        "block": "topology.k8s.aws/network-node-layer-2",
        "rack": "topology.k8s.aws/network-node-layer-3",
        "node": "kubernetes.io/hostname",
    },
    "aks": {"block": "falaj.io/block", "rack": "falaj.io/rack", "node": "kubernetes.io/hostname"},
    "existing": {
        "block": "falaj.io/block", "rack": "falaj.io/rack", "node": "kubernetes.io/hostname",
    },
}  # fmt: skip
"""Labels of nodes that Kueue's topology of the distribution has. AWS numbers its layers from the
top: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-topology.html"""

#: Resources of an SR-IOV device plugin (one per GPU), and of pages that libfabric registers:
#: github.com/Azure/aks-rdma-infiniband; aws-samples/awsome-distributed-training.
INFINIBAND: Final = "rdma/ib"
EFA: Final = "vpc.amazonaws.com/efa"
FABRIC_DEVICES: Final[Mapping[str, str]] = {
    "eks": EFA, "aks": INFINIBAND, "existing": INFINIBAND,
}  # fmt: skip
"""What a pod asks for to use the fabric, by distribution."""
PAGES: Final = "hugepages-2Mi"
EFA_PAGES_MIB: Final = 5120
"""Of each pod that uses EFA."""

_MIG: Final = re.compile(r"-(mig-\d+g\.\d+gb)(-|$)")
_SLICES: Final = re.compile(r"-time-slicing-\d+(-|$)")
_CAPACITY: Final = re.compile(r"-(spot|reservation|capacity-block)$")
#: Seconds that a gang of idle GPUs waits for a node that doesn't answer; Kubernetes waits 300.
_UNREACHABLE_SECONDS: Final = 60


def is_gpu_flavor(flavor: str) -> bool:
    """Whether nodes of the flavor have GPUs."""
    return bool(flavor) and not flavor.startswith("cpu")


def gpu_of(flavor: str) -> str:
    """Model of the flavor's GPU: ``h200`` of ``h200-mig-1g.18gb-spot``."""
    return _SLICES.sub("", _MIG.sub("", _CAPACITY.sub("", flavor))).rstrip("-")


def devices(flavor: str, gpus: int, errors: ArgumentErrors) -> dict[str, str]:
    """GPUs, or fractions of one, by the name of the resource."""
    if not is_gpu_flavor(flavor):
        if gpus and flavor:
            errors.say(
                "gpus_per_node", f"given {gpus}, but nodes of flavor {flavor!r} have no GPUs"
            )
        return {}
    if gpus == 0:
        errors.say("gpus_per_node", f"given 0, but nodes of flavor {flavor!r} are for GPUs")
        return {}
    found = _MIG.search(flavor)
    if (found or _SLICES.search(flavor)) and gpus > 1:
        errors.say(
            "gpus_per_node",
            f"given {gpus}, but a process can use only one fraction of a GPU and NCCL joins none: "
            "allowed is 1, or a flavor of whole GPUs",
        )
    if found:
        return {f"nvidia.com/{found[1]}": "1"}
    return {TIME_SLICE if _SLICES.search(flavor) else GPU: str(gpus)}


def computing(cpus: float, memory_gib: float, scratch_gib: int) -> dict[str, str]:
    """What a pod asks for beside devices; its disk is a GiB more, for logs and its container."""
    return {
        "cpu": f"{round(cpus * 1000)}m",
        "memory": f"{round(memory_gib * 1024)}Mi",
        "ephemeral-storage": f"{scratch_gib + 1}Gi",
    }


def is_fraction(flavor: str) -> bool:
    """Whether pods get a part of a GPU."""
    return bool(_MIG.search(flavor) or _SLICES.search(flavor))


def fabric_devices(
    given: Mapping[str, Any], placed: InCluster, flavor: str, gpus: int, errors: ArgumentErrors
) -> tuple[str, dict[str, str]]:
    """The argument ``fabric``, checked but for the distribution, and what a pod asks for."""
    fabric: object = given["fabric"]
    if EVERY_FABRIC.allows(fabric):
        errors.choice("fabric", fabric, FABRICS[placed.distribution])
    if given.get("machine") is not None and fabric != "efa":
        errors.say("machine", "is for fabric 'efa' alone, whose interfaces it tells")
    if fabric == "none" or fabric not in FABRICS[placed.distribution]:
        return "none", {}
    if not is_gpu_flavor(flavor) or is_fraction(flavor):
        errors.say("fabric", f"given {fabric!r}, which is for whole GPUs, not for {flavor!r}")
        return "none", {}
    if fabric == "infiniband":
        return "infiniband", {INFINIBAND: str(gpus)}
    return "efa", _efa(given, placed, gpu_of(flavor), gpus, errors)


def _efa(
    given: Mapping[str, Any], placed: InCluster, gpu: str, gpus: int, errors: ArgumentErrors
) -> dict[str, str]:
    """EFA interfaces of the machine: all for all of its GPUs, else their share."""
    try:
        place = catalogue.place(CLOUDS[placed.distribution], placed.region)
        named: str | None = given.get("machine")
        machine = (
            place.machine(named) if named is not None
            else place.resolve(gpu=gpu.upper(), fabric="efa")
        )  # fmt: skip
    except catalogue.CatalogueError as error:
        errors.say("machine" if given.get("machine") is not None else "fabric", str(error))
        return {}
    have = int(machine.gpu_count)
    if gpus > have:
        errors.add("gpus_per_node", gpus, f"at most {have}, which {machine} has")
        return {}
    count = machine.efa_interfaces * gpus // have
    if count == 0:
        errors.say(
            "fabric",
            f"given 'efa', but {machine} has {machine.efa_interfaces} interface(s) for {have} "
            f"GPU(s), which leaves none for {gpus}; ask for all of them or choose another machine",
        )
        return {}
    return {EFA: str(count), PAGES: f"{EFA_PAGES_MIB}Mi"}


def checked_topology(
    given: Mapping[str, Any], placed: InCluster, errors: ArgumentErrors
) -> tuple[str | None, str]:
    """The argument ``topology``: the label of the level, and how strict it is."""
    if given.get("topology") is None:
        return None, "required"
    asked = options("topology", given["topology"], TopologyArgs, errors)
    levels = LEVELS[placed.distribution]
    found = errors.checked_only(asked, TopologyArgs, at="topology.")
    return levels.get(str(found["level"])), str(found["mode"])


def pod_placement(placed: InCluster, placement: Placement) -> dict[str, Any]:
    """Fields of a pod that say which nodes it may be on."""
    wanted = {FLAVOR: placement.flavor}
    if not placement.further_regions:
        wanted = {**placed.node_selector, **wanted}
    if placement.fabric != "none":
        wanted[FABRIC] = placement.fabric
    found: dict[str, Any] = {"nodeSelector": wanted}
    demands: list[dict[str, Any]] = []
    if placement.further_regions:
        # Which of them it is, the flavour's labels say once a cluster admitted the job.
        regions = [placed.region, *placement.further_regions]
        demands.append({"key": REGION_LABEL, "operator": "In", "values": regions})
    if not placement.spot:
        demands.append({"key": CAPACITY, "operator": "NotIn", "values": ["spot"]})
    if placed.zones:
        demands.append(
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(placed.zones)}
        )
    if demands:
        required = {"nodeSelectorTerms": [{"matchExpressions": demands}]}
        found["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    found["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _UNREACHABLE_SECONDS,
        }
        for condition in ("not-ready", "unreachable")
    ]
    if is_gpu_flavor(placement.flavor):
        found["tolerations"].append(
            {
                "key": GPU_TAINT.key,
                "operator": "Equal",
                "value": GPU_TAINT.value,
                "effect": GPU_TAINT.effect,
            }
        )
    return found


def topology_annotations(placement: Placement) -> dict[str, str]:
    """What tells Kueue how close together a gang must be."""
    if placement.topology_level is None:
        return {}
    key = f"kueue.x-k8s.io/podset-{placement.topology_mode}-topology"
    return {key: placement.topology_level}
