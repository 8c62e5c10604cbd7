"""Machines that Azure's resources start: agent pools, scale sets, virtual machines, profiles.

Autoscaling moves pools and sets between two sizes. Disks of machines are billed by the size class
that they fall into: each is one disk for a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, Stack, get, is_unknown, items, text
from falaj.policies.model.values import is_true
from falaj.policies.reading.types import azure
from falaj.stacks.costs.amounts import UNSEEN, Amount, exactly, known, number, product
from falaj.stacks.costs.billing import Charge
from falaj.stacks.costs.machines import HOUR, MONTH, ONE, Kind, Reader, machines
from falaj.stacks.documents import is_mapping, mapping

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
    kind = Kind((size,) if size else (), *_bought(given))
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
            yield machines(resource, Kind(()), UNSEEN, "AKS", "pool")


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
    kind = Kind((text(size),) if text(size) else (), *_bought(given))
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


def _reservation(resource: Resource, stack: Stack) -> Iterator[Charge]:
    size = text(resource.get("sku.name"))
    kind = Kind((size,) if size else ())
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
    kind = Kind((size,) if size else (), "spot" if low else "on-demand")
    attached = text(get(given, "resourceId"))
    if not attached:
        yield machines(resource, kind, product(amount, ONE), "AI", "compute")


READERS: Final[Mapping[str, Reader]] = {
    _POOLS: _agent_pool,
    _CLUSTERS: _cluster,
    _DISKS: _own_disk,
    **dict.fromkeys(azure("compute:VirtualMachine"), _virtual_machine),
    **dict.fromkeys(azure("compute:VirtualMachineScaleSet"), _scale_set),
    **dict.fromkeys(azure("compute:CapacityReservation"), _reservation),
    **dict.fromkeys(azure("machinelearningservices:Compute"), _learning),
}
