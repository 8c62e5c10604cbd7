"""Restricted data: on machines that nobody takes away, on GPUs that nobody else uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    get,
    indeterminate,
    is_unknown,
    leaves,
    number,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.tags import data_class
from falaj.policies.reading.types import KARPENTER_POOL, azure
from falaj.wire.documents import is_mapping

_RESTRICTED: Final = "restricted"
_CONTROLS: Final = ("uae-ia:T1.3.x", "uae-ia:T6.3.1", "iso27001:A.5.13", "iso27001:A.8.22",
                    "health-data:13")  # fmt: skip


#: Machines with a part of an L4 (https://aws.amazon.com/ec2/instance-types/g6/).
_AWS_SHARES: Final = re.compile(r"(?:ml\.)?(?:g6f|gr6f)\.[a-z0-9]+")
#: Machines with a sixth, a third or half of an A10, or a part of an MI25 or V710:
#: https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/nvadsa10v5-series
_AZURE_SHARES: Final = re.compile(
    r"standard_(?:nv(?:6|12|18)adm?s_a10_v5|nv(?:4|8|16)as_v4|nv(?:4|8|12|24)a?dm?s_v710_v5|ng\w+)"
)


def shares_gpu(name: str) -> bool:
    """Whether a machine of a type has a part of a GPU, whose rest is another customer's."""
    lower = name.strip().lower()
    return bool(_AWS_SHARES.fullmatch(lower) or _AZURE_SHARES.fullmatch(lower))


def _is_spared(resource: Resource, context: Context) -> bool:
    """Whether its data is certainly of another class."""
    found = data_class(resource, context)
    return not is_unknown(found) and found != _RESTRICTED


def _found(resource: Resource, context: Context, path: str, reason: str, certain: bool) -> Finding:
    """A violation, unless the value or the class can't be seen."""
    sure = certain and not is_unknown(data_class(resource, context))
    return (violation if sure else indeterminate)(path, reason)


#: Spot, where the market isn't named:
#: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceMarketOptionsRequest.html
_MARKET: Final = "instanceMarketOptions.marketType"
#: Values that make a machine a spot machine, by where they stand.
_SPOT: Final[dict[str, tuple[tuple[str, ...], frozenset[str]]]] = {
    "capacityType": (("spot",), frozenset(("aws:eks/nodeGroup:NodeGroup",))),
    _MARKET: (
        ("spot",),
        frozenset(("aws:ec2/instance:Instance", "aws:ec2/launchTemplate:LaunchTemplate")),
    ),
    "targetCapacitySpecification.defaultTargetCapacityType": (
        ("spot",), frozenset(("aws:ec2/fleet:Fleet",)),
    ),
    "computeResources.type": (
        ("spot", "fargate_spot"),
        frozenset(("aws:batch/computeEnvironment:ComputeEnvironment",)),
    ),
    "capacityProviderStrategies.capacityProvider": (
        ("fargate_spot",), frozenset(("aws:ecs/service:Service",)),
    ),
    "defaultCapacityProviderStrategies.capacityProvider": (
        ("fargate_spot",),
        frozenset(("aws:ecs/clusterCapacityProviders:ClusterCapacityProviders",)),
    ),
    "scaleSetPriority": (("spot", "low"), azure("containerservice:AgentPool")),
    "agentPoolProfiles.scaleSetPriority": (
        ("spot", "low"), azure("containerservice:ManagedCluster"),
    ),
    "priority": (
        ("spot", "low"), azure("compute:VirtualMachine", "containerinstance:ContainerGroup"),
    ),
    "virtualMachineProfile.priority": (
        ("spot", "low"), azure("compute:VirtualMachineScaleSet"),
    ),
    "properties.properties.vmPriority": (
        ("lowpriority",), azure("machinelearningservices:Compute"),
    ),
}  # fmt: skip
#: What is there for spot machines alone.
_ALWAYS: Final = frozenset(
    (
        "aws:ec2/spotFleetRequest:SpotFleetRequest",
        "aws:ec2/spotInstanceRequest:SpotInstanceRequest",
    )
)
#: A price means spot, wherever one is given.
_PRICES: Final[dict[str, frozenset[str]]] = {
    "spotPrice": frozenset(("aws:ec2/launchConfiguration:LaunchConfiguration",)),
    "coreInstanceGroup.bidPrice": frozenset(("aws:emr/cluster:Cluster",)),
    "masterInstanceGroup.bidPrice": frozenset(("aws:emr/cluster:Cluster",)),
    "bidPrice": frozenset(("aws:emr/instanceGroup:InstanceGroup",)),
}
_COUNTS: Final = {"scaleSettings.fixedScale.targetLowPriorityNodes": azure("batch:Pool")}
_MIXED: Final = "aws:autoscaling/group:Group"
_SHARE: Final = "mixedInstancesPolicy.instancesDistribution.onDemandPercentageAboveBaseCapacity"


