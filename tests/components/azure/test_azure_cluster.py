"""Private AKS clusters: what is refused, and what is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from falaj.components.azure import Cluster
from falaj.components.azure.cluster import audit_category, authority_of
from tests.components.azure.compute_foundation import ZONES, foundation
from tests.components.azure.conftest import PLACED, SOMEBODY, SOMEBODY_ELSE, Deployed
from tests.components.azure.conftest import deploy as deploy_now

Deploy = Callable[..., Deployed]

BASE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/acme-base/providers"
VAULT = f"{BASE}/Microsoft.KeyVault/vaults/acme-keys"
PLAIN: dict[str, Any] = {
    **PLACED,
    "network_id": f"{BASE}/Microsoft.Network/virtualNetworks/acme-network",
    "node_subnet_ids": dict.fromkeys(ZONES, "nodes"),
    "security_group_id": "rules",
    "cluster_key_id": "https://acme-keys.vault.azure.net/keys/cluster",
    "log_key_id": "https://acme-keys.vault.azure.net/keys/logs",
    "disk_encryption_id": "disks",
    "key_ring_id": VAULT,
    "registry_id": "registry",
    "log_destination_id": "workspace",
}


def make(deploy: Deploy, late: dict[str, Any] | None = None, **changes: Any) -> Deployed:
    """Make one cluster with everything it stands on; ``late`` values are outputs."""

    def program(opts: pulumi.ResourceOptions) -> Cluster:
        known_late = {k: pulumi.Output.from_input(v) for k, v in (late or {}).items()}
        args: Any = foundation(opts).cluster_args(**changes, **known_late)
        return Cluster("ai", args, opts)

    return deploy(program)


@pytest.fixture(scope="module", name="usual")
def _usual() -> Deployed:
    return make(deploy_now, administrators=[SOMEBODY], viewers=[SOMEBODY_ELSE])


def properties(made: Deployed) -> Any:
    """Inputs of the managed cluster."""
    return made.one("containerservice:ManagedCluster").inputs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"registry_id": None}, "registry_id: missing; needed on Azure"),
        ({"key_ring_id": None}, "key_ring_id: missing; needed on Azure"),
        ({"log_destination_id": None}, "log_destination_id: missing; needed on Azure"),
        ({"network_id": None}, "network_id: missing"),
        ({"boundary_id": "arn:aws:iam::1:policy/x"}, "boundary_id: .*AWS only"),
        ({"log_days": 30}, "log_days: the workspace decides on Azure"),
        ({"region": "westeurope"}, "region: .*uaenorth"),
        ({"region": "me-central-1"}, "region: "),
        ({"administrators": ["arn:aws:iam::000000000000:role/x"]}, "administrators.*GUID"),
        ({"administrators": ["everybody"]}, "administrators.*GUID.* of an Entra group; put users"),
        ({"viewers": ["everybody"]}, "viewers.*GUID.* of an Entra group; put users"),
        (
            {"administrators": [SOMEBODY], "viewers": [SOMEBODY]},
            "viewers: .*can read already",
        ),
        ({"kubernetes_version": "1.27"}, "kubernetes_version: .*1.35"),
        ({"service_cidr": "10.244.0.0/20"}, "service_cidr: .*apart from 10.244.0.0/16"),
        ({"service_cidr": "8.8.8.0/24"}, "service_cidr: .*inside 10.0.0.0/8"),
        ({"service_cidr": "172.20.0.0/30"}, "service_cidr: .*a /13 to /24"),
        ({"zones": ["4"]}, r"zones\[0\]: given '4'; allowed: 1, 2, 3"),
        ({"node_subnet_ids": {"1": "a"}, "zones": ["1", "2"]}, "zones: 2 has no subnet"),
        ({"clusterkeyid": "x"}, "clusterkeyid: is not an argument.*cluster_key_id"),
        ({"data_class": "secret"}, "data_class: .*confidential"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    args: Any = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    with pytest.raises(pulumi.InputPropertiesError, match=words):
        Cluster("ai", args)


@pytest.mark.parametrize("name", ["AI", "a", "a" * 60, "a-"])
def test_a_name_that_no_label_can_be(name: str) -> None:
    args: Any = PLAIN
    with pytest.raises(pulumi.InputPropertiesError, match="name: given"):
        Cluster(name, args)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key_ring_id": "acme-keys"}, "Microsoft.KeyVault/vaults/<name>"),
        ({"cluster_key_id": "acme"}, "https://<vault>.vault.azure.net/keys/<name>"),
        (
            {"cluster_key_id": "https://acme.managedhsm.azure.net/keys/cluster"},
            "Managed HSM; allowed: a key of a vault",
        ),
    ],
)
def test_ids_that_are_known_late_are_refused_in_words(
    deploy: Deploy, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        make(deploy, late=changes)


def test_subnets_of_other_zones_are_refused(deploy: Deploy) -> None:
    with pytest.raises(Exception, match="node_subnet_ids of Cluster 'ai' has no subnet in 3"):
        make(deploy, late={"node_subnet_ids": {"1": "a", "2": "b"}}, zones=["3"])


def test_a_kubeconfig_without_an_authority() -> None:
    with pytest.raises(ValueError, match="no certificate-authority-data"):
        authority_of("clusters: []")
    assert authority_of('{"certificate-authority-data": "QUJD"}') == "QUJD"
    assert authority_of("    certificate-authority-data: QUI=\n    server: x") == "QUI="


def test_nothing_is_reached_from_outside(usual: Deployed) -> None:
    found = properties(usual)
    assert found["publicNetworkAccess"] == "Disabled"
    access = found["apiServerAccessProfile"]
    assert access["enablePrivateCluster"] is True
    assert access["enablePrivateClusterPublicFQDN"] is False
    assert access["disableRunCommand"] is True
    assert access["enableVnetIntegration"] is True
    assert access["subnetId"].endswith("/acme-network/subnets/control-plane")
    # The group that AKS would make it in is locked: nobody could link it to another network.
    zone = f"{BASE}/Microsoft.Network/privateDnsZones/private.uaenorth.azmk8s.io"
    assert access["privateDNSZone"] == zone
    network = found["networkProfile"]
    assert network["outboundType"] == "none"
    assert network["networkPluginMode"] == "overlay"
    assert network["networkDataplane"] == network["networkPolicy"] == "cilium"
    assert found["bootstrapProfile"]["artifactSource"] == "Cache"
    assert found["bootstrapProfile"]["containerRegistryId"].endswith("/registries/acmeregistry")
    assert "addonProfiles" not in found
    assert "ingressProfile" not in found


def test_people_come_in_by_entra_alone(usual: Deployed) -> None:
    found = properties(usual)
    assert found["disableLocalAccounts"] is True
    assert found["enableRBAC"] is True
    assert found["aadProfile"] == {
        "managed": True,
        "enableAzureRBAC": True,
        "adminGroupObjectIDs": [SOMEBODY],
    }
    reader = usual.named(f"ai-viewer-{SOMEBODY_ELSE}").inputs
    assert reader["roleDefinitionId"].endswith("7f6c6a51-bcf8-42ba-9220-52d62157d7db")
    assert reader["principalType"] == "Group"
    assert reader["scope"] == usual.outputs["cluster_id"]
    for who in (SOMEBODY, SOMEBODY_ELSE):
        assert usual.named(f"ai-user-{who}").inputs["principalId"] == who


def test_secrets_disks_and_hosts_are_encrypted_with_our_keys(usual: Deployed) -> None:
    found = properties(usual)
    kms = found["securityProfile"]["azureKeyVaultKms"]
    assert kms["enabled"] is True
    assert kms["keyVaultNetworkAccess"] == "Private"
    assert kms["keyVaultResourceId"] == VAULT
    # AKS takes no identifier without a version.
    assert kms["keyId"].rpartition("/")[0] == "https://acme-keys.vault.azure.net/keys/cluster"
    assert len(kms["keyId"].rpartition("/")[2]) == 32
    assert found["diskEncryptionSetID"].endswith("/diskEncryptionSets/acme-disks")
    assert all(pool["enableEncryptionAtHost"] for pool in found["agentPoolProfiles"])


def test_one_empty_system_pool_is_part_of_the_cluster(usual: Deployed) -> None:
    (pool,) = properties(usual)["agentPoolProfiles"]
    assert pool["mode"] == "System"
    assert pool["nodeTaints"] == ["CriticalAddonsOnly=true:NoSchedule"]
    assert pool["count"] == 3
    assert pool["availabilityZones"] == list(ZONES)
    assert pool["vmSize"] == "Standard_D4as_v6"
    assert pool["enableNodePublicIP"] is False
    assert pool["securityProfile"] == {
        "sshAccess": "Disabled",
        "enableSecureBoot": True,
        "enableVTPM": True,
    }
    assert not usual.of_type("containerservice:AgentPool")


def test_identities_have_single_rights_before_the_cluster_is_made(usual: Deployed) -> None:
    roles = {
        each.name.removeprefix("ai-"): (
            each.inputs["roleDefinitionId"].rpartition("/")[2],
            each.inputs["scope"].rpartition("/providers/")[2],
        )
        for each in usual.of_type("authorization:RoleAssignment")
        if each.inputs["principalType"] == "ServicePrincipal"
    }
    own = "Microsoft.ManagedIdentity/userAssignedIdentities/acme-dev-ai-kubelet"
    network = "Microsoft.Network/virtualNetworks/acme-network/subnets"
    contributor = "4d97b98b-1d4f-4787-a291-c67834d212e7"
    names = "b12aa53e-6015-4669-85d0-8515ebb3ae7f"
    assert roles == {
        "node-subnet": (contributor, f"{network}/nodes"),
        "control-plane-subnet": (contributor, f"{network}/control-plane"),
        "balancer-subnet": (contributor, f"{network}/balancers"),
        "names": (names, "Microsoft.Network/privateDnsZones/private.uaenorth.azmk8s.io"),
        "names-of-network": (names, "Microsoft.Network/virtualNetworks/acme-network"),
        "key": (
            "12338af0-0e69-4776-bea7-57ae8d297424",
            "Microsoft.KeyVault/vaults/acme-keys/keys/cluster",
        ),
        "vault": ("f25e0fa2-a7c8-4377-a976-54943a77a395", "Microsoft.KeyVault/vaults/acme-keys"),
        "disks": (
            "acdd72a7-3385-48ef-bd42-f606fba81ae7",
            "Microsoft.Compute/diskEncryptionSets/acme-disks",
        ),
        "kubelet": ("f1a07417-d97a-45cb-824c-7a7467783830", own),
        "images": (
            "7f951dda-4ed3-4680-a7ca-43fe172d538d",
            "Microsoft.ContainerRegistry/registries/acmeregistry",
        ),
    }
    order = [each.name for each in usual.resources]
    cluster = usual.one("containerservice:ManagedCluster")
    made = max(order.index(f"ai-{each}") for each in roles if each != "kubelet")
    assert made < usual.resources.index(cluster)


def test_upgrades_come_in_the_night_of_the_weekend(usual: Deployed) -> None:
    found = properties(usual)
    assert found["autoUpgradeProfile"] == {
        "upgradeChannel": "patch",
        "nodeOSUpgradeChannel": "NodeImage",
    }
    windows = {
        each.inputs["configName"]: each.inputs["maintenanceWindow"]
        for each in usual.of_type("containerservice:MaintenanceConfiguration")
    }
    assert set(windows) == {"aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"}
    days = {each["schedule"]["weekly"]["dayOfWeek"] for each in windows.values()}
    assert days == {"Saturday", "Sunday"}
    assert {each["utcOffset"] for each in windows.values()} == {"+04:00"}


@pytest.mark.parametrize(
    ("data_class", "category"),
    [
        ("public", "kube-audit-admin"),
        ("internal", "kube-audit-admin"),
        ("confidential", "kube-audit"),
        ("restricted", "kube-audit"),
    ],
)
def test_reads_are_logged_where_they_matter(data_class: str, category: str) -> None:
    assert audit_category(data_class) == category


def test_every_log_of_the_control_plane_is_kept(usual: Deployed) -> None:
    logs = usual.named("ai-logs").inputs
    assert logs["resourceUri"] == usual.outputs["cluster_id"]
    assert logs["workspaceId"].endswith("/workspaces/acme-logs")
    kept = {each["category"] for each in logs["logs"] if each["enabled"]}
    assert {"kube-apiserver", "kube-audit", "kube-controller-manager", "guard"} <= kept


def test_the_rest_of_the_hardening(usual: Deployed) -> None:
    found = properties(usual)
    assert found["sku"] == {"name": "Base", "tier": "Standard"}
    assert found["nodeResourceGroupProfile"] == {"restrictionLevel": "ReadOnly"}
    assert found["nodeResourceGroup"] == "acme-dev-ai-nodes"
    assert found["oidcIssuerProfile"] == {"enabled": True}
    assert found["securityProfile"]["workloadIdentity"] == {"enabled": True}
    assert found["securityProfile"]["imageCleaner"]["enabled"] is True
    assert found["identity"]["type"] == "UserAssigned"
    assert found["tags"]["falaj-tenant"] == "acme"
    assert found["location"] == "uaenorth"


def test_outputs(usual: Deployed) -> None:
    outputs = usual.outputs
    assert outputs["cluster_id"].endswith("/managedClusters/acme-dev-ai")
    assert outputs["cluster_name"] == "acme-dev-ai"
    assert outputs["endpoint"].startswith("https://")
    assert outputs["endpoint"].endswith(".private.uaenorth.azmk8s.io")
    assert outputs["issuer_url"].startswith("https://uaenorth.oic.prod-aks.azure.com/")
    assert outputs["certificate_authority"]
    assert outputs["node_identity_id"].endswith("/userAssignedIdentities/acme-dev-ai-kubelet")
    assert outputs["security_group_id"].endswith("/networkSecurityGroups/acme-rules")
    assert usual.made.kubernetes_version == "1.35"


def test_arguments_reach_the_cluster(deploy: Deploy) -> None:
    made = make(
        deploy,
        kubernetes_version="1.36",
        service_cidr="172.24.0.0/16",
        zones=["2"],
        environment="test",
        data_class="internal",
        cluster_key_id="https://acme-keys.vault.azure.net/keys/cluster/",
    )
    found = properties(made)
    assert found["kubernetesVersion"] == "1.36"
    assert found["networkProfile"]["serviceCidr"] == "172.24.0.0/16"
    assert found["networkProfile"]["dnsServiceIP"] == "172.24.0.10"
    (pool,) = found["agentPoolProfiles"]
    assert pool["availabilityZones"] == ["2"]
    assert pool["count"] == 1
    assert pool["orchestratorVersion"] == "1.36"
    assert found["tags"]["falaj-environment"] == "test"
    assert found["aadProfile"]["adminGroupObjectIDs"] == []
    kept = {each["category"] for each in made.named("ai-logs").inputs["logs"]}
    assert "kube-audit-admin" in kept
    assert "kube-audit" not in kept


def test_a_region_without_zones(caplog: pytest.LogCaptureFixture) -> None:
    def program(opts: pulumi.ResourceOptions) -> Cluster:
        args: Any = foundation(opts, "uaecentral").cluster_args()
        return Cluster("ai", args, opts)

    made = deploy_now(program, region="uaecentral")
    (pool,) = properties(made)["agentPoolProfiles"]
    assert "availabilityZones" not in pool
    assert pool["count"] == 2
    assert properties(made)["location"] == "uaecentral"
    assert "whether uaecentral has AKS: unknown" in caplog.text
