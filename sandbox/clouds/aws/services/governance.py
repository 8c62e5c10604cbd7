"""Budgets, cost allocation, backup."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT
from falaj.sandbox.clouds.aws.documents import RESOURCE, policy
from falaj.sandbox.clouds.aws.hashes import hexdigits, uuid
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import at_most, between, forbids, matches, sized


def _amount(inputs: Inputs) -> Iterator[Problem]:
    text = inputs.get("limitAmount")
    if isinstance(text, str):
        try:
            fits = Decimal(text) >= 0
        except InvalidOperation:
            fits = False
        if not fits:
            yield Problem("limitAmount", f"{text!r} is no amount; give one such as '1500.0'")


def _notifications(inputs: Inputs) -> Iterator[Problem]:
    """Each notification reaches somebody: at most ten addresses and one topic."""
    for path, item in inputs.each("notifications[]"):
        note = as_map(item)
        mails, topics = note.get("subscriberEmailAddresses"), note.get("subscriberSnsTopicArns")
        if mails is None and topics is None:
            yield Problem(
                path, "reaches nobody; give subscriberEmailAddresses or subscriberSnsTopicArns"
            )
        if len(as_list(mails)) > 10:
            yield Problem(f"{path}.subscriberEmailAddresses", "has more than 10 addresses")
        if len(as_list(topics)) > 1:
            yield Problem(f"{path}.subscriberSnsTopicArns", "has more than one topic")
        for mail in as_list(mails):
            if isinstance(mail, str) and "@" not in mail:
                yield Problem(f"{path}.subscriberEmailAddresses", f"{mail!r} is no address")


def _lifecycle(inputs: Inputs) -> Iterator[Problem]:
    """Cold storage is kept 90 days at least (AWS Backup developer guide, "Lifecycle")."""
    for path, item in inputs.each("rules[].lifecycle"):
        cold, gone = as_map(item).get("coldStorageAfter"), as_map(item).get("deleteAfter")
        if (
            isinstance(cold, int | float)
            and isinstance(gone, int | float)
            and 0 < gone < cold + 90
        ):
            yield Problem(
                f"{path}.deleteAfter",
                f"{gone:g} days is too soon; at least 90 days after coldStorageAfter, {cold:g}",
            )


KINDS: Final[AwsKinds] = {
    "aws:budgets/budget:Budget": AwsKind(
        id="{account}:{name}",
        arn="budgets::{account}:budget/{name}",
        name=AutoName(longest=100),
        replaces=("accountId", "name", "namePrefix"),
        rules=(
            matches("name", r"[^:\\]{1,100}", "up to 100 characters without ':' and '\\'"),
            _amount,
            _notifications,
            sized("notifications", 0, 10),
            between("notifications[].threshold", 0, 1000000000),
            matches("timePeriodStart", r"\d{4}-\d\d-\d\d_\d\d:\d\d", "such as 2026-01-01_00:00"),
            matches("timePeriodEnd", r"\d{4}-\d\d-\d\d_\d\d:\d\d", "such as 2087-06-15_00:00"),
        ),
        references=(links.topic("notifications[].subscriberSnsTopicArns[]"),),
        unique=("name",),
        everywhere=True,
        computed=lambda _: {"accountId": ACCOUNT},
    ),
    "aws:costexplorer/costAllocationTag:CostAllocationTag": AwsKind(
        id="{tagKey}",
        replaces=("tagKey",),
        unique=("tagKey",),
        everywhere=True,
        computed=lambda _: {"type": "UserDefined"},
    ),
    t.VAULT: AwsKind(
        id="{name}",
        arn="backup:{region}:{account}:backup-vault:{name}",
        name=AutoName(longest=50),
        replaces=("kmsKeyArn", "name"),
        rules=(matches("name", r"[a-zA-Z0-9_-]{2,50}", "2 to 50 letters, digits, '-' and '_'"),),
        references=(Reference("kmsKeyArn", (t.KEY,), by=("arn",), holds=False),),
        unique=("name",),
        computed=lambda _: {"recoveryPoints": 0},
    ),
    "aws:backup/vaultLockConfiguration:VaultLockConfiguration": AwsKind(
        id="{backupVaultName}",
        replaces=("backupVaultName", "changeableForDays", "maxRetentionDays", "minRetentionDays"),
        rules=(
            between("changeableForDays", 3, 36500, "days"),
            between("minRetentionDays", 1, 36500, "days"),
            between("maxRetentionDays", 1, 36500, "days"),
            at_most("minRetentionDays", "maxRetentionDays"),
        ),
        references=(Reference("backupVaultName", (t.VAULT,), by=("name",), holds=False),),
    ),
    "aws:backup/vaultPolicy:VaultPolicy": AwsKind(
        id="{backupVaultName}",
        replaces=("backupVaultName",),
        rules=(policy("policy", RESOURCE, sids=False),),
        references=(Reference("backupVaultName", (t.VAULT,), by=("name",), holds=False),),
    ),
    t.BACKUP_PLAN: AwsKind(
        id="{uuid}",
        arn="backup:{region}:{account}:backup-plan:{id}",
        name=AutoName(longest=50),
        replaces=("name",),
        rules=(
            matches("name", r"[a-zA-Z0-9\-_.]{1,50}", "up to 50 letters, digits and -_."),
            matches("rules[].schedule", r"(cron|rate)\(.+\)", "cron(…) or rate(…)"),
            _lifecycle,
        ),
        references=(
            Reference("rules[].targetVaultName", (t.VAULT,), by=("name",), holds=False),
        ),
        computed=lambda resource: {"version": hexdigits(48, resource.id)},
    ),
    "aws:backup/selection:Selection": AwsKind(
        id="{uuid}",
        name=AutoName(longest=50),
        replaces=("conditions", "iamRoleArn", "name", "notResources", "planId", "resources",
                  "selectionTags"),
        rules=(matches("name", r"[a-zA-Z0-9\-_.]{1,50}", "up to 50 letters, digits and -_."),),
        references=(
            Reference("planId", (t.BACKUP_PLAN,)), links.role("iamRoleArn"),
        ),
    ),
    "aws:costexplorer/anomalyMonitor:AnomalyMonitor": AwsKind(
        id=lambda inputs: f"arn:aws:ce::{ACCOUNT}:anomalymonitor/{uuid(inputs.string('name'))}",
        arn="*",
        replaces=("monitorType", "monitorDimension"),
        rules=(forbids("name", r"^\s*$", "it is empty"),),
    ),
}  # fmt: skip
