"""Node pools on AWS: launch templates, node groups, the autoscaler's tags."""

from __future__ import annotations

import base64
import email
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
import yaml

from falaj.components import catalogue
from falaj.components.aws import CpuNodePool, GpuNodePool
from falaj.components.aws._launch_template import efa_interfaces
from falaj.components.aws._node_group import node_config, user_data
from falaj.components.specification.machine_choice import subnets_of

GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
TAG = "aws:autoscaling/tag:Tag"
RESERVATION = "cr-0123456789abcdef0"
HINT = "k8s.io/cluster-autoscaler/node-template"


@pytest.fixture
def pool(deploy: Any, with_cluster: Any) -> Callable[..., Any]:
    """Deploys one pool; returns the deployment, its template's and its group's inputs."""

    def make(kind: Any = GpuNodePool, **changes: Any) -> Any:
        wanted = {"gpu": "H200", "count": 8} if kind is GpuNodePool else {}

        def program(options: pulumi.ResourceOptions) -> Any:
            return kind("pool", {**with_cluster(options), **wanted, **changes}, options)

        done = deploy(program)
        [template], [group] = done.of_type(TEMPLATE), done.of_type(GROUP)
        return done, template.inputs, group.inputs

    return make


def test_impossible_combinations_never_reach_the_cloud(deploy: Any, placed: Any) -> None:
    plain = {
        **placed,
        "cluster_id": "c",
        "node_subnet_ids": {"mec1-az1": "subnet-1"},
        "node_identity_id": "r",
        "security_group_id": "g",
        "disk_encryption_id": "k",
        "gpu": "H200",
        "count": 8,
        "fabric": "infiniband",
    }
    with pytest.raises(pulumi.InputPropertiesError, match="infiniband exists on Azure only"):
        deploy(lambda options: GpuNodePool("pool", plain, options))


