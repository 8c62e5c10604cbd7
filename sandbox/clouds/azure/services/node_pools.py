"""Microsoft.ContainerService: the pools of machines of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import kinds, naming, regions, relations, resources, subnets
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.services import compute
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    Reference,
    Rule,
    between,
    equals,
    formed,
    given,
    is_off,
    is_on,
    one_of,
    refused,
    required,
    when,
)
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
#: Kubernetes' own skew of kubelets: kubernetes.io/releases/version-skew-policy.
_MOST_BEHIND: Final = 3
_SURGE: Final = re.compile(r"\d+%?")


_NAMED: Final[Mapping[str, str]] = {
    "vnetSubnetID": subnets.TYPE,
    "podSubnetID": subnets.TYPE,
    "proximityPlacementGroupID": "Microsoft.Compute/proximityPlacementGroups",
    "capacityReservationGroupID": "Microsoft.Compute/capacityReservationGroups",
}
"""What a pool names by its id, with its type."""


def references(place: str = "") -> tuple[Reference, ...]:
    """What a pool refers to, standing alone or in its cluster's list."""
    return tuple(relations.to(f"{place}{path}", type_) for path, type_ in _NAMED.items())


def _windows_name(inputs: Inputs) -> Iterator[Problem]:
    name = inputs.optional_string("agentPoolName")
    if name and inputs.optional_string("osType") == "Windows" and len(name) > 6:
        yield Problem(
            "agentPoolName", f"{name!r} has {len(name)} characters; a Windows pool may have 6"
        )


def _zones(inputs: Inputs) -> Iterator[Problem]:
    # A pool has no location of its own: what the provider is set to is the best known here.
    region = regions.region_of(inputs)
    if inputs.items("availabilityZones") and region and regions.has_zones(region) is False:
        yield Problem(
            "availabilityZones",
            f"{regions.display_name(region)} has no availability zones; leave them out",
        )


def _counts(inputs: Inputs) -> Iterator[Problem]:
    least = 1 if inputs.optional_string("mode") == "System" else 0
    for name in ("count", "minCount", "maxCount"):
        yield from between(name, least, 1000)(inputs)
    count, low, high = (inputs.number(name) for name in ("count", "minCount", "maxCount"))
    if low is None or high is None:
        return
    if low > high:
        yield Problem("maxCount", f"{high:g} is less than minCount {low:g}")
    if inputs.flag("enableAutoScaling") and count is not None and not low <= count <= high:
        yield Problem(
            "count",
            f"{count:g} isn't between minCount and maxCount; start inside them or leave it out",
        )


def _spot_price(inputs: Inputs) -> Iterator[Problem]:
    price = inputs.number("spotMaxPrice")
    if price is not None and price != -1 and price <= 0:
        yield Problem(
            "spotMaxPrice",
            f"{price:g} isn't allowed; allowed are -1 (the regular price) and prices above 0",
        )


def _is_regular(inputs: Inputs) -> bool:
    return inputs.at("scaleSetPriority") in (None, "Regular")


def _gpu(inputs: Inputs) -> Iterator[Problem]:
    region, size = regions.region_of(inputs), inputs.optional_string("vmSize")
    yield from regions.sold("vmSize", region, size)
    if size is None:
        return
    profile = inputs.optional_string("gpuInstanceProfile")
    if profile and not regions.can_be_partitioned(region, size):
        yield Problem(
            "gpuInstanceProfile",
            f"{size} has no GPU with MIG; choose a size "
            "with an A100, H100 or H200, or leave the profile out",
        )
    if inputs.is_given("gpuProfile.driver") and not regions.is_gpu(region, size):
        yield Problem("gpuProfile", f"{size} has no GPU; leave it out")
    if regions.is_gpu(region, size) and inputs.optional_string("mode") == "System" and profile:
        yield Problem("mode", "a partitioned GPU pool can't be of the mode System")
    if regions.is_arm(size) and inputs.optional_string("osType") == "Windows":
        yield Problem("osType", f"{size} is an Arm size, which Windows doesn't run on here")


def _labels(inputs: Inputs) -> Iterator[Problem]:
    labels = inputs.at("nodeLabels")
    for key in inputs.keys("nodeLabels"):
        where = f'nodeLabels["{key}"]'
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


_LEAST_SYSTEM_VCPU: Final = 2
"""aks/use-system-pools: burstable sizes and those with less aren't taken for system pools."""


def _system_size(inputs: Inputs) -> Iterator[Problem]:
    size = inputs.optional_string("vmSize")
    processors = regions.vcpu(regions.region_of(inputs), size) if size else None
    if processors is not None and processors < _LEAST_SYSTEM_VCPU:
        yield Problem(
            "vmSize",
            f"{size} has {processors:g} vCPU, which is too small for the mode System; take a size "
            f"with {_LEAST_SYSTEM_VCPU} at least",
        )


