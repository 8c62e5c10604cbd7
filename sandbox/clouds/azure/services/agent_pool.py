"""Microsoft.ContainerService: the pools of machines of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    arm,
    checks,
    existing,
    links,
    machines,
    naming,
    places,
    subnets,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.services import compute
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem

POOL: Final = "azure-native:containerservice:AgentPool"
_TAINT: Final = re.compile(
    r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
    r"(?:=[A-Za-z0-9]?(?:[-\w.]{0,61}[A-Za-z0-9])?)?:(?:NoSchedule|PreferNoSchedule|NoExecute)"
)
_LABEL_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?)?")
# Source: aks/quotas-skus-regions (nodes in a cluster, with standard load balancers).
_MOST_NODES: Final = 5000
_SURGE: Final = re.compile(r"\d+%?")


def _problems(inputs: Inputs) -> Iterator[Problem]:
    name = inputs.optional_string("agentPoolName")
    if name and inputs.optional_string("osType") == "Windows" and len(name) > 6:
        yield Problem(
            "agentPoolName", f"{name!r} has {len(name)} characters; a Windows pool may have 6"
        )
    # A pool has no location of its own: what the provider is set to is the best known here.
    yield from rules(inputs, "", places.region(inputs))


def rules(inputs: Inputs, path: str, region: str | None) -> Iterator[Problem]:
    """Problems of a pool, standing alone or in its cluster's list."""
    base = f"{path}." if path else ""
    size = inputs.optional_string(f"{base}vmSize")
    yield from machines.sold(f"{base}vmSize", region, size)
    yield from checks.between(inputs, f"{base}maxPods", 10, 250)
    yield from checks.between(inputs, f"{base}osDiskSizeGB", 0, 2048, "GiB")
    yield from _counts(inputs, base)
    yield from _spot(inputs, base)
    yield from _gpu(inputs, base, region, size)
    for where, zone in inputs.strings(f"{base}availabilityZones"):
        yield from checks.one_of(where, zone, ("1", "2", "3"))
    if inputs.items(f"{base}availabilityZones") and region and places.has_zones(region) is False:
        yield Problem(
            f"{base}availabilityZones",
            f"{places.display_name(region)} has no availability zones; leave them out",
        )
    for where, text in inputs.strings(f"{base}nodeTaints"):
        if not _TAINT.fullmatch(text):
            yield Problem(where, f"{text!r} isn't a taint such as sku=gpu:NoSchedule")
    yield from _labels(inputs, base)
    surge = inputs.optional_string(f"{base}upgradeSettings.maxSurge")
    if surge and not _SURGE.fullmatch(surge):
        yield Problem(
            f"{base}upgradeSettings.maxSurge", f"{surge!r} isn't a number or a share such as 33%"
        )
    yield from checks.resource_id(
        f"{base}vnetSubnetID", inputs.optional_string(f"{base}vnetSubnetID"), subnets.TYPE
    )
    yield from checks.resource_id(
        f"{base}podSubnetID", inputs.optional_string(f"{base}podSubnetID"), subnets.TYPE
    )
    yield from checks.resource_id(
        f"{base}proximityPlacementGroupID",
        inputs.optional_string(f"{base}proximityPlacementGroupID"),
        "Microsoft.Compute/proximityPlacementGroups",
    )
    yield from checks.resource_id(
        f"{base}capacityReservationGroupID",
        inputs.optional_string(f"{base}capacityReservationGroupID"),
        "Microsoft.Compute/capacityReservationGroups",
    )


def _counts(inputs: Inputs, base: str) -> Iterator[Problem]:
    is_system = inputs.optional_string(f"{base}mode") == "System"
    least = 1 if is_system else 0
    for name in ("count", "minCount", "maxCount"):
        yield from checks.between(inputs, f"{base}{name}", least, 1000)
    low, high = inputs.number(f"{base}minCount"), inputs.number(f"{base}maxCount")
    if inputs.flag(f"{base}enableAutoScaling"):
        for name in ("minCount", "maxCount"):
            yield from checks.needs(inputs, f"{base}{name}", "enableAutoScaling needs it")
        count = inputs.number(f"{base}count")
        if None not in (count, low, high) and not (low or 0) <= (count or 0) <= (high or 0):
            yield Problem(
                f"{base}count",
                f"{count:g} isn't between minCount and maxCount; start "
                "inside them or leave it out",
            )
    elif inputs.at(f"{base}enableAutoScaling") in (None, False):
        for name in ("minCount", "maxCount"):
            if inputs.is_given(f"{base}{name}"):
                yield Problem(f"{base}{name}", "goes with enableAutoScaling only")
    if low is not None and high is not None and low > high:
        yield Problem(f"{base}maxCount", f"{high:g} is less than minCount {low:g}")