def test_a_gpu_pool(pool: Any) -> None:
    done, template, group = pool()
    [made] = done.of_type(GROUP)
    assert done.returned["pool_name"] == made.outputs["nodeGroupName"]
    assert done.returned["pool_id"].startswith("arn:aws:eks:me-central-1:000000000000:nodegroup/")
    assert group["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group["capacityType"] == "ON_DEMAND"
    assert group["scalingConfig"] == {"minSize": 0, "maxSize": 1, "desiredSize": 0}
    assert group["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    assert group["nodeRepairConfig"] == {"enabled": True}
    assert group["version"] == "1.35"
    assert len(group["subnetIds"]) == 1
    assert "remoteAccess" not in group
    assert group["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    ]
    assert group["labels"]["falaj.io/flavor"] == "h200"
    # By it the autoscaler waits for the GPUs of a new machine, and sees which stand idle.
    assert group["labels"]["k8s.amazonaws.com/accelerator"] == "H200-SXM-141GB"
    assert template["instanceType"] == "p5en.48xlarge"
    assert template["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
        "instanceMetadataTags": "disabled",
    }
    [disk] = template["blockDeviceMappings"]
    assert disk["deviceName"] == "/dev/xvda"
    assert disk["ebs"]["encrypted"] == "true"
    assert disk["ebs"]["kmsKeyId"].startswith("arn:aws:kms:me-central-1:")
    assert disk["ebs"]["volumeSize"] == 200
    assert template["capacityReservationSpecification"] == {
        "capacityReservationPreference": "none"
    }
    assert len(template["vpcSecurityGroupIds"]) == 1
    for absent in (
        "keyName",
        "networkInterfaces",
        "placement",
        "instanceMarketOptions",
        "imageId",
    ):
        assert absent not in template
    kinds = {each["resourceType"] for each in template["tagSpecifications"]}
    assert kinds == {"instance", "volume", "network-interface"}
    for each in template["tagSpecifications"]:
        assert each["tags"]["falaj:cost-center"] == "ai-42"


def test_efa_makes_an_interface_on_each_card_and_no_placement_group(pool: Any) -> None:
    done, template, _ = pool(fabric="efa")
    interfaces = template["networkInterfaces"]
    assert [each["networkCardIndex"] for each in interfaces] == list(range(16))
    assert [each["interfaceType"] for each in interfaces] == ["efa", *["efa-only"] * 15]
    assert [each["deviceIndex"] for each in interfaces] == [0, *[1] * 15]
    assert all(each["securityGroups"] for each in interfaces)
    assert not any("associatePublicIpAddress" in each for each in interfaces)
    assert "vpcSecurityGroupIds" not in template
    assert "placement" not in template
    assert not done.of_type("aws:ec2/placementGroup:PlacementGroup")


def test_every_machine_with_efa_gets_as_many_interfaces_as_it_has() -> None:
    for machine in catalogue.place("aws", "me-central-1").machines("gpu"):
        interfaces = efa_interfaces(machine, "sg-1")
        assert len(interfaces) == machine.efa_interfaces
        assert machine.efa_interfaces <= (machine.network_cards or 1)


def test_a_placement_group_is_made_when_asked_for(pool: Any) -> None:
    done, template, _ = pool(placement_group="cluster")
    [group] = done.of_type("aws:ec2/placementGroup:PlacementGroup")
    assert group.inputs["strategy"] == "cluster"
    assert template["placement"] == {"groupName": group.inputs["name"]}


def test_capacity_of_a_reservation(pool: Any) -> None:
    _, template, group = pool(capacity="reservation", reservation_id=RESERVATION)
    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": RESERVATION}
    assert group["capacityType"] == "ON_DEMAND"
    assert "instanceMarketOptions" not in template


def test_capacity_of_a_block(pool: Any) -> None:
    _, template, group = pool(capacity="capacity-block", reservation_id=RESERVATION)
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert group["capacityType"] == "CAPACITY_BLOCK"


def test_spot_is_the_node_groups(pool: Any) -> None:
    _, template, group = pool(
        gpu="L4", count=1, capacity="spot", data_class="internal", sharing="time-slicing"
    )
    assert group["capacityType"] == "SPOT"
    assert "instanceMarketOptions" not in template
    assert group["labels"]["falaj.io/flavor"] == "l4-time-slicing-4-spot"
    assert group["labels"]["nvidia.com/device-plugin.config"] == "time-slicing-4"


def test_an_existing_placement_group_is_named(deploy: Any, with_cluster: Any) -> None:
    def program(options: pulumi.ResourceOptions) -> None:
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        aws.ec2.PlacementGroup("mine", name="mine", strategy="cluster", opts=provider)
        wanted = {"gpu": "H200", "count": 8, "placement_group": "existing"}
        args = {**with_cluster(options), **wanted, "placement_group_name": "mine"}
        GpuNodePool("pool", args, options)

    done = deploy(program)
    [template] = done.of_type(TEMPLATE)
    assert template.inputs["placement"] == {"groupName": "mine"}
    assert len(done.of_type("aws:ec2/placementGroup:PlacementGroup")) == 1


def test_the_autoscaler_knows_a_pool_without_nodes(pool: Any) -> None:
    done, _, _ = pool(
        sharing="mig-1g.18gb", labels={"team": "vision"}, taints=["team=vision:NoExecute"]
    )
    tags = {each.inputs["tag"]["key"]: each.inputs["tag"] for each in done.of_type(TAG)}
    values = {key.removeprefix(f"{HINT}/"): tag["value"] for key, tag in tags.items()}
    assert values["resources/nvidia.com/mig-1g.18gb"] == "56"
    assert values["label/nvidia.com/mig.config"] == "all-1g.18gb"
    assert values["label/team"] == "vision"
    assert values["label/falaj.io/pool"] == "pool"
    assert values["taint/nvidia.com/gpu"] == "present:NoSchedule"
    assert values["taint/team"] == "vision:NoExecute"
    assert not any(tag["propagateAtLaunch"] for tag in tags.values())


def test_sizes_and_disk(pool: Any) -> None:
    _, template, group = pool(min_nodes=1, max_nodes=4, nodes=2, disk_gib=500)
    assert group["scalingConfig"] == {"minSize": 1, "maxSize": 4, "desiredSize": 2}
    assert template["blockDeviceMappings"][0]["ebs"]["volumeSize"] == 500


def test_an_update_replaces_as_many_nodes_at_once_as_is_said(pool: Any) -> None:
    _, _, group = pool(max_unavailable=3)
    assert group["updateConfig"] == {"maxUnavailable": 3, "updateStrategy": "MINIMAL"}
    _, _, group = pool(CpuNodePool, max_unavailable=3)
    assert group["updateConfig"] == {"maxUnavailable": 3, "updateStrategy": "DEFAULT"}


def test_an_update_of_gpu_nodes_makes_new_ones_first_where_a_surge_is_asked_for(pool: Any) -> None:
    _, _, group = pool(max_surge=4)
    assert group["updateConfig"] == {"maxUnavailable": 4, "updateStrategy": "DEFAULT"}


def test_a_cpu_pool(pool: Any) -> None:
    _, template, group = pool(CpuNodePool, system=True, taints=["a=b:PreferNoSchedule"])
    assert group["amiType"] == "AL2023_x86_64_STANDARD"
    assert group["labels"]["falaj.io/system"] == "true"
    assert "k8s.amazonaws.com/accelerator" not in group["labels"]
    assert group["taints"] == [{"key": "a", "value": "b", "effect": "PREFER_NO_SCHEDULE"}]
    assert group["updateConfig"]["updateStrategy"] == "DEFAULT"
    assert "userData" not in template


def test_a_graviton_pool(pool: Any) -> None:
    _, template, group = pool(CpuNodePool, arch="arm64", vcpu=8, memory_gib=16)
    assert group["amiType"] == "AL2023_ARM_64_STANDARD"
    machine = catalogue.place("aws", "me-central-1").machine(template["instanceType"])
    assert machine.arch == "arm64"


def test_user_data_is_mime_with_a_node_config() -> None:
    for machine in catalogue.place("aws", "me-central-1").machines():
        text = user_data(machine)
        if text is None:
            assert not machine.local_nvme_gb
            assert machine.gpu is None
            continue
        message = email.message_from_bytes(base64.b64decode(text))
        assert message.get_content_type() == "multipart/mixed"
        [part] = message.get_payload()
        assert part.get_content_type() == "application/node.eks.aws"
        config = yaml.safe_load(part.get_payload())
        assert config == node_config(machine)
        assert config["apiVersion"] == "node.eks.aws/v1alpha1"
        assert config["kind"] == "NodeConfig"


def test_local_disks_are_scratch_space() -> None:
    place = catalogue.place("aws", "me-central-1")
    config = node_config(place.machine("p5en.48xlarge"))
    assert config is not None
    assert config["spec"]["instance"] == {"localStorage": {"strategy": "RAID0"}}
    assert config["spec"]["kubelet"]["config"]["topologyManagerPolicy"] == "best-effort"


def test_what_efa_registers_may_be_locked() -> None:
    """nodeadm reads the numbers as floats, which have to hold them."""
    place = catalogue.place("aws", "me-central-1")
    for machine in place.machines():
        spec = (node_config(machine) or {"spec": {}})["spec"]
        assert ("containerd" in spec) == bool(machine.efa_interfaces), machine.name
        if "containerd" not in spec:
            continue
        limits = spec["containerd"]["baseRuntimeSpec"]["process"]["rlimits"]
        assert {each["type"] for each in limits} == {"RLIMIT_NOFILE", "RLIMIT_MEMLOCK"}
        for each in limits:
            assert int(float(each["hard"])) == each["hard"] >= each["soft"]
        assert limits[1]["soft"] > machine.memory_gib * 2**30


def test_subnets_follow_the_zones() -> None:
    known = {"mec1-az2": "b", "mec1-az1": "a"}
    chosen = subnets_of(known, ["mec1-az1", "mec1-az3"], where="x", all_needed=False)
    assert chosen == ["a"]
    with pytest.raises(ValueError, match="x has no subnet in mec1-az3"):
        subnets_of(known, ["mec1-az1", "mec1-az3"], where="x", all_needed=True)
    with pytest.raises(ValueError, match=r"x are none: .* set the network's 'purpose'"):
        subnets_of({}, ["mec1-az1"], where="x", all_needed=False)


def test_costs_and_zones_are_attributes(deploy: Any, with_cluster: Any) -> None:
    found: list[GpuNodePool] = []

    def program(options: pulumi.ResourceOptions) -> None:
        args = {**with_cluster(options), "gpu": "H200", "count": 8}
        found.append(GpuNodePool("pool", args, options))

    deploy(program)
    assert found[0].machine == "p5en.48xlarge"
    assert found[0].zones == ["mec1-az1"]
    assert found[0].cost_at_minimum.startswith("USD 0.00")
    assert found[0].cost_at_maximum.startswith("USD 75.96 per hour")