RULES: Final[tuple[Rule, ...]] = (
    _gpu,
    one_of("gpuInstanceProfile", regions.MIG),
    between("maxPods", 10, 250),
    when(
        equals("mode", "System"),
        refused("osType", "a pool of the mode System runs Linux", equals("osType", "Windows")),
        _system_size,
    ),
    between("osDiskSizeGB", 0, 2048, "GiB"),
    _counts,
    when(
        is_on("enableAutoScaling"),
        required("minCount", "enableAutoScaling needs it"),
        required("maxCount", "enableAutoScaling needs it"),
    ),
    when(
        is_off("enableAutoScaling"),
        refused("minCount", "goes with enableAutoScaling only", given("minCount")),
        refused("maxCount", "goes with enableAutoScaling only", given("maxCount")),
    ),
    when(
        equals("scaleSetPriority", "Spot"),
        refused(
            "scaleSetPriority",
            "a pool of the mode System can't be spot; choose the mode User",
            equals("mode", "System"),
        ),
        refused(
            "capacityReservationGroupID",
            "doesn't go with spot machines",
            given("capacityReservationGroupID"),
        ),
        required(
            "scaleSetEvictionPolicy",
            "spot machines are stopped (Deallocate) or deleted (Delete) when taken away",
        ),
        _spot_price,
    ),
    when(
        _is_regular,
        refused(
            "scaleSetEvictionPolicy",
            "goes with scaleSetPriority Spot only",
            given("scaleSetEvictionPolicy"),
        ),
        refused("spotMaxPrice", "goes with scaleSetPriority Spot only", given("spotMaxPrice")),
    ),
    one_of("availabilityZones[]", ("1", "2", "3")),
    _zones,
    formed("nodeTaints[]", _TAINT, "isn't a taint such as sku=gpu:NoSchedule"),
    _labels,
    formed("upgradeSettings.maxSurge", _SURGE, "isn't a number or a share such as 33%"),
)
"""What holds of a pool, standing alone or in its cluster's list."""


def placement(resource: Resource, region: str | None) -> Iterator[Problem]:
    """Conflicts of a pool's subnets, reservations and group with what exists."""
    yield from subnets.fits(resource, "vnetSubnetID", where=region)
    yield from subnets.fits(
        resource,
        "podSubnetID",
        where=region,
        delegated_to="Microsoft.ContainerService/managedClusters",
    )
    yield from _room(resource)
    yield from relations.same_region(resource, "proximityPlacementGroupID", region)
    yield from relations.same_region(resource, "capacityReservationGroupID", region)
    group = resource.optional_string("capacityReservationGroupID")
    if group:
        yield from compute.reserved(
            resource, "capacityReservationGroupID", group, resource.optional_string("vmSize")
        )


# Sizes that AKS takes in no encrypted network once the API server stands in it, by generation.
# Source: aks/api-server-vnet-integration (limitations); Azure/AKS CHANGELOG.md, 2026-01-04.
_ENCRYPTING: Final = 4
_GENERATION: Final = re.compile(r"_v(\d+)$")
_INTEGRATION: Final = "apiServerAccessProfile.enableVnetIntegration"


def unencrypted(pool: Resource, cluster: Inputs) -> Iterator[Problem]:
    """A problem when the pool's machines would encrypt beside an API server in their network."""
    id, size = pool.optional_string("vnetSubnetID"), pool.optional_string("vmSize")
    found = _GENERATION.search(size or "")
    if not cluster.flag(_INTEGRATION) or id is None or found is None:
        return
    network = resources.by_id(pool.world, id.rsplit("/", 2)[0])
    encrypts = network is not None and Inputs(network.inputs).flag("encryption.enabled")
    if encrypts and int(found[1]) >= _ENCRYPTING:
        yield Problem(
            "vmSize",
            f"{size} in a network that encrypts, with API server VNet integration: AKS refuses "
            f"generations {_ENCRYPTING} and later there; take encryption.enabled off the network",
        )


def _room(resource: Resource) -> Iterator[Problem]:
    """A problem when the subnet has fewer addresses than the pool starts with nodes."""
    id, count = resource.optional_string("vnetSubnetID"), resource.number("count")
    subnet = subnets.find(resource.world, id) if id else None
    sizes = [block.num_addresses for block in subnets.blocks(subnet)] if subnet else []
    # Azure keeps five addresses of each subnet (virtual-networks-faq).
    if count is not None and sizes and count > sum(sizes) - 5 * len(sizes):
        yield Problem(
            "count",
            f"{count:g} nodes don't fit the subnet, which has {sum(sizes) - 5 * len(sizes)} "
            "addresses to give; take a larger subnet or fewer nodes",
        )


