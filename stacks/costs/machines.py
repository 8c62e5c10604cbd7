"""Charges that take more than a row of a table to read: machines of AWS and Azure, file shares.

How many machines, of which type, bought how, with which disks. Node groups and groups scale
between two sizes; schedules may move both. Who names no machine type gets the service's default,
else it can't be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, Stack, get, is_unknown, items, text
from falaj.policies.model.values import is_true
from falaj.policies.reading.types import azure
from falaj.stacks.costs.amounts import (
    UNSEEN,
    Amount,
    Unit,
    by_use,
    exactly,
    known,
    number,
    product,
)
from falaj.stacks.costs.billing import Charge
from falaj.wire.documents import is_mapping, mapping

Reader = Callable[[Resource, Stack], Iterator[Charge]]

HOUR: Final = Unit.of("hour")
MONTH: Final = Unit.of("month")
GIB_MONTH: Final = Unit.of("GiB-month")
ONE: Final = exactly(1)
SERVICE: Final = "EC2"
#: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html
_DEFAULT_NODE: Final = "t3.medium"
_DEFAULT_NODE_DISK: Final = 20
#: What a gp3 volume has without further charge (https://aws.amazon.com/ebs/pricing/).
_FREE_GP3: Final = {"iops": 3000, "throughput": 125}
_FURTHER: Final = {
    "iops": ("further operations", "IOPS-month"),
    "throughput": ("further throughput", "MiB/s-month"),
}
VOLUMES: Final = "aws:ebs/volume:Volume"
_MONITORING: Final = "aws:cloudwatch/resourceMetricsConfiguration:ResourceMetricsConfiguration"
_TEMPLATES: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_CONFIGURATIONS: Final = "aws:ec2/launchConfiguration:LaunchConfiguration"
_SCHEDULES: Final = "aws:autoscaling/schedule:Schedule"
_CAPACITIES: Final = {
    "on_demand": "on-demand",
    "spot": "spot",
    "capacity_block": "capacity-block",
    "capacity-block": "capacity-block",
}


@dataclass(frozen=True)
class Machines:
    """The machines of one resource, but for their number."""

    machines: tuple[str, ...]
    capacity: str = "on-demand"
    has_list_price: bool = True
    note: str = ""


def machines(
    resource: Resource,
    kind: Machines,
    amount: Amount,
    service: str = SERVICE,
    meter: str = "machine",
) -> Charge:
    """The charge for so many machines; `meter` as the tables call it."""
    note = kind.note or ("" if kind.machines else "the machine type can't be seen")
    return Charge(
        resource,
        service,
        meter,
        HOUR,
        amount,
        machines=kind.machines,
        capacity=kind.capacity,
        has_list_price=kind.has_list_price,
        note=note,
    )


def _instance(resource: Resource, stack: Stack) -> Iterator[Charge]:
    template = _template(resource, stack)
    kind = _of_properties(resource.properties, template)
    yield machines(resource, kind, ONE)
    yield from _disks(resource, resource.properties, ONE, template)
    if is_true(get(resource.properties, "monitoring")):
        yield _monitoring(resource, ONE)
    if is_true(get(resource.properties, "associatePublicIpAddress")):
        yield Charge(resource, "VPC", "public address", HOUR, ONE, kind="aws:ec2/eip:Eip")


def _spot_instance(resource: Resource, stack: Stack) -> Iterator[Charge]:
    for each in _instance(resource, stack):
        yield replace(each, capacity="spot") if each.capacity else each


def _of_properties(given: Mapping[str, Any], template: Mapping[str, Any] | None) -> Machines:
    """The kind of an instance, with what its launch template says besides."""
    named = text(get(given, "instanceType")) or text(get(template or {}, "instanceType"))
    own, inherited = _capacity(given), _capacity(template or {})
    capacity = inherited if own == "on-demand" else own
    tenancy = get(given, "tenancy")
    tenancy = get(template or {}, "placement.tenancy") if tenancy is ABSENT else tenancy
    shared = tenancy is ABSENT or text(tenancy) in {"", "default"}
    note = "" if shared else "not on shared hosts, which the list prices are for"
    return Machines((named,) if named else (), capacity, shared, note)


def _capacity(given: Mapping[str, Any]) -> str:
    """How a launch template or an instance buys its machines."""
    value = get(given, "instanceMarketOptions.marketType")
    if is_unknown(value):
        return ""
    if market := text(value).lower():
        return _CAPACITIES.get(market, market)
    target = get(given, "capacityReservationSpecification.capacityReservationTarget")
    return "on-demand" if target is ABSENT else "reservation"


def _template(resource: Resource, stack: Stack, path: str = "launchTemplate") -> Mapping[str, Any]:
    """The properties of the launch template that a resource names; empty where there is none."""
    for key in ("id", "name", "launchTemplateId", "launchTemplateName"):
        for each in stack.referred(resource, f"{path}.{key}"):
            if each.kind == _TEMPLATES:
                return each.properties
    return {}


def _disks(
    resource: Resource,
    given: Mapping[str, Any],
    amount: Amount,
    template: Mapping[str, Any] | None,
) -> Iterator[Charge]:
    """Disks of an instance, or of a launch template or configuration, for so many machines."""
    blocks = [get(each, "ebs") for each in items(get(template or {}, "blockDeviceMappings"))]
    blocks += items(get(given, "ebsBlockDevices"))
    root = get(given, "rootBlockDevice")
    if root is not ABSENT:
        blocks = [root, *blocks[1:]] if template and blocks else [root, *blocks]
    found = [each for each in blocks if each is not ABSENT]
    if not found:
        note = "the image decides its size"
        yield _storage(resource, product(UNSEEN, amount), note=note)
    for each in found:
        yield from volume(resource, each, amount)


def _storage(
    resource: Resource, amount: Amount, variant: tuple[str, ...] = (), note: str = ""
) -> Charge:
    return Charge(resource, "EBS", "storage", GIB_MONTH, amount, variant, kind=VOLUMES, note=note)


def volume(resource: Resource, block: Any, amount: Amount) -> Iterator[Charge]:
    """What so many volumes of EBS are charged for, from a block of their settings."""
    kind = text(get(block, "volumeType")) or text(get(block, "type"))
    size = get(block, "volumeSize")
    size = get(block, "size") if size is ABSENT else size
    note = "" if number(size) is not None else "its size can't be seen"
    variant = (kind,) if kind else ()
    yield _storage(resource, product(exactly(number(size)), amount), variant, note)
    for key, (meter, unit) in _FURTHER.items():
        value = number(get(block, key))
        free = _FREE_GP3[key] if kind == "gp3" else 0
        if value is not None and kind in {"io1", "io2", "gp3"} and value > free:
            more = product(exactly(value - free), amount)
            yield Charge(resource, "EBS", meter, Unit.of(unit), more, variant, kind=VOLUMES)


def _monitoring(resource: Resource, amount: Amount) -> Charge:
    meter = "detailed monitoring of a machine"
    return Charge(resource, "CloudWatch", meter, MONTH, amount, kind=_MONITORING)


def _node_group(resource: Resource, stack: Stack) -> Iterator[Charge]:
    template = _template(resource, stack)
    says_template = get(resource.properties, "launchTemplate") is not ABSENT
    kind = _of_properties({}, template)
    if named := tuple(filter(None, [text(each) for each in items(resource.get("instanceTypes"))])):
        kind = replace(kind, machines=named)
    elif not says_template and not kind.machines:
        kind = replace(kind, machines=(_DEFAULT_NODE,))
    bought = resource.get("capacityType")
    if is_unknown(bought):
        kind = replace(kind, capacity="", note="how they are bought can't be seen")
    elif text(bought):
        name = _CAPACITIES.get(text(bought).lower(), text(bought).lower())
        kind = replace(kind, capacity=kind.capacity if name == "on-demand" else name)
    if "windows" in text(resource.get("amiType")).lower():
        kind = replace(kind, has_list_price=False, note="Windows, which no list price is for")
    amount = _scaling(resource, "scalingConfig.minSize", "scalingConfig.maxSize")
    yield machines(resource, kind, amount, "EKS", "node group")
    if says_template:
        yield from _disks(resource, {}, amount, template)
    else:
        size = number(resource.get("diskSize"))
        each = Decimal(_DEFAULT_NODE_DISK) if size is None else size
        yield _storage(resource, product(exactly(each), amount))
    if is_true(get(template, "monitoring.enabled")):
        yield _monitoring(resource, amount)


def _scaling(resource: Resource, least: str, most: str) -> Amount:
    return Amount(number(resource.get(least)), number(resource.get(most)))


def _group(resource: Resource, stack: Stack) -> Iterator[Charge]:
    """An Auto Scaling group, of one kind of machine or mixed ones."""
    ends = [_scaling(resource, "minSize", "maxSize")]
    for each in stack.referring(resource, _SCHEDULES, "autoscalingGroupName"):
        for key in ("minSize", "maxSize", "desiredCapacity"):
            value = each.get(key)
            # -1 leaves a size as it is.
            if is_unknown(value) or number(value) is not None:
                ends.append(exactly(number(value)))
    sizes = Amount(_end(min, [e.least for e in ends]), _end(max, [e.most for e in ends]))
    mixed = get(resource.properties, "mixedInstancesPolicy")
    if mixed is not ABSENT:
        yield from _mixed(resource, stack, mixed, sizes)
    else:
        template = _template(resource, stack)
        for each in stack.referred(resource, "launchConfiguration"):
            if each.kind == _CONFIGURATIONS:
                template = each.properties
        kind = _of_properties({}, template)
        if number(get(template, "spotPrice")) is not None:
            kind = replace(kind, capacity="spot")
        yield machines(resource, kind, sizes, SERVICE, "Auto Scaling group")
        yield from _disks(resource, template, sizes, template)
        if is_true(get(template, "monitoring.enabled")) or is_true(
            get(template, "enableMonitoring")
        ):
            yield _monitoring(resource, sizes)
    if get(resource.properties, "warmPool") is not ABSENT:
        note = "machines that wait, stopped or running"
        yield Charge(resource, SERVICE, "warm pool", HOUR, UNSEEN, note=note)


def _end(choose: Callable[..., Decimal], ends: list[Decimal | None]) -> Decimal | None:
    return None if None in ends else choose(each for each in ends if each is not None)


def _mixed(resource: Resource, stack: Stack, given: Any, sizes: Amount) -> Iterator[Charge]:
    base = "mixedInstancesPolicy.launchTemplate"
    template = _template(resource, stack, f"{base}.launchTemplateSpecification")
    overrides = items(get(given, "launchTemplate.overrides"))
    named = tuple(filter(None, (text(get(each, "instanceType")) for each in overrides)))
    kind = _of_properties({}, template)
    kind = replace(kind, machines=named or kind.machines)
    weighted = any(get(each, "weightedCapacity") is not ABSENT for each in overrides)
    chosen = any(get(each, "instanceRequirements") is not ABSENT for each in overrides)
    if weighted or chosen:
        why = "machines count by weight" if weighted else "the group chooses the machine types"
        kind = replace(kind, machines=() if chosen else kind.machines, note=why)
        sizes = Amount(sizes.least if sizes.least == 0 else None, None) if weighted else sizes
    on_demand = Amount(_on_demand(given, sizes.least), _on_demand(given, sizes.most))
    spot = Amount(_rest(sizes.least, on_demand.least), _rest(sizes.most, on_demand.most))
    if _share(given) == 100:
        on_demand, spot = sizes, exactly(0)
    for capacity, amount in ((kind.capacity, on_demand), ("spot", spot)):
        if amount.most != 0:
            bought = replace(kind, capacity=capacity)
            yield machines(resource, bought, amount, SERVICE, "Auto Scaling group")
    yield from _disks(resource, {}, sizes, template)


def _share(given: Any) -> Decimal | None:
    """Percent on demand of what is above the base; None where that can't be seen.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_InstancesDistribution.html
    """
    value = get(given, "instancesDistribution.onDemandPercentageAboveBaseCapacity")
    if is_unknown(value):
        return None
    share = number(value)
    return Decimal(100) if share is None else min(share, Decimal(100))


def _on_demand(given: Any, size: Decimal | None) -> Decimal | None:
    """How many of a size are on demand: a base, and a share of what is above it."""
    value, share = get(given, "instancesDistribution.onDemandBaseCapacity"), _share(given)
    if size is None or share is None or is_unknown(value):
        return None
    base = min(number(value) or Decimal(0), size)
    return base + ((size - base) * share / 100).to_integral_value(ROUND_CEILING)


def _rest(whole: Decimal | None, part: Decimal | None) -> Decimal | None:
    return None if whole is None or part is None else whole - part


def _reservation(resource: Resource, stack: Stack) -> Iterator[Charge]:
    """Reserved capacity is paid for as if it ran; who runs in it pays for the rest."""
    named = text(resource.get("instanceType"))
    platform = text(resource.get("instancePlatform"))
    linux = platform in {"", "Linux/UNIX"}
    note = "" if linux else f"{platform}, which no list price is for"
    kind = Machines((named,) if named else (), "on-demand", linux, note)
    count = exactly(number(resource.get("instanceCount")))
    yield machines(resource, kind, count, meter="reserved machines")


def _volume(resource: Resource, stack: Stack) -> Iterator[Charge]:
    if resource.get("size") is ABSENT and resource.get("snapshotId") is not ABSENT:
        note = "its snapshot decides its size"
        yield _storage(resource, UNSEEN, note=note)
        return
    yield from volume(resource, resource.properties, ONE)


def _fleet(resource: Resource, stack: Stack) -> Iterator[Charge]:
    """Fleets choose machines themselves, by weight, from several types."""
    paths = ("targetCapacitySpecification.totalTargetCapacity", "targetCapacity")
    target = [number(resource.get(each)) for each in paths]
    nothing = Decimal(0) in target
    kind = Machines((), "", note="the fleet chooses the machines")
    size = exactly(0) if nothing else UNSEEN
    yield machines(resource, kind, size, meter="machines of the fleet")


def _batch(resource: Resource, stack: Stack) -> Iterator[Charge]:
    least = number(get(resource.properties, "computeResources.minVcpus"))
    most = number(get(resource.properties, "computeResources.maxVcpus"))
    kind = Machines((), "", note="Batch chooses the machines")
    if get(resource.properties, "computeResources") is not ABSENT:
        # They are counted in vCPUs: only that there are none is known of the machines.
        none = known(0)
        ends = Amount(none if not least else None, none if most == 0 else None)
        yield machines(resource, kind, ends, "Batch", "compute environment")


_AWS_READERS: Final[Mapping[str, Reader]] = {
    "aws:ec2/instance:Instance": _instance,
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": _spot_instance,
    "aws:ec2/spotFleetRequest:SpotFleetRequest": _fleet,
    "aws:ec2/fleet:Fleet": _fleet,
    "aws:ec2/capacityReservation:CapacityReservation": _reservation,
    "aws:autoscaling/group:Group": _group,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:batch/computeEnvironment:ComputeEnvironment": _batch,
    VOLUMES: _volume,
}


# Machines that Azure's resources start: agent pools, scale sets, virtual machines, profiles.
#
# Autoscaling moves pools and sets between two sizes. Disks of machines are billed by the size
# class that they fall into: each is one disk for a month.

_SERVICE: Final = "Virtual Machines"
_SCALING: Final = azure("monitor:AutoscaleSetting")
_CLUSTERS: Final = "azure-native:containerservice:ManagedCluster"
_DISKS: Final = "azure-native:compute:Disk"
_ADDRESSES: Final = "azure-native:network:PublicIPAddress"
_POOLS: Final = "azure-native:containerservice:AgentPool"


def _pool(resource: Resource, given: Mapping[str, Any], name: str = "") -> Iterator[Charge]:
    """An agent pool, alone or as a profile of its cluster."""
    size = text(get(given, "vmSize"))
    scales = get(given, "enableAutoScaling")
    if is_true(scales):
        amount = Amount(number(get(given, "minCount")), number(get(given, "maxCount")))
    elif is_unknown(scales):
        amount = UNSEEN
    else:
        # https://learn.microsoft.com/rest/api/aks/agent-pools/create-or-update
        count = get(given, "count")
        amount = exactly(1) if count is ABSENT else exactly(number(count))
    kind = Machines((size,) if size else (), *_bought(given))
    if text(get(given, "osType")).lower() == "windows":
        kind = replace(kind, has_list_price=False, note="Windows, which no list price is for")
    meter = f"pool {name}" if name else "pool"
    yield machines(resource, kind, amount, "AKS", meter)
    if text(get(given, "osDiskType")).lower() != "ephemeral":
        # Without a type AKS takes an ephemeral disk where the machine has room for it.
        least = amount.least if get(given, "osDiskType") is not ABSENT else known(0)
        yield _disk(resource, get(given, "osDiskSizeGB"), "", Amount(least, amount.most))
    if is_true(get(given, "enableNodePublicIP")):
        yield Charge(resource, "Public IP addresses", "address", HOUR, amount, kind=_ADDRESSES)


def _bought(given: Mapping[str, Any]) -> tuple[str, bool, str]:
    priority = get(given, "scaleSetPriority")
    priority = get(given, "priority") if priority is ABSENT else priority
    if is_unknown(priority):
        return "", True, "how they are bought can't be seen"
    if text(priority).lower() in {"spot", "low"}:
        return "spot", True, ""
    group = get(given, "capacityReservationGroupID")
    group = (
        get(given, "capacityReservation.capacityReservationGroup") if group is ABSENT else group
    )
    return ("on-demand" if group is ABSENT else "reservation"), True, ""


def _disk(resource: Resource, size: Any, kind: str, amount: Amount) -> Charge:
    given = number(size)
    variant = tuple(filter(None, (kind, f"{given.normalize():f} GiB" if given else "")))
    note = "" if given else "the machine or its image decides their size"
    return Charge(
        resource, "Managed Disks", "disk", MONTH, amount, variant, kind=_DISKS, note=note
    )


def _own_disk(resource: Resource, stack: Stack) -> Iterator[Charge]:
    yield _disk(resource, resource.get("diskSizeGB"), text(resource.get("sku.name")), ONE)


def _agent_pool(resource: Resource, stack: Stack) -> Iterator[Charge]:
    yield from _pool(resource, resource.properties)


def _cluster(resource: Resource, stack: Stack) -> Iterator[Charge]:
    own = text(resource.get("resourceName")).lower()
    apart = {
        text(each.get("agentPoolName")).lower()
        for each in stack.of_kind(_POOLS)
        if own and text(each.get("resourceName")).lower() == own
    }
    for each in items(resource.get("agentPoolProfiles")):
        name = text(get(each, "name"))
        # A resource of its own says more of the same pool.
        if is_mapping(each) and name.lower() not in apart:
            yield from _pool(resource, each, name)
        elif is_unknown(each):
            yield machines(resource, Machines(()), UNSEEN, "AKS", "pool")


def _virtual_machine(resource: Resource, stack: Stack) -> Iterator[Charge]:
    yield from _machine(
        resource, resource.get("hardwareProfile.vmSize"), ONE, "storageProfile", ""
    )


def _scale_set(resource: Resource, stack: Stack) -> Iterator[Charge]:
    capacity = resource.get("sku.capacity")
    ends = [exactly(number(capacity))]
    for each in stack.of_kind(*_SCALING):
        if any(one is resource for one in stack.referred(each, "targetResourceUri")):
            for profile in items(each.get("profiles")):
                least, most = (
                    number(get(profile, f"capacity.{end}")) for end in ("minimum", "maximum")
                )
                ends.append(Amount(least, most))
    least, most = [each.least for each in ends], [each.most for each in ends]
    amount = Amount(
        None if None in least else min(each for each in least if each is not None),
        None if None in most else max(each for each in most if each is not None),
    )
    size = resource.get("sku.name")
    yield from _machine(resource, size, amount, "scale set", "virtualMachineProfile")


def _machine(
    resource: Resource, size: Any, amount: Amount, meter: str, profile: str = ""
) -> Iterator[Charge]:
    inner = resource.get(profile) if profile else resource.properties
    given = mapping(inner)
    kind = Machines((text(size),) if text(size) else (), *_bought(given))
    disk = get(given, "storageProfile.osDisk")
    windows = get(given, "osProfile.windowsConfiguration") is not ABSENT
    if windows or text(get(disk, "osType")).lower() == "windows":
        kind = replace(kind, has_list_price=False, note="Windows, which no list price is for")
    yield machines(resource, kind, amount, _SERVICE, meter)
    disks = [disk, *items(get(given, "storageProfile.dataDisks"))]
    for each in disks:
        ephemeral = text(get(each, "diffDiskSettings.option")).lower() == "local"
        attached = text(get(each, "createOption")).lower() == "attach"
        # What is attached is a disk of its own.
        if not ephemeral and not attached:
            sort = text(get(each, "managedDisk.storageAccountType"))
            yield _disk(resource, get(each, "diskSizeGB"), sort, amount)


def _azure_reservation(resource: Resource, stack: Stack) -> Iterator[Charge]:
    size = text(resource.get("sku.name"))
    kind = Machines((size,) if size else ())
    count = exactly(number(resource.get("sku.capacity")))
    yield machines(resource, kind, count, _SERVICE, "reserved machines")


def _learning(resource: Resource, stack: Stack) -> Iterator[Charge]:
    """A compute target of a workspace of machine learning: a cluster or a machine."""
    given = resource.get("properties")
    size = text(get(given, "properties.vmSize"))
    scale = get(given, "properties.scaleSettings")
    amount = (
        Amount(number(get(scale, "minNodeCount")) or known(0), number(get(scale, "maxNodeCount")))
        if scale is not ABSENT
        else ONE
    )
    low = text(get(given, "properties.vmPriority")).lower() == "lowpriority"
    kind = Machines((size,) if size else (), "spot" if low else "on-demand")
    attached = text(get(given, "resourceId"))
    if not attached:
        yield machines(resource, kind, product(amount, ONE), "AI", "compute")


_AZURE_READERS: Final[Mapping[str, Reader]] = {
    _POOLS: _agent_pool,
    _CLUSTERS: _cluster,
    _DISKS: _own_disk,
    **dict.fromkeys(azure("compute:VirtualMachine"), _virtual_machine),
    **dict.fromkeys(azure("compute:VirtualMachineScaleSet"), _scale_set),
    **dict.fromkeys(azure("compute:CapacityReservation"), _azure_reservation),
    **dict.fromkeys(azure("machinelearningservices:Compute"), _learning),
}


# Shares of Azure's storage accounts: premium ones are billed by their size, others by use.
#
# https://learn.microsoft.com/azure/storage/files/understanding-billing

_ACCOUNTS: Final = "azure-native:storage:StorageAccount"
_FILE_SERVICE: Final = "Azure Files"


def _file_share(resource: Resource, stack: Stack) -> Iterator[Charge]:
    name = text(resource.get("accountName")).lower()
    accounts = [
        each
        for each in stack.of_kind(_ACCOUNTS)
        if name and text(each.get("accountName")).lower() == name
    ] or [each for each in stack.referred(resource, "accountName") if each.kind == _ACCOUNTS]
    kind = text(accounts[0].get("kind")) if accounts else ""
    variant = tuple(filter(None, (text(resource.get("enabledProtocols")), kind)))
    quota = number(resource.get("shareQuota"))
    if not kind:
        # Of an account that isn't in the stack: nothing is sure but what it can't exceed.
        amount = Amount(known(0), quota)
    else:
        amount = exactly(quota) if kind == "FileStorage" else by_use()
    yield Charge(resource, _FILE_SERVICE, "share", GIB_MONTH, amount, variant)


_SHARE_READERS: Final[Mapping[str, Reader]] = dict.fromkeys(
    azure("storage:FileShare"), _file_share
)


#: What reads a resource's charges, by types whose amounts take more than a row of a table.
READERS: Final[Mapping[str, Reader]] = {**_AWS_READERS, **_AZURE_READERS, **_SHARE_READERS}