def _spot(inputs: Inputs, base: str) -> Iterator[Problem]:
    priority = inputs.at(f"{base}scaleSetPriority")
    if priority == "Spot":
        if inputs.optional_string(f"{base}mode") == "System":
            yield Problem(
                f"{base}scaleSetPriority",
                "a pool of the mode System can't be spot; choose the mode User",
            )
        if inputs.is_given(f"{base}capacityReservationGroupID"):
            yield Problem(f"{base}capacityReservationGroupID", "doesn't go with spot machines")
        if inputs.is_absent(f"{base}scaleSetEvictionPolicy"):
            yield Problem(
                f"{base}scaleSetEvictionPolicy",
                "is missing: spot machines are stopped "
                "(Deallocate) or deleted (Delete) when taken away",
            )
        price = inputs.number(f"{base}spotMaxPrice")
        if price is not None and price != -1 and price <= 0:
            yield Problem(
                f"{base}spotMaxPrice",
                f"{price:g} isn't allowed; allowed are -1 (the regular price) and prices above 0",
            )
    elif priority in (None, "Regular"):
        for name in ("scaleSetEvictionPolicy", "spotMaxPrice"):
            if inputs.is_given(f"{base}{name}"):
                yield Problem(f"{base}{name}", "goes with scaleSetPriority Spot only")


def _gpu(inputs: Inputs, base: str, region: str | None, size: str | None) -> Iterator[Problem]:
    if size is None:
        return
    profile = inputs.optional_string(f"{base}gpuInstanceProfile")
    if profile and not machines.can_be_partitioned(region, size):
        yield Problem(
            f"{base}gpuInstanceProfile",
            f"{size} has no GPU with MIG; choose a size "
            "with an A100, H100 or H200, or leave the profile out",
        )
    yield from checks.one_of(f"{base}gpuInstanceProfile", profile, machines.MIG)
    if inputs.is_given(f"{base}gpuProfile.driver") and not machines.is_gpu(region, size):
        yield Problem(f"{base}gpuProfile", f"{size} has no GPU; leave it out")
    if (
        machines.is_gpu(region, size)
        and inputs.optional_string(f"{base}mode") == "System"
        and profile
    ):
        yield Problem(f"{base}mode", "a partitioned GPU pool can't be of the mode System")
    if machines.is_arm(size) and inputs.optional_string(f"{base}osType") == "Windows":
        yield Problem(f"{base}osType", f"{size} is an Arm size, which Windows doesn't run on here")


def _labels(inputs: Inputs, base: str) -> Iterator[Problem]:
    labels = inputs.at(f"{base}nodeLabels")
    for key in inputs.keys(f"{base}nodeLabels"):
        where = f'{base}nodeLabels["{key}"]'
        value = labels.get(key)
        if not _LABEL_KEY.fullmatch(key):
            yield Problem(
                where, "isn't a name for a label; it looks like team or example.com/team"
            )
        if key.startswith("kubernetes.azure.com/"):
            yield Problem(
                where, "begins with kubernetes.azure.com, which is AKS's own; choose another name"
            )
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            yield Problem(
                where,
                f"{value!r} isn't a label's value: at most 63 letters, digits, "
                "hyphens, underscores and periods",
            )


def placement(resource: Resource, path: str, region: str | None) -> Iterator[Problem]:
    """Conflicts of a pool's subnets, reservations and group with what exists."""
    base = f"{path}." if path else ""
    yield from subnets.fits(resource, f"{base}vnetSubnetID", where=region)
    yield from subnets.fits(
        resource,
        f"{base}podSubnetID",
        where=region,
        delegated_to="Microsoft.ContainerService/managedClusters",
    )
    yield from _room(resource, base)
    yield from links.same_region(resource, f"{base}proximityPlacementGroupID", region)
    yield from links.same_region(resource, f"{base}capacityReservationGroupID", region)
    group = resource.optional_string(f"{base}capacityReservationGroupID")
    if group:
        yield from compute.reserved(
            resource,
            f"{base}capacityReservationGroupID",
            group,
            resource.optional_string(f"{base}vmSize"),
        )


def _room(resource: Resource, base: str) -> Iterator[Problem]:
    """A problem when the subnet has fewer addresses than the pool starts with nodes."""
    id, count = resource.optional_string(f"{base}vnetSubnetID"), resource.number(f"{base}count")
    subnet = subnets.find(resource.world, id) if id else None
    sizes = [block.num_addresses for block in subnets.blocks(subnet)] if subnet else []
    # Azure keeps five addresses of each subnet (virtual-networks-faq).
    if count is not None and sizes and count > sum(sizes) - 5 * len(sizes):
        yield Problem(
            f"{base}count",
            f"{count:g} nodes don't fit the subnet, which has {sum(sizes) - 5 * len(sizes)} "
            "addresses to give; take a larger subnet or fewer nodes",
        )


