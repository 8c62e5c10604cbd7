"""The file systems of a training cluster on AWS."""

from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, named, stateful, token, written
from falaj.components.aws._iam import MOUNT_FILES, Statement, document, iam_arn
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.training_file_system import (
    PERSISTENT_2,
    TrainingFileSystemArgs,
    TrainingFileSystemSpec,
    check,
)

__all__ = ["TrainingFileSystem", "TrainingFileSystemArgs"]


class TrainingFileSystem(pulumi.ComponentResource):
    """FSx for Lustre for training data in one zone, and EFS for shared homes in all.

    ::

        files = TrainingFileSystem("files", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30", "zones": ["mec1-az1", "mec1-az2"],
            "data_key_id": keys.key_ids["data"], "network_id": network.network_id,
            "storage_subnet_ids": network.storage_subnet_ids,
            "security_group_id": network.security_group_ids["storage"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes an `fsx.LustreFileSystem` (persistent, SSD, compressed, the data's own key) in ``zone``:
    put it where the GPUs are, since each read across zones costs time and money. Lustre encrypts
    what is on the way itself between instances of current types. That PERSISTENT_2 is sold in the
    region isn't certain: ``deployment_type`` ``persistent-1`` is what there is otherwise, slower
    and without a metadata configuration, and encrypted on the way in the regions that AWS names
    for it. With ``homes`` also an
    `efs.FileSystem` under the same key with a mount target in each zone and a policy that admits
    only this account's principals, by mount targets, over TLS: mount it with the options
    ``tls,iam``.

    In production both are protected, retained and backed up every day; elsewhere they go with the
    stack, without a last backup.

    The policy of the homes admits, and grants nothing by itself: whoever mounts them needs
    ``elasticfilesystem:ClientMount`` in a policy of its own, as the role of the EFS CSI driver has
    by AWS's policy for it.
    """

    file_system_id: pulumi.Output[str]
    """Id of the Lustre file system."""
    mount_address: pulumi.Output[str]
    """What to mount: ``<dns name>@tcp:/<mount name>``."""
    homes_id: pulumi.Output[str | None]
    """Id of the EFS file system; none without homes."""
    homes_address: pulumi.Output[str | None]
    """DNS name of the EFS file system; none without homes."""

    def __init__(
        self, name: str, args: TrainingFileSystemArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("TrainingFileSystem"), name, engine_inputs(args), opts)
        lustre = self._lustre(name, spec, args)
        self.file_system_id = lustre.id
        self.mount_address = pulumi.Output.concat(lustre.dns_name, "@tcp:/", lustre.mount_name)
        homes = self._homes(name, spec, args) if spec.homes else None
        self.homes_id = pulumi.Output.from_input(homes.id if homes else None)
        self.homes_address = pulumi.Output.from_input(homes.dns_name if homes else None)
        outputs: dict[str, Any] = {
            "file_system_id": self.file_system_id,
            "mount_address": self.mount_address,
            "homes_id": self.homes_id,
            "homes_address": self.homes_address,
        }
        self.register_outputs(written(outputs))

    def _lustre(
        self, name: str, spec: TrainingFileSystemSpec, args: TrainingFileSystemArgs
    ) -> aws.fsx.LustreFileSystem:
        kept = spec.placed.retained
        is_newer = spec.deployment_type == PERSISTENT_2
        return aws.fsx.LustreFileSystem(
            name,
            subnet_ids=_subnet(args, spec.zone),
            security_group_ids=[args["security_group_id"]],
            deployment_type=spec.deployment_type.upper().replace("-", "_"),
            storage_type="SSD",
            storage_capacity=spec.capacity_gib,
            per_unit_storage_throughput=spec.throughput_mbs_per_tib,
            file_system_type_version="2.15",
            # Only the newer type takes it: docs.aws.amazon.com/fsx/latest/APIReference/
            # API_CreateFileSystemLustreMetadataConfiguration.html
            metadata_configuration={"mode": "AUTOMATIC"} if is_newer else None,
            data_compression_type="LZ4",
            kms_key_id=args["data_key_id"],
            automatic_backup_retention_days=7 if kept else 0,
            copy_tags_to_backups=True if kept else None,
            skip_final_backup=not kept,
            tags={**spec.placed.tags(name), "Name": name},
            opts=stateful(self, spec.placed),
        )

    def _homes(
        self, name: str, spec: TrainingFileSystemSpec, args: TrainingFileSystemArgs
    ) -> aws.efs.FileSystem:
        label = f"{name}-homes"
        homes = aws.efs.FileSystem(
            label,
            # EFS makes no second file system of the same token, should an answer get lost.
            creation_token=named(spec.placed, label, limit=64),
            encrypted=True,
            kms_key_id=args["data_key_id"],
            performance_mode="generalPurpose",
            throughput_mode="elastic",
            lifecycle_policies=[
                {"transition_to_ia": "AFTER_30_DAYS"},
                {"transition_to_primary_storage_class": "AFTER_1_ACCESS"},
            ],
            tags={**spec.placed.tags(name), "Name": label},
            opts=stateful(self, spec.placed),
        )
        policy = pulumi.Output.all(account=account_of(self), arn=homes.arn).apply(_homes_policy)
        aws.efs.FileSystemPolicy(label, file_system_id=homes.id, policy=policy, opts=child(self))
        status = "ENABLED" if spec.placed.retained else "DISABLED"
        aws.efs.BackupPolicy(
            label, file_system_id=homes.id, backup_policy={"status": status}, opts=child(self)
        )
        for zone in spec.zones:
            aws.efs.MountTarget(
                f"{label}-{zone}",
                file_system_id=homes.id,
                subnet_id=_subnet(args, zone),
                security_groups=[args["security_group_id"]],
                opts=child(self),
            )
        return homes


def _subnet(args: TrainingFileSystemArgs, zone: str) -> pulumi.Output[str]:
    def find(subnets: dict[str, str]) -> str:
        return subnets_of(subnets, (zone,), where="storage_subnet_ids", all_needed=True)[0]

    return pulumi.Output.from_input(args["storage_subnet_ids"]).apply(find)


def _homes_policy(known: dict[str, str]) -> pulumi.Output[str]:
    """https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html"""
    return document(
        Statement(
            "OwnPrincipalsByMountTarget",
            MOUNT_FILES,
            [known["arn"]],
            principals={"AWS": [iam_arn(known["account"], "root")]},
            conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
        ),
        Statement(
            "OnlyTls",
            ["elasticfilesystem:*"],
            [known["arn"]],
            effect="Deny",
            principals={"AWS": ["*"]},
            conditions={"Bool": {"aws:SecureTransport": "false"}},
        ),
    )