def _kinds() -> frozenset[str]:
    found = {kind for _, kinds in _SPOT.values() for kind in kinds}
    for table in (_PRICES, _COUNTS):
        found |= {kind for kinds in table.values() for kind in kinds}
    return frozenset(found) | _ALWAYS | {_MIXED, KARPENTER_POOL}


@rule(
    "governance-restricted-spot",
    "Restricted data is on no spot machines",
    Severity.HIGH,
    _kinds(),
    _CONTROLS,
    "Take machines on demand or reserved ones, or give the data the class that it has.",
)
def restricted_spot(resource: Resource, context: Context) -> Iterator[Finding]:
    """The cloud takes spot machines away within minutes, with what is on them."""
    if _is_spared(resource, context):
        return
    reason = "the data is restricted, and this is a spot machine"
    if resource.kind in _ALWAYS or _is_spot_by_default(resource):
        yield _found(resource, context, "", reason, True)
    for path, (values, kinds) in _SPOT.items():
        if resource.kind in kinds:
            for where, value in select(resource.properties, path):
                if is_unknown(value) or scalar(value) in values:
                    yield _found(resource, context, where, reason, not is_unknown(value))
    for path, kinds in _PRICES.items():
        if resource.kind in kinds and (value := resource.get(path)) is not ABSENT:
            yield _found(resource, context, path, reason, not is_unknown(value))
    for path, kinds in _COUNTS.items():
        if resource.kind in kinds:
            yield from _share(resource, context, path, lambda count: count > 0)
    if resource.kind == _MIXED:
        yield from _share(resource, context, _SHARE, lambda percent: percent < 100)
    if resource.kind.endswith(":NodePool"):
        yield from _capacities(resource, context)


def _is_spot_by_default(resource: Resource) -> bool:
    options = resource.get("instanceMarketOptions")
    return is_mapping(options) and bool(options) and resource.get(_MARKET) is ABSENT


def _capacities(resource: Resource, context: Context) -> Iterator[Finding]:
    """Karpenter takes spot machines where a requirement names them
    (https://karpenter.sh/docs/concepts/nodepools/)."""
    for where, each in select(resource.properties, "spec.template.spec.requirements"):
        if text(get(each, "key")) != "karpenter.sh/capacity-type":
            continue
        if scalar(get(each, "operator")) in {"notin", "doesnotexist"}:
            continue
        for path, value in select(each, "values"):
            if is_unknown(value) or scalar(value) == "spot":
                reason = "the data is restricted, and the pool may take spot machines"
                yield _found(resource, context, f"{where}.{path}", reason, not is_unknown(value))


def _share(
    resource: Resource, context: Context, path: str, is_bad: Callable[[float], bool]
) -> Iterator[Finding]:
    value = resource.get(path)
    amount = number(value)
    if is_unknown(value) or (amount is not None and is_bad(amount)):
        reason = "the data is restricted, and a part of the machines are spot machines"
        yield _found(resource, context, path, reason, not is_unknown(value))


