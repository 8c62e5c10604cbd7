"""Backups and snapshots that are copied to other regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    rule,
    violation,
)
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.13", "uae-ia:T3.5.1")
#: Regions that copies go to, by type.
_COPIES: Final[dict[str, tuple[str, ...]]] = {
    "aws:rds/snapshotCopy:SnapshotCopy": ("destinationRegion",),
    "aws:rds/clusterSnapshotCopy:ClusterSnapshotCopy": ("destinationRegion",),
    "aws:redshift/snapshotCopy:SnapshotCopy": ("destinationRegion",),
    "aws:redshift/cluster:Cluster": ("snapshotCopy.destinationRegion",),
    "aws:dlm/lifecyclePolicy:LifecyclePolicy": (
        "policyDetails.schedules.crossRegionCopyRules.target",
        "policyDetails.schedules.crossRegionCopyRules.targetRegion",
        "policyDetails.action.crossRegionCopies.target",
    ),
    "aws:efs/replicationConfiguration:ReplicationConfiguration": ("destination.region",),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": (
        "distributions.region",
    ),
}  # fmt: skip

#: Its source and destination always differ, so that one of them is abroad.
_AUTOMATED: Final = (
    "aws:rds/instanceAutomatedBackupsReplication:InstanceAutomatedBackupsReplication"
)


@rule(
    "residency-aws-snapshot-copy",
    "Snapshots, images and file systems are copied within allowed regions",
    Severity.CRITICAL,
    frozenset(_COPIES) | {_AUTOMATED},
    _CONTROLS,
    "Remove the copy to another region, or give it an allowed one. Keep a second copy in another "
    "vault or account of the same region instead.",
)
def snapshot_copy(resource: Resource, view: View) -> Iterator[Finding]:
    """Destinations of copies; where none is given the copy stays in its region."""
    if resource.kind == _AUTOMATED and resource.custom:
        yield violation(
            "", f"backups are replicated from one region to another; {places_said(view)}"
        )
    for path in _COPIES.get(resource.kind, ()):
        yield from aws_targets.region(resource, view, path, "the copy")


@rule(
    "residency-aws-backup-copy",
    "Recovery points are copied to vaults in the country only",
    Severity.CRITICAL,
    {"aws:backup/plan:Plan"},
    _CONTROLS,
    "Copy to a vault of an allowed region: the ARN of the vault says its region.",
)
def backup_copy(resource: Resource, view: View) -> Iterator[Finding]:
    """The vaults of copy actions, and the air-gapped ones."""
    for path in (
        "rules.copyActions.destinationVaultArn",
        "rules.targetLogicallyAirGappedBackupVaultArn",
    ):
        yield from aws_targets.arn(resource, view, path, "the vault")


RULES: tuple[Rule, ...] = (snapshot_copy, backup_copy)