def _conflicts(resource: Resource) -> Iterator[Problem]:
    cluster = existing.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    region = existing.region_of(cluster)
    if cluster is None:
        return
    yield from placement(resource, "", region)
    if region != places.region(resource):
        yield from rules(resource, "", region)
    asked = Resource.of(cluster, resource.world)
    yield from _nodes(resource, asked)
    first = asked.optional_string("agentPoolProfiles[0].vnetSubnetID")
    own = resource.optional_string("vnetSubnetID")
    if first and own and arm.parse(first) and arm.parse(own):
        here, there = own.rsplit("/", 2)[0], first.rsplit("/", 2)[0]
        if not arm.same(here, there):
            yield Problem(
                "vnetSubnetID",
                "is in another network than the cluster's first pool; "
                "all pools of a cluster are in one network",
            )
    version, newest = (
        resource.optional_string("orchestratorVersion"),
        asked.optional_string("kubernetesVersion"),
    )
    if version and newest and _numbers(version) > _numbers(newest):
        yield Problem(
            "orchestratorVersion",
            f"{version} is newer than the cluster's {newest}; upgrade the cluster first",
        )


def nodes(inputs: Inputs, path: str) -> float:
    """The most nodes that a pool can have."""
    base = f"{path}." if path else ""
    counts = (inputs.number(f"{base}{name}") for name in ("count", "maxCount"))
    return max((count for count in counts if count is not None), default=1)


def _nodes(resource: Resource, cluster: Resource) -> Iterator[Problem]:
    """A problem when the cluster's pools together can have more nodes than AKS allows."""
    others = sum(nodes(cluster, path) for path, _ in cluster.items("agentPoolProfiles")) + sum(
        nodes(Inputs(made.inputs), "")
        for made in resource.world.all(POOL)
        if arm.is_below(made.id, cluster.id) and not arm.same(made.id, resource.id)
    )
    if others + nodes(resource, "") > _MOST_NODES:
        yield Problem(
            "maxCount",
            f"{nodes(resource, ''):g} nodes and the other pools' {others:g} are more than the "
            f"{_MOST_NODES} that a cluster can have; lower one of them",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _obstacles(resource: Resource) -> Iterator[Problem]:
    if resource.optional_string("mode") != "System":
        return
    parent = resource.id.rsplit("/", 2)[0]
    cluster = existing.by_id(resource.world, parent)
    if cluster is None:
        return
    asked = Inputs(cluster.inputs)
    inline = [path for path, _ in asked.items("agentPoolProfiles")]
    others = [
        made
        for made in resource.world.all(POOL)
        if arm.is_below(made.id, parent)
        and not arm.same(made.id, resource.id)
        and made.inputs.get("mode") == "System"
    ]
    if not others and not any(
        asked.optional_string(f"{path}.mode") == "System" for path in inline
    ):
        yield Problem("", "it is the cluster's last pool of the mode System; make another first")


def computed(inputs: Inputs, path: str, version: str | None) -> dict[str, Any]:
    """What AKS adds to a pool."""
    base = f"{path}." if path else ""
    own = inputs.optional_string(f"{base}orchestratorVersion") or version or ""
    return {
        "currentOrchestratorVersion": own,
        "orchestratorVersion": own,
        "nodeImageVersion": "AKSUbuntu-2204gen2containerd-202601.01.0",
        "provisioningState": "Succeeded",
        "powerState": {"code": "Running"},
        "osType": inputs.optional_string(f"{base}osType") or "Linux",
        "osDiskType": inputs.optional_string(f"{base}osDiskType") or "Managed",
        "count": inputs.number(f"{base}count")
        if inputs.is_given(f"{base}count")
        else (inputs.number(f"{base}minCount") or 0 if inputs.is_given(f"{base}minCount") else 1),
    }


def _outputs(resource: Resource) -> dict[str, Any]:
    parent = resource.id.rsplit("/", 2)[0]
    cluster = existing.by_id(resource.world, parent) if resource.world else None
    version = (
        Inputs(cluster.outputs).optional_string("currentKubernetesVersion") if cluster else None
    )
    return {
        **computed(resource, "", version),
        # In outputs of a pool this is the machines' kind, not Resource Manager's type.
        "type": resource.optional_string("type") or "VirtualMachineScaleSets",
    }


KINDS: Final = (
    AzureKind(
        POOL,
        "Microsoft.ContainerService/managedClusters/{resourceName}/agentPools/{agentPoolName}",
        name=naming.AGENT_POOL,
        inline=("agentPoolProfiles", "name"),
        # vmSize and gpuInstanceProfile are in the vendor's own list (pulumi-azure-native,
        # provider/pkg/gen/replacement.go); AKS refuses to change the others of an existing pool.
        replaces=(
            "vmSize", "gpuInstanceProfile", "osType", "osDiskType", "osDiskSizeGB",
            "availabilityZones", "vnetSubnetID", "podSubnetID", "maxPods", "scaleSetPriority",
            "scaleSetEvictionPolicy", "spotMaxPrice", "enableUltraSSD", "enableEncryptionAtHost",
            "enableNodePublicIP", "kubeletDiskType", "proximityPlacementGroupID",
            "capacityReservationGroupID", "hostGroupID", "type", "workloadRuntime", "gpuProfile",
            "kubeletConfig", "linuxOSConfig", "networkProfile.nodePublicIPTags", "creationData",
        ),
        rules=(_problems,),
        crosschecks=(_conflicts,),
        delete_blockers=(_obstacles,),
        computed=_outputs,
    ),
)  # fmt: skip
