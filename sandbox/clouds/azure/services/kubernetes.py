"""Microsoft.ContainerService: clusters, and when they may be maintained."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    kinds,
    naming,
    regions,
    relations,
    resources,
    subnets,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault, node_pools
from falaj.sandbox.clouds.inputs import Inputs, Resource, joined
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    distinct,
    equals,
    for_each,
    formed,
    given,
    is_off,
    is_on,
    minor_version,
    one_of,
    other_than,
    refused,
    required,
    texts,
    when,
)
from falaj.sandbox.clouds.model import Problem, World

_API: Final = "apiServerAccessProfile"
# Whatever is made without a version gets one that is supported at the sandbox's date.
_DEFAULT_VERSION: Final = "1.34"


def compute(resource: Resource) -> dict[str, Any]:
    """The outputs of a cluster."""
    id, region = resource.id, location(resource) or "unknown"
    name = id.rpartition("/")[2]
    reference = naming.parse(id)
    group = (reference.group if reference else None) or ""
    prefix = (
        resource.optional_string("dnsPrefix") or resource.optional_string("fqdnSubdomain") or name
    )
    label = f"{prefix.lower()}-{naming.digest(8, id)}"
    private = resource.flag(f"{_API}.enablePrivateCluster")
    resources = resource.optional_string("nodeResourceGroup") or f"MC_{group}_{name}_{region}"[:80]
    kubelet = (
        f"{naming.group_id(resources)}/providers/Microsoft.ManagedIdentity/"
        f"userAssignedIdentities/{name}-agentpool"
    )
    version = resource.optional_string("kubernetesVersion") or _DEFAULT_VERSION
    found: dict[str, Any] = {
        "kubernetesVersion": version,
        "currentKubernetesVersion": version if version.count(".") == 2 else f"{version}.1",
        "nodeResourceGroup": resources,
        "maxAgentPools": 100,
        "resourceUID": naming.digest(24, "uid", id),
        "powerState": {"code": "Running"},
        "azurePortalFQDN": f"{label}.portal.hcp.{region}.azmk8s.io",
        "agentPoolProfiles": [
            {**pool.values, **node_pools.computed(pool, version)}
            for pool in resource.parts("agentPoolProfiles[]")
        ],
        "identityProfile": resource.get(
            "identityProfile",
            {
                "kubeletidentity": {
                    "resourceId": kubelet,
                    "clientId": naming.guid("client", kubelet),
                    "objectId": naming.guid("principal", kubelet),
                }
            },
        ),
    }
    if private:
        zone = resource.optional_string(f"{_API}.privateDNSZone") or "system"
        # Source: aks/private-apiserver-vnet-integration-cluster (the zone of an integrated one).
        link = "private" if resource.flag(f"{_API}.enableVnetIntegration") else "privatelink"
        host = f"{link}.{region}.azmk8s.io"
        if zone.lower() not in ("system", "none"):
            host = zone.rpartition("/")[2]
        elif zone.lower() == "system":
            host = f"{naming.guid('zone', id)}.{host}"
        found["privateFQDN"] = f"{label}.{host}"
        # A private cluster has the other only where it is asked for.
        found["fqdn"] = ""
    if not private or resource.at(f"{_API}.enablePrivateClusterPublicFQDN") is not False:
        found["fqdn"] = f"{label}.hcp.{region}.azmk8s.io"
    if resource.flag("oidcIssuerProfile.enabled"):
        found["oidcIssuerProfile"] = {
            "enabled": True,
            "issuerURL": f"https://{region}.oic.prod-aks.azure.com/{naming.TENANT}/"
            f"{naming.guid('issuer', id)}/",
        }
    return found


CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
_NETWORK: Final = "networkProfile"
_KMS: Final = "securityProfile.azureKeyVaultKms"
# Source: aks/create-node-pools and the errors PropertyChangeNotAllowed of the service.
_FIXED: Final = ("vmSize", "osDiskType", "osType", "vnetSubnetID", "podSubnetID", "maxPods")
_VERSION: Final = re.compile(r"1\.\d{1,2}(?:\.\d{1,3})?")
_PREFIX: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]{0,52}[A-Za-z0-9])?")


def _problems(inputs: Inputs) -> Iterator[Problem]:
    group = inputs.optional_string("nodeResourceGroup")
    if group and (len(group) > 80 or not re.fullmatch(r"[-\w._()]*[-\w_()]", group)):
        yield Problem(
            "nodeResourceGroup",
            f"{group!r} isn't a name for a resource group of at most 80 characters",
        )


def _pools(inputs: Inputs) -> Iterator[Problem]:
    pools = inputs.items("agentPoolProfiles")
    if inputs.is_absent("agentPoolProfiles[0]"):
        yield Problem("agentPoolProfiles", "is missing: a cluster needs one pool for its system")
        return
    modes = [inputs.at(f"{path}.mode") for path, _ in pools]
    if modes and all(mode is None or mode in ("User", "Gateway") for mode in modes):
        yield Problem("agentPoolProfiles[0].mode", "no pool is of the mode System; one must be")
    for path, item in pools:
        if not isinstance(item, Mapping):
            continue
        name = inputs.optional_string(f"{path}.name")
        if name:
            yield from kinds.AGENT_POOL.check(f"{path}.name", name)


def _network(inputs: Inputs) -> Iterator[Problem]:
    plugin, policy = (
        inputs.optional_string(f"{_NETWORK}.networkPlugin"),
        inputs.optional_string(f"{_NETWORK}.networkPolicy"),
    )
    dataplane = inputs.optional_string(f"{_NETWORK}.networkDataplane")
    mode = inputs.optional_string(f"{_NETWORK}.networkPluginMode")
    if mode == "overlay" and plugin not in ("azure", None):
        yield Problem(
            f"{_NETWORK}.networkPluginMode", f"overlay needs the plugin azure; given is {plugin}"
        )
    if policy == "cilium" and inputs.at(f"{_NETWORK}.networkDataplane") in (None, "azure"):
        yield Problem(
            f"{_NETWORK}.networkDataplane",
            "is missing: the policy cilium needs the data plane cilium",
        )
    if dataplane == "cilium" and policy in ("azure", "calico"):
        yield Problem(
            f"{_NETWORK}.networkPolicy",
            f"{policy} doesn't go with the data plane cilium; choose cilium",
        )
    if dataplane == "cilium" and plugin not in ("azure", None):
        yield Problem(
            f"{_NETWORK}.networkPlugin",
            f"{plugin} doesn't go with the data plane cilium; choose azure",
        )
    blocks: list[tuple[str, checks.Range]] = []
    for name in ("podCidr", "serviceCidr"):
        text = inputs.optional_string(f"{_NETWORK}.{name}")
        if text is None:
            continue
        yield from checks.cidr(f"{_NETWORK}.{name}", text)
        if block := checks.address_range(text):
            blocks.append((name, block))
    if len(blocks) == 2 and blocks[0][1].overlaps(blocks[1][1]):
        yield Problem(
            f"{_NETWORK}.podCidr",
            f"{blocks[0][1]} overlaps serviceCidr {blocks[1][1]}; choose disjoint blocks",
        )
    yield from _service_addresses(inputs, dict(blocks).get("serviceCidr"))
    outbound = inputs.optional_string(f"{_NETWORK}.outboundType")
    lacks_subnet = any(
        inputs.is_absent(f"{path}.vnetSubnetID") for path, _ in inputs.items("agentPoolProfiles")
    )
    if outbound in ("userDefinedRouting", "userAssignedNATGateway") and lacks_subnet:
        yield Problem(
            f"{_NETWORK}.outboundType",
            f"{outbound} needs own subnets: give each pool a vnetSubnetID",
        )


#: aks/configure-azure-cni-overlay and aks/configure-kubenet: what AKS keeps for itself.
_KEPT: Final = tuple(
    ipaddress.ip_network(each)
    for each in ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")
)
#: aks/supported-kubernetes-versions (November 2026; with long-term support, and left open by two
#: above the newest).
_OLDEST_MINOR: Final = 30
_NEWEST_MINOR: Final = 37


def _kept_addresses(inputs: Inputs) -> Iterator[Problem]:
    for name in ("podCidr", "serviceCidr"):
        block = checks.address_range(inputs.optional_string(f"{_NETWORK}.{name}") or "")
        for kept in _KEPT if block is not None and block.version == 4 else ():
            if block is not None and block.overlaps(kept):
                yield Problem(
                    f"{_NETWORK}.{name}",
                    f"{block} overlaps {kept}, which AKS keeps; choose another",
                )


def _service_addresses(inputs: Inputs, block: checks.Range | None) -> Iterator[Problem]:
    text = inputs.optional_string(f"{_NETWORK}.dnsServiceIP")
    if block is not None and block.prefixlen < 12:
        # Source: aks/configure-azure-cni (service address range: smaller than /12).
        yield Problem(f"{_NETWORK}.serviceCidr", f"{block} is too large; at most /12 is allowed")
    if text is None:
        return
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        yield Problem(f"{_NETWORK}.dnsServiceIP", f"{text!r} isn't an IP address")
        return
    if block is not None and address not in block:
        yield Problem(f"{_NETWORK}.dnsServiceIP", f"{text} isn't inside serviceCidr {block}")
    elif block is not None and address == block.network_address + 1:
        yield Problem(
            f"{_NETWORK}.dnsServiceIP", "the first address is kubernetes.default's; choose another"
        )


def _access(inputs: Inputs) -> Iterator[Problem]:
    if inputs.items(f"{_API}.authorizedIPRanges") and inputs.flag(f"{_API}.enablePrivateCluster"):
        yield Problem(
            f"{_API}.authorizedIPRanges",
            "doesn't go with enablePrivateCluster; leave it out",
        )
    for path, text in inputs.strings(f"{_API}.authorizedIPRanges"):
        if "/" in text:
            yield from checks.cidr(path, text)
    zone = inputs.optional_string(f"{_API}.privateDNSZone")
    if zone and zone.lower() not in ("system", "none"):
        yield from checks.resource_id(
            f"{_API}.privateDNSZone", zone, "Microsoft.Network/privateDnsZones"
        )
        if inputs.optional_string("identity.type") == "SystemAssigned":
            yield Problem(
                "identity.type",
                "an own private DNS zone needs a UserAssigned identity that may write to it",
            )
        host = zone.rpartition("/")[2].lower()
        region = regions.region_of(inputs)
        # Source: aks/private-clusters (custom private DNS zone).
        fits = not region or re.fullmatch(
            rf"(?:[a-z0-9-]{{1,32}}\.)?(?:privatelink|private)\.{region}\.azmk8s\.io", host
        )
        if not fits:
            yield Problem(
                f"{_API}.privateDNSZone",
                f"the zone {host} must be called "
                f"privatelink.{region}.azmk8s.io, or have one label before that",
            )
    if inputs.flag(f"{_API}.enableVnetIntegration"):
        yield from (
            required(
                f"{_API}.subnetId", "the API server's subnet is needed for enableVnetIntegration"
            )(inputs)
            if inputs.is_given("agentPoolProfiles[0].vnetSubnetID")
            else ()
        )


def _security(inputs: Inputs) -> Iterator[Problem]:
    if inputs.flag(f"{_KMS}.enabled"):
        yield from required(f"{_KMS}.keyId", "name the key that encrypts the secrets")(inputs)
        yield from key_vault.address(
            f"{_KMS}.keyId", inputs.optional_string(f"{_KMS}.keyId"), versioned=True
        )
        if inputs.optional_string("identity.type") == "SystemAssigned":
            # Source: aks/use-kms-etcd-encryption (limitations).
            yield Problem(
                "identity.type",
                "a key for the secrets needs a UserAssigned identity: "
                "the key must be readable before the cluster exists",
            )
        if inputs.optional_string(f"{_KMS}.keyVaultNetworkAccess") == "Private":
            yield from required(
                f"{_KMS}.keyVaultResourceId", "a private vault is named by its id too"
            )(inputs)
            if inputs.at(f"{_API}.enableVnetIntegration") in (None, False):
                yield Problem(
                    f"{_API}.enableVnetIntegration",
                    "a private vault can be reached "
                    "with API server VNet integration only; set it to true",
                )
    if inputs.optional_string("supportPlan") == "AKSLongTermSupport" and inputs.at("sku.tier") in (
        None,
        "Free",
        "Standard",
    ):
        yield Problem("sku.tier", "the support plan AKSLongTermSupport needs the tier Premium")


def _conflicts(resource: Resource) -> Iterator[Problem]:
    where = location(resource)
    # Source: aks/use-kms-etcd-encryption; the vault's purge protection is advice there, no rule.
    yield from key_vault.usable(
        resource,
        f"{_KMS}.keyId",
        resource.optional_string(f"{_KMS}.keyId"),
        region=where,
        needs_purge_protection=False,
    )
    yield from relations.same_region(resource, "diskEncryptionSetID", where)
    yield from subnets.fits(
        resource,
        f"{_API}.subnetId",
        where=where,
        delegated_to="Microsoft.ContainerService/managedClusters",
        least=28,
    )
    for pool in resource.parts("agentPoolProfiles[]"):
        for problem in (
            *node_pools.placement(pool, where), *node_pools.unencrypted(pool, resource),
        ):  # fmt: skip
            yield Problem(joined(pool.place, problem.path), problem.reason)
    yield from _pool_changes(resource)
    yield from _service_overlap(resource)
    yield from _unreachable(resource)


_PEERING: Final = "azure-native:network:VirtualNetworkPeering"


def _unreachable(resource: Resource) -> Iterator[Problem]:
    """A problem when peers of the network can never learn the API server's name.

    Source: aks/node-resource-group-lockdown (a deny assignment), aks/private-cluster-connect (a
    link for each peer); AKS makes its zone in the group of the nodes.
    """
    zone = resource.optional_string(f"{_API}.privateDNSZone") or "system"
    level = resource.optional_string("nodeResourceGroupProfile.restrictionLevel")
    private = resource.flag(f"{_API}.enablePrivateCluster")
    if not private or zone.lower() != "system" or level != "ReadOnly":
        return
    for _, id in resource.each("agentPoolProfiles[].vnetSubnetID"):
        network = str(id).rsplit("/", 2)[0]
        for made in resource.world.all(_PEERING):
            if naming.is_below(made.id, network):
                yield Problem(
                    f"{_API}.privateDNSZone",
                    "'system' is made in the group of the nodes, which ReadOnly locks: nobody can "
                    f"link it to what {made.id} joins; give the id of an own zone, linked there",
                )
                return


def _pool_changes(resource: Resource) -> Iterator[Problem]:
    """AKS refuses to change what an existing pool is made of; it must be made anew."""
    before = resources.by_id(resource.world, resource.id) if resource.id else None
    old = Inputs(before.inputs) if before else None
    was = (
        {old.optional_string(f"{path}.name"): path for path, _ in old.items("agentPoolProfiles")}
        if old
        else {}
    )
    for path, _ in resource.items("agentPoolProfiles"):
        there = was.get(resource.optional_string(f"{path}.name"))
        for name in _FIXED if old and there else ():
            mine, theirs = (
                resource.at(f"{path}.{name}"),
                old.at(f"{there}.{name}") if old else None,
            )
            if mine != theirs:
                yield Problem(
                    f"{path}.{name}",
                    f"changed from {theirs!r} to {mine!r}, which AKS doesn't allow of an existing "
                    "pool; give the pool another name, so that it is made anew",
                )


def _service_overlap(resource: Resource) -> Iterator[Problem]:
    """Services and pods have addresses that the nodes' network hasn't (aks/azure-cni-overlay)."""
    used = {
        block
        for path, _ in resource.items("agentPoolProfiles")
        for block in _network_blocks(
            resource.world, resource.optional_string(f"{path}.vnetSubnetID")
        )
    }
    for name in ("serviceCidr", "podCidr"):
        text = resource.optional_string(f"{_NETWORK}.{name}")
        block = checks.address_range(text) if text else None
        for other in sorted(used, key=str):
            if block and other.version == block.version and other.overlaps(block):
                yield Problem(
                    f"{_NETWORK}.{name}",
                    f"{text} overlaps the nodes' network {other}; choose a block outside of it",
                )


def _network_blocks(world: World, subnet: str | None) -> Iterator[checks.Range]:
    """The address blocks of a subnet's whole network."""
    reference = naming.parse(subnet) if subnet else None
    network = resources.by_id(world, reference.parent or "") if reference else None
    for _, text in (
        Inputs(network.inputs).strings("addressSpace.addressPrefixes") if network else ()
    ):
        if block := checks.address_range(text):
            yield block