def _conflicts(resource: Resource) -> Iterator[Problem]:
    cluster = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    region = resources.region_of(cluster)
    if cluster is None:
        return
    yield from placement(resource, region)
    if region != regions.region_of(resource):
        there = Inputs(resource.values, {"location": region})
        for rule in RULES:
            yield from rule(there)
    asked = Resource.of(cluster, resource.world)
    yield from _nodes(resource, asked)
    yield from unencrypted(resource, asked)
    first = asked.optional_string("agentPoolProfiles[0].vnetSubnetID")
    own = resource.optional_string("vnetSubnetID")
    if first and own and naming.parse(first) and naming.parse(own):
        here, theirs = own.rsplit("/", 2)[0], first.rsplit("/", 2)[0]
        if not naming.same(here, theirs):
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
    elif version and newest and _numbers(newest)[1] - _numbers(version)[1] > _MOST_BEHIND:
        yield Problem(
            "orchestratorVersion",
            f"{version} is more than {_MOST_BEHIND} minor versions behind the cluster's {newest}; "
            "take a newer one",
        )


def _most_nodes(inputs: Inputs) -> float:
    """The most nodes that a pool can have."""
    counts = (inputs.number(name) for name in ("count", "maxCount"))
    return max((count for count in counts if count is not None), default=1)


def _nodes(resource: Resource, cluster: Resource) -> Iterator[Problem]:
    """A problem when the cluster's pools together can have more nodes than AKS allows."""
    others = sum(map(_most_nodes, cluster.parts("agentPoolProfiles[]"))) + sum(
        _most_nodes(Inputs(made.inputs))
        for made in resource.world.all(POOL)
        if naming.is_below(made.id, cluster.id) and not naming.same(made.id, resource.id)
    )
    if others + _most_nodes(resource) > _MOST_NODES:
        yield Problem(
            "maxCount",
            f"{_most_nodes(resource):g} nodes and the other pools' {others:g} are more than the "
            f"{_MOST_NODES} that a cluster can have; lower one of them",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _last_of_the_system(resource: Resource) -> Iterator[Problem]:
    if resource.optional_string("mode") != "System":
        return
    parent = resource.id.rsplit("/", 2)[0]
    cluster = resources.by_id(resource.world, parent)
    if cluster is None:
        return
    inline = [mode for _, mode in Inputs(cluster.inputs).each("agentPoolProfiles[].mode")]
    others = [
        made
        for made in resource.world.all(POOL)
        if naming.is_below(made.id, parent)
        and not naming.same(made.id, resource.id)
        and made.inputs.get("mode") == "System"
    ]
    if not others and "System" not in inline:
        yield Problem("", "it is the cluster's last pool of the mode System; make another first")


def computed(inputs: Inputs, version: str | None) -> dict[str, Any]:
    """What AKS adds to a pool."""
    own = inputs.optional_string("orchestratorVersion") or version or ""
    return {
        "currentOrchestratorVersion": own,
        "orchestratorVersion": own,
        "nodeImageVersion": "AKSUbuntu-2204gen2containerd-202601.01.0",
        "provisioningState": "Succeeded",
        "powerState": {"code": "Running"},
        "osType": inputs.optional_string("osType") or "Linux",
        "osDiskType": inputs.optional_string("osDiskType") or "Managed",
        "count": inputs.number("count")
        if inputs.is_given("count")
        else (inputs.number("minCount") or 0 if inputs.is_given("minCount") else 1),
    }


def _outputs(resource: Resource) -> dict[str, Any]:
    parent = resource.id.rsplit("/", 2)[0]
    cluster = resources.by_id(resource.world, parent)
    version = (
        Inputs(cluster.outputs).optional_string("currentKubernetesVersion") if cluster else None
    )
    return {
        **computed(resource, version),
        # In outputs of a pool this is the machines' kind, not Resource Manager's type.
        "type": resource.optional_string("type") or "VirtualMachineScaleSets",
    }


KINDS: Final = (
    AzureKind(
        POOL,
        "Microsoft.ContainerService/managedClusters/{resourceName}/agentPools/{agentPoolName}",
        name=kinds.AGENT_POOL,
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
        rules=(_windows_name, *RULES),
        references=references(),
        crosschecks=(_conflicts,),
        delete_blockers=(_last_of_the_system,),
        computed=_outputs,
    ),
)  # fmt: skip