#: Where the type of a machine is named.
_SIZES: Final[dict[str, frozenset[str]]] = {
    "instanceType": frozenset(
        (
            "aws:ec2/instance:Instance", "aws:ec2/launchTemplate:LaunchTemplate",
            "aws:ec2/launchConfiguration:LaunchConfiguration",
            "aws:ec2/spotInstanceRequest:SpotInstanceRequest",
            "aws:sagemaker/notebookInstance:NotebookInstance",
        )
    ),
    "instanceTypes": frozenset(("aws:eks/nodeGroup:NodeGroup",)),
    "mixedInstancesPolicy.launchTemplate.overrides.instanceType": frozenset((_MIXED,)),
    "vmSize": azure("batch:Pool", "containerservice:AgentPool"),
    "agentPoolProfiles.vmSize": azure("containerservice:ManagedCluster"),
    "hardwareProfile.vmSize": azure("compute:VirtualMachine"),
    "sku.name": azure("compute:VirtualMachineScaleSet"),
    "properties.properties.vmSize": azure("machinelearningservices:Compute"),
}  # fmt: skip
#: Labels that make the device plugin share a GPU: https://github.com/NVIDIA/k8s-device-plugin
_LABELS: Final = frozenset(("nvidia.com/device-plugin.config", "nvidia.com/gpu.sharing-strategy"))
_LABELLED: Final[dict[str, frozenset[str]]] = {
    "labels": frozenset(("aws:eks/nodeGroup:NodeGroup",)),
    "nodeLabels": azure("containerservice:AgentPool"),
    "agentPoolProfiles.nodeLabels": azure("containerservice:ManagedCluster"),
}
#: Objects of Kubernetes that configure the device plugin or the GPU operator.
_PLUGIN: Final = frozenset(
    (
        "kubernetes:core/v1:ConfigMap",
        "kubernetes:helm.sh/v3:Release",
        "kubernetes:helm.sh/v4:Chart",
        "kubernetes:nvidia.com/v1:ClusterPolicy",
    )
)
_SLICING: Final = ("timeslicing", "time-slicing", "mps")


def _sharing_kinds() -> frozenset[str]:
    tables = (*_SIZES.values(), *_LABELLED.values())
    return frozenset(kind for kinds in tables for kind in kinds) | _PLUGIN


@rule(
    "governance-restricted-shared-gpu",
    "Restricted data is on no shared GPUs",
    Severity.HIGH,
    _sharing_kinds(),
    _CONTROLS,
    "Take whole GPUs, or instances of MIG inside of one's own machine, whose memory the hardware "
    "keeps apart.",
)
def restricted_shared_gpu(resource: Resource, context: Context) -> Iterator[Finding]:
    """Machines with a part of a GPU, whose rest is another customer's, and time slices or MPS,
    whose memory is not kept apart (https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/
    latest/gpu-sharing.html). MIG keeps memory and faults apart in hardware and is allowed."""
    if _is_spared(resource, context):
        return
    for path, kinds in _SIZES.items():
        if resource.kind in kinds:
            for where, value in select(resource.properties, path):
                if is_unknown(value):
                    reason = "the data is restricted, and the type of machine can't be seen"
                    yield _found(resource, context, where, reason, False)
                elif shares_gpu(text(value)):
                    reason = f"the data is restricted, and {text(value)} has a part of a GPU only"
                    yield _found(resource, context, where, reason, True)
    for path, kinds in _LABELLED.items():
        if resource.kind in kinds:
            for where, labels in select(resource.properties, path):
                yield from _labels(resource, context, where, labels)
    if resource.kind in _PLUGIN:
        yield from _configuration(resource, context)


def _labels(resource: Resource, context: Context, where: str, labels: Any) -> Iterator[Finding]:
    for path, value in leaves(labels):
        name = str(path[-1]) if path else ""
        if name not in _LABELS:
            continue
        at = f'{where}["{name}"]'
        if is_unknown(value):
            reason = "the data is restricted, and how GPUs are shared can't be seen"
            yield _found(resource, context, at, reason, False)
        elif _slices(scalar(value)):
            reason = f"the data is restricted, and GPUs are shared by {scalar(value)[:40]}"
            yield _found(resource, context, at, reason, True)


def _slices(value: str) -> bool:
    return any(each in value for each in _SLICING)


def _configuration(resource: Resource, context: Context) -> Iterator[Finding]:
    """``sharing: timeSlicing`` as keys, or in a text; only where GPUs are spoken of."""
    for path, value in leaves(resource.properties):
        keys = [str(each).lower() for each in path]
        given = scalar(value)
        in_keys = "sharing" in keys and any(_slices(each) for each in keys)
        in_text = "sharing:" in given and "nvidia.com/" in given and _slices(given)
        if in_keys or in_text:
            reason = "the data is restricted, and the device plugin shares GPUs by time or MPS"
            yield _found(resource, context, format_path(path), reason, True)


RULES: tuple[Rule, ...] = (restricted_spot, restricted_shared_gpu)
