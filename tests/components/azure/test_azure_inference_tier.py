"""The CPU inference tier on Azure: machines behind a balancer, or container apps."""

from __future__ import annotations

import base64
import json
from typing import Any

import pulumi
import pytest

from falaj.components.azure import CpuInferenceTier
from falaj.components.azure.serving.cloud_init import custom_data, keyless_login
from tests.components.azure.compute_foundation import IMAGE, ZONES, foundation
from tests.components.azure.conftest import Deployed
from tests.components.azure.conftest import deploy as deploy_now
from tests.components.azure.inference_tiers import BASE, make


@pytest.fixture(scope="module", name="machines")
def _machines() -> Deployed:
    return make()


@pytest.fixture(scope="module", name="containers")
def _containers() -> Deployed:
    return make(mode="serverless", allowed_cidrs=["10.1.0.0/16", "10.2.0.0/16"])


def scale_set(made: Deployed) -> Any:
    """Inputs of the scale set."""
    return made.one("compute:VirtualMachineScaleSet").inputs


def test_machines_are_closed_and_encrypted(machines: Deployed) -> None:
    profile = scale_set(machines)["virtualMachineProfile"]
    assert profile["securityProfile"] == {
        "encryptionAtHost": True,
        "securityType": "TrustedLaunch",
        "uefiSettings": {"secureBootEnabled": True, "vTpmEnabled": True},
    }
    disk = profile["storageProfile"]["osDisk"]["managedDisk"]
    assert disk["diskEncryptionSet"]["id"].endswith("/diskEncryptionSets/acme-disks")
    (card,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    (address,) = card["ipConfigurations"]
    assert "publicIPAddressConfiguration" not in address
    assert address["subnet"]["id"].endswith("/subnets/serving")
    assert card["networkSecurityGroup"]["id"].endswith("/networkSecurityGroups/acme-dev-churn")
    system = profile["osProfile"]
    assert "adminPassword" not in system
    assert system["linuxConfiguration"]["disablePasswordAuthentication"] is True
    (key,) = system["linuxConfiguration"]["ssh"]["publicKeys"]
    assert key["keyData"] == keyless_login()


def test_machines_are_replaced_and_repaired(machines: Deployed) -> None:
    found = scale_set(machines)
    policy = found["upgradePolicy"]
    assert policy["mode"] == "Rolling"
    assert policy["rollingUpgradePolicy"]["maxSurge"] is True
    assert policy["automaticOSUpgradePolicy"]["enableAutomaticOSUpgrade"] is True
    assert found["automaticRepairsPolicy"]["enabled"] is True
    (health,) = found["virtualMachineProfile"]["extensionProfile"]["extensions"]
    assert health["type"] == "ApplicationHealthLinux"
    assert health["settings"] == {
        "protocol": "https",
        "port": 443,
        "requestPath": "/v2/health/ready",
    }
    assert found["overprovision"] is False


def test_the_cheapest_machine_that_has_what_is_asked(machines: Deployed) -> None:
    found = scale_set(machines)
    assert found["sku"] == {"name": machines.made.machine, "tier": "Standard", "capacity": 1}
    assert machines.made.machine.startswith("Standard_D2a")
    assert "zones" not in found
    image = found["virtualMachineProfile"]["storageProfile"]["imageReference"]
    assert image["publisher"] == "Canonical"
    assert image["version"] == "latest"


def test_what_machines_do_when_they_start(machines: Deployed) -> None:
    encoded = scale_set(machines)["virtualMachineProfile"]["osProfile"]["customData"]
    text = base64.b64decode(encoded).decode()
    head, _, body = text.partition("\n")
    assert head == "#cloud-config"
    files = {each["path"]: each["content"] for each in json.loads(body)["write_files"]}
    line = files["/opt/falaj/serving.env"]
    settings = json.loads(line.removeprefix("FALAJ_SERVING='").removesuffix("'\n"))
    client = machines.outputs["identity_id"]
    assert settings == {
        "client": client,
        "repository": "acmeregistry.azurecr.io/models/churn",
        "package_digest": "sha256:" + "b" * 64,
        "keys_digest": "sha256:" + "c" * 64,
        "keyring": "https://acme-keys.vault.azure.net/secrets/keyring",
        "certificate": "https://acme-keys.vault.azure.net/secrets/certificate",
        "model": "churn",
        "version": 3,
        "folder": "/run/falaj",
        "secrets": "/run/falaj/secrets",
        "port": 443,
        "host_name": "inference.acme.internal",
        "workers": 2,
    }
    pull = files["/etc/systemd/system/falaj-image.service"]
    assert f"pull_image.py {IMAGE} /var/lib/falaj/image {client}" in pull
    server = files["/etc/systemd/system/falaj-inference.service"]
    assert "NoNewPrivileges=yes" in server
    assert "TemporaryFileSystem=/run/falaj:" in server
    assert ["systemctl", "mask", "--now", "ssh.socket", "ssh.service"] in json.loads(body)[
        "runcmd"
    ]


def test_a_configuration_that_azure_would_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed: 65535"):
        custom_data(IMAGE, "client", {"long": "x" * 70_000})


def test_the_gateway_is_private_and_passes_tls_through(machines: Deployed) -> None:
    found = machines.one("network:LoadBalancer").inputs
    (front,) = found["frontendIPConfigurations"]
    assert front["subnet"]["id"].endswith("/subnets/serving")
    assert front["zones"] == list(ZONES)
    assert "publicIPAddress" not in front
    assert found["sku"]["name"] == "Standard"
    (rule,) = found["loadBalancingRules"]
    assert (rule["protocol"], rule["frontendPort"], rule["backendPort"]) == ("Tcp", 443, 443)
    assert rule["frontendIPConfiguration"]["id"].startswith(
        machines.one("network:LoadBalancer").id
    )
    assert rule["disableOutboundSnat"] is True


def test_rules_let_callers_in_and_nothing_out(machines: Deployed) -> None:
    (own,) = [
        each for each in machines.of_type("network:NetworkSecurityGroup") if each.name == "churn"
    ]
    rules = {each["name"]: each for each in own.inputs["securityRules"]}
    assert rules["callers"]["sourceAddressPrefix"] == "VirtualNetwork"
    assert rules["callers"]["destinationPortRange"] == "443"
    for last in ("nothing-else-in", "nothing-else-out"):
        assert rules[last]["access"] == "Deny"
        assert rules[last]["priority"] == 4096
    allowed = [each for each in rules.values() if each["access"] == "Allow"]
    assert not [each for each in allowed if each.get("sourceAddressPrefix") in ("*", "Internet")]
    assert rules["endpoints"]["destinationAddressPrefix"] == "VirtualNetwork"


def test_the_number_of_machines_follows_their_use(machines: Deployed) -> None:
    (profile,) = machines.one("monitor:AutoscaleSetting").inputs["profiles"]
    assert profile["capacity"] == {"minimum": "1", "maximum": "3", "default": "1"}
    up, down = profile["rules"]
    assert (up["metricTrigger"]["threshold"], up["scaleAction"]["direction"]) == (60, "Increase")
    assert (down["metricTrigger"]["threshold"], down["scaleAction"]["direction"]) == (
        30,
        "Decrease",
    )


@pytest.mark.parametrize("mode", ["machines", "containers"])
def test_the_tier_reads_three_things_and_has_one_name(
    request: pytest.FixtureRequest, mode: str
) -> None:
    made: Deployed = request.getfixturevalue(mode)
    rights = {
        each.name.removeprefix("churn-"): (
            each.inputs["roleDefinitionId"].rpartition("/")[2],
            each.inputs["scope"].rpartition("/")[2],
        )
        for each in made.of_type("authorization:RoleAssignment")
    }
    assert rights == {
        "images": ("7f951dda-4ed3-4680-a7ca-43fe172d538d", "acmeregistry"),
        "keyring": ("4633458b-17de-408a-b874-0445c86b69e6", "keyring"),
        "certificate": ("4633458b-17de-408a-b874-0445c86b69e6", "certificate"),
    }
    names = [
        each.inputs["privateZoneName"]
        for each in made.of_type("privatedns:PrivateZone")
        if each.name == "churn"
    ]
    assert names == ["inference.acme.internal"]
    record = made.one("privatedns:PrivateRecordSet").inputs
    assert record["relativeRecordSetName"] == "@"
    assert record["aRecords"][0]["ipv4Address"].startswith("10.64.")
    assert made.one("privatedns:VirtualNetworkLink").inputs["registrationEnabled"] is False
    assert made.named("churn-logs").inputs["workspaceId"].endswith("/workspaces/acme-logs")


@pytest.mark.parametrize("mode", ["instances", "serverless"])
def test_names_fit_under_a_long_stack_name(mode: str) -> None:
    # Group: up to 90 characters; balancers 80, scale sets 64, environments 60.
    made = make(mode=mode, stack="x" * 80)
    kinds = {
        "network:LoadBalancer": "loadBalancerName",
        "compute:VirtualMachineScaleSet": "vmScaleSetName",
        "app:ManagedEnvironment": "environmentName",
    }
    names = [
        each.inputs[argument] for kind, argument in kinds.items() for each in made.of_type(kind)
    ]
    assert names
    assert all(len(each) <= 60 for each in names)


def test_containers_are_internal(containers: Deployed) -> None:
    found = containers.one("app:ManagedEnvironment").inputs
    assert found["publicNetworkAccess"] == "Disabled"
    assert found["vnetConfiguration"]["internal"] is True
    assert found["vnetConfiguration"]["infrastructureSubnetId"].endswith("/subnets/containers")
    assert found["zoneRedundant"] is True
    assert found["appLogsConfiguration"] == {"destination": "azure-monitor"}


def test_a_container_app_serves_as_machines_do(containers: Deployed) -> None:
    found = containers.one("app:ContainerApp").inputs
    ingress = found["configuration"]["ingress"]
    assert (ingress["transport"], ingress["targetPort"], ingress["exposedPort"]) == (
        "tcp",
        8443,
        8443,
    )
    # It is of HTTP; the SDK's class says it by itself.
    assert "allowInsecure" not in ingress
    assert [each["ipAddressRange"] for each in ingress["ipSecurityRestrictions"]] == [
        "10.1.0.0/16",
        "10.2.0.0/16",
    ]
    (registry,) = found["configuration"]["registries"]
    assert registry["server"] == "acmeregistry.azurecr.io"
    assert "secrets" not in found["configuration"]
    (container,) = found["template"]["containers"]
    assert container["image"] == IMAGE
    assert container["resources"] == {"cpu": 2, "memory": "4Gi"}
    assert container["command"][:2] == ["python", "-c"]
    (setting,) = container["env"]
    settings = json.loads(setting["value"])
    assert settings["secrets"] == "/dev/shm/falaj"
    assert settings["port"] == 8443
    scale = found["template"]["scale"]
    assert (scale["minReplicas"], scale["maxReplicas"]) == (1, 3)
    assert scale["rules"][0]["custom"]["metadata"] == {"type": "Utilization", "value": "60"}
    assert not containers.of_type("compute:VirtualMachineScaleSet")


def test_outputs(machines: Deployed, containers: Deployed) -> None:
    assert machines.outputs["endpoint"] == "https://inference.acme.internal"
    assert containers.outputs["endpoint"] == "https://inference.acme.internal:8443"
    for made in (machines, containers):
        (keyring,) = [each for each in made.resources if each.name == "churn-keyring"]
        assert made.outputs["keyring_secret_id"] == keyring.inputs["scope"]
    assert containers.made.machine is None
    assert "unknown" in containers.made.cost_at_maximum
    assert machines.made.cost_at_minimum.startswith("USD")


def test_arguments_reach_the_machines() -> None:
    image = f"{BASE}/Microsoft.Compute/images/hardened"
    made = make(
        int8="amx",
        vcpu=4,
        memory_gib=8,
        zones=["1", "2"],
        machine_image=image,
        min_instances=2,
        max_instances=5,
        cpu_target_percent=70,
        port=8443,
        allowed_cidrs=["10.9.0.0/16"],
        host_name="churn.acme.internal",
        environment="test",
    )
    found = scale_set(made)
    assert found["sku"]["name"] == "Standard_D4ls_v6"
    assert found["sku"]["capacity"] == 2
    assert found["zones"] == ["1", "2"]
    assert found["zoneBalance"] is True
    assert found["virtualMachineProfile"]["storageProfile"]["imageReference"] == {"id": image}
    assert found["upgradePolicy"]["automaticOSUpgradePolicy"]["enableAutomaticOSUpgrade"] is False
    (own,) = [
        each for each in made.of_type("network:NetworkSecurityGroup") if each.name == "churn"
    ]
    callers = next(each for each in own.inputs["securityRules"] if each["name"] == "callers")
    assert callers["sourceAddressPrefixes"] == ["10.9.0.0/16"]
    assert "sourceAddressPrefix" not in callers
    (profile,) = made.one("monitor:AutoscaleSetting").inputs["profiles"]
    assert profile["capacity"] == {"minimum": "2", "maximum": "5", "default": "2"}
    assert profile["rules"][0]["metricTrigger"]["threshold"] == 70
    assert made.outputs["endpoint"] == "https://churn.acme.internal:8443"
    assert found["tags"]["falaj-environment"] == "test"


def test_arm_machines_and_images_by_name() -> None:
    made = make(int8="i8mm", machine_image="Canonical:ubuntu-24_04-lts:minimal-arm64:24.04.1")
    found = scale_set(made)
    assert "p" in found["sku"]["name"]
    assert found["virtualMachineProfile"]["storageProfile"]["imageReference"] == {
        "publisher": "Canonical",
        "offer": "ubuntu-24_04-lts",
        "sku": "minimal-arm64",
        "version": "24.04.1",
    }


@pytest.mark.parametrize("mode", ["instances", "serverless"])
def test_a_region_without_zones(mode: str) -> None:
    def program(opts: pulumi.ResourceOptions) -> CpuInferenceTier:
        args: Any = foundation(opts, "uaecentral").tier_args(mode=mode)
        return CpuInferenceTier("churn", args, opts)

    made = deploy_now(program, region="uaecentral")
    if mode == "serverless":
        assert made.one("app:ManagedEnvironment").inputs["zoneRedundant"] is False
        return
    (front,) = made.one("network:LoadBalancer").inputs["frontendIPConfigurations"]
    assert "zones" not in front
    assert "zones" not in scale_set(made)
