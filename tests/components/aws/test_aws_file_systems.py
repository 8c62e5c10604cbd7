"""File systems of a training cluster: in the GPUs' zone, under the data's key."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws.training_file_system import TrainingFileSystem

ZONES = ["mec1-az1", "mec1-az3"]


def files(args: dict[str, Any], lacking: str = "") -> Any:
    """Builds the file systems in subnets of a VPC, apart from a zone that lacks one."""

    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> TrainingFileSystem:
        own = pulumi.ResourceOptions(provider=opts.providers[0])  # pyright: ignore
        vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=own)
        group = aws.ec2.SecurityGroup("storage", vpc_id=vpc.id, description="files", opts=own)
        lustre = aws.vpc.SecurityGroupIngressRule(
            "lustre",
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=988,
            to_port=988,
            referenced_security_group_id=group.id,
            opts=own,
        )
        subnets = {
            zone: aws.ec2.Subnet(
                zone,
                vpc_id=vpc.id,
                cidr_block=f"10.0.{number}.0/24",
                availability_zone_id=zone,
                opts=own,
            ).id
            for number, zone in enumerate(ZONES)
            if zone != lacking
        }
        given = {
            **args,
            "zones": ZONES,
            "data_key_id": keys["data"],
            "network_id": vpc.id,
            "storage_subnet_ids": pulumi.Output.all(**subnets),
            # FSx looks for the rule when it makes the file system.
            "security_group_id": pulumi.Output.all(group.id, lustre.id).apply(
                lambda known: str(known[0])
            ),
        }
        return TrainingFileSystem("files", given, opts)

    return build


@pytest.fixture(scope="module")
def made(deploy: Any, placed: dict[str, Any]) -> Any:
    return deploy(files({**placed, "zone": "mec1-az3"}))


def test_a_zone_without_a_subnet_is_refused(deploy: Any, placed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no subnet in mec1-az3"):
        deploy(files(placed, lacking="mec1-az3"))


def test_lustre_is_in_one_zone_under_the_key(made: Any) -> None:
    lustre = made.one("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert lustre.inputs["subnetIds"] == made.named("mec1-az3").id
    assert lustre.inputs["deploymentType"] == "PERSISTENT_2"
    assert lustre.inputs["storageCapacity"] == 1200
    assert lustre.inputs["perUnitStorageThroughput"] == 250
    key = made.one("aws:kms/key:Key", "keys-data").outputs["arn"]
    assert lustre.inputs["kmsKeyId"] == key
    assert lustre.inputs["automaticBackupRetentionDays"] == 0
    assert made.returned["file_system_id"] == lustre.id
    assert "@tcp:/" in made.returned["mount_address"]


@pytest.mark.parametrize(("given", "expected"), [(None, 200), (50, 50), (100, 100)])
def test_the_older_type_has_its_own_throughput_and_no_metadata_mode(
    deploy: Any, placed: dict[str, Any], given: int | None, expected: int
) -> None:
    args = {**placed, "homes": False, "deployment_type": "persistent-1"}
    made = deploy(files(args | ({"throughput_mbs_per_tib": given} if given else {})))
    lustre = made.one("aws:fsx/lustreFileSystem:LustreFileSystem").inputs
    assert lustre["deploymentType"] == "PERSISTENT_1"
    assert lustre["perUnitStorageThroughput"] == expected
    assert "metadataConfiguration" not in lustre
    assert lustre["fileSystemTypeVersion"] == "2.15"


def test_homes_are_in_every_zone_and_admit_tls_only(made: Any) -> None:
    homes = made.one("aws:efs/fileSystem:FileSystem")
    assert homes.inputs["encrypted"] is True
    targets = made.of_type("aws:efs/mountTarget:MountTarget")
    assert {each.inputs["subnetId"] for each in targets} == {made.named(zone).id for zone in ZONES}
    policy = json.loads(made.one("aws:efs/fileSystemPolicy:FileSystemPolicy").inputs["policy"])
    own, tls = policy["Statement"]
    assert own["Principal"] == {"AWS": ["arn:aws:iam::000000000000:root"]}
    assert own["Condition"] == {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    assert tls["Effect"] == "Deny"
    assert tls["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert made.returned["homes_id"] == homes.id


def test_homes_can_be_left_out_and_sizes_chosen(deploy: Any, placed: dict[str, Any]) -> None:
    args = {
        **placed,
        "environment": "production",
        "homes": False,
        "capacity_gib": 4800.0,
        "throughput_mbs_per_tib": 1000,
        "service": "lustre",
    }
    made = deploy(files(args))
    assert not made.of_type("aws:efs/fileSystem:FileSystem")
    assert made.returned["homes_id"] is None
    assert made.returned["homes_address"] is None
    lustre = made.one("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert lustre.inputs["storageCapacity"] == 4800
    assert lustre.inputs["perUnitStorageThroughput"] == 1000
    assert lustre.inputs["automaticBackupRetentionDays"] == 7
    assert lustre.inputs["subnetIds"] == made.named("mec1-az1").id
    assert made.kept()["aws:fsx/lustreFileSystem:LustreFileSystem files"] == (True, True)