def _maintenance_problems(inputs: Inputs) -> Iterator[Problem]:
    kinds = [
        kind
        for kind in ("daily", "weekly", "absoluteMonthly", "relativeMonthly")
        if inputs.is_given(f"maintenanceWindow.schedule.{kind}")
    ]
    if len(kinds) > 1:
        yield Problem(
            "maintenanceWindow.schedule", f"gives {' and '.join(kinds)}; give one of them"
        )


KINDS: Final = (
    AzureKind(
        CLUSTER,
        "Microsoft.ContainerService/managedClusters/{resourceName}",
        name=kinds.CLUSTER,
        # The vendor's own list: pulumi-azure-native, provider/pkg/gen/replacement.go.
        replaces=(
            "diskEncryptionSetID", "dnsPrefix", "fqdnSubdomain", "linuxProfile",
            "nodeResourceGroup", "windowsProfile", "extendedLocation",
            *(
                f"{_NETWORK}.{name}" for name in (
                    "serviceCidr", "serviceCidrs", "dnsServiceIP", "networkMode", "networkPlugin",
                    "networkPluginMode", "podCidr", "networkDataplane", "networkPolicy",
                    "outboundType",
                )
            ),
        ),
        rules=(
            formed("kubernetesVersion", _VERSION, "isn't a version such as 1.34 or 1.34.2"),
            formed(
                "dnsPrefix", _PREFIX,
                "isn't allowed; allowed are 1 to 54 letters, digits and hyphens, "
                "starting and ending with a letter or digit",
            ),
            refused(
                "dnsPrefix", "is missing: the API server's host name begins with it",
                absent("dnsPrefix", "fqdnSubdomain"),
            ),
            refused(
                "fqdnSubdomain", "doesn't go with dnsPrefix; give one of them",
                all_of(given("dnsPrefix"), given("fqdnSubdomain")),
            ),
            refused(
                "identity", "is missing: a cluster needs a managed identity",
                absent("identity", "servicePrincipalProfile"),
            ),
            minor_version("kubernetesVersion", _OLDEST_MINOR, _NEWEST_MINOR, "AKS"),
            _kept_addresses,
            _pools,
            distinct("agentPoolProfiles[].name", "give each pool its own name"),
            for_each("agentPoolProfiles[]", *node_pools.RULES),
            refused(
                f"{_NETWORK}.networkPolicy", "azure doesn't go with the plugin kubenet",
                all_of(
                    equals(f"{_NETWORK}.networkPolicy", "azure"),
                    equals(f"{_NETWORK}.networkPlugin", "kubenet"),
                ),
            ),
            refused(
                f"{_NETWORK}.loadBalancerSku",
                "basic balancers were retired on 30 September 2025; choose standard",
                equals(f"{_NETWORK}.loadBalancerSku", "basic"),
            ),
            _network,
            refused(
                f"{_API}.privateDNSZone", "goes with enablePrivateCluster only",
                all_of(given(f"{_API}.privateDNSZone"), is_off(f"{_API}.enablePrivateCluster")),
            ),
            refused(
                f"{_API}.enablePrivateClusterPublicFQDN", "goes with enablePrivateCluster only",
                all_of(
                    given(f"{_API}.enablePrivateClusterPublicFQDN"),
                    is_off(f"{_API}.enablePrivateCluster"),
                ),
            ),
            _access,
            refused(
                "enableRBAC", "aadProfile.enableAzureRBAC needs it; leave it out",
                all_of(is_on("aadProfile.enableAzureRBAC"), equals("enableRBAC", False)),
            ),
            refused(
                "aadProfile", "is missing: without local accounts people sign in by Entra",
                all_of(is_on("disableLocalAccounts"), absent("aadProfile")),
            ),
            texts("aadProfile.adminGroupObjectIDs[]", checks.guid),
            texts("aadProfile.tenantID", checks.guid),
            refused(
                "oidcIssuerProfile.enabled", "workload identity needs it; set it to true",
                all_of(
                    is_on("securityProfile.workloadIdentity.enabled"),
                    is_off("oidcIssuerProfile.enabled"),
                ),
            ),
            refused(
                "autoUpgradeProfile.nodeOSUpgradeChannel",
                "must be NodeImage with the upgradeChannel node-image",
                all_of(
                    other_than("autoUpgradeProfile.nodeOSUpgradeChannel", "NodeImage"),
                    equals("autoUpgradeProfile.upgradeChannel", "node-image"),
                ),
            ),
            _security,
            _problems,
        ),
        references=(
            *node_pools.references("agentPoolProfiles[]."),
            relations.to("diskEncryptionSetID", "Microsoft.Compute/diskEncryptionSets"),
        ),
        crosschecks=(_conflicts,),
        computed=compute,
    ),
    AzureKind(
        "azure-native:containerservice:MaintenanceConfiguration",
        "Microsoft.ContainerService/managedClusters/{resourceName}/maintenanceConfigurations/"
        "{configName}",
        rules=(
            one_of(
                "configName",
                ("default", "aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"),
            ),
            refused(
                "maintenanceWindow", "doesn't go with 'default', which takes timeInWeek",
                all_of(equals("configName", "default"), given("maintenanceWindow")),
            ),
            when(
                other_than("configName", "default"),
                required("maintenanceWindow.durationHours", "say how long"),
                required("maintenanceWindow.startTime", "say when, such as 02:00"),
            ),
            between("maintenanceWindow.durationHours", 4, 24, "hours"),
            formed(
                "maintenanceWindow.startTime", r"(?:[01]\d|2[0-3]):[0-5]\d",
                "isn't a time such as 02:00",
            ),
            formed(
                "maintenanceWindow.utcOffset", r"[+-](?:0\d|1[0-4]):[0-5]\d",
                "isn't an offset such as +04:00",
            ),
            _maintenance_problems,
        ),
    ),
)  # fmt: skip
