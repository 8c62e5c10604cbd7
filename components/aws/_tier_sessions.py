"""Shells on a tier's machines by Session Manager, where they are asked for.

They go through private endpoints, are encrypted with a key of their own, and what is typed and
printed is in the tier's log. Who may start them is said in IAM, for people, and not here.
"""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, named
from falaj.components.aws._iam import Statement, document
from falaj.components.aws._tier_access import Tier
from falaj.components.aws.key_ring import KEY_ADMINISTRATION, PURPOSE_TAG, SESSIONS, KeyHolder
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierSpec

#: By the agent, and by whoever starts a session: docs.aws.amazon.com/systems-manager/latest/
#: userguide/session-preferences-enable-encryption.html
_USE = ("kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey")
#: The shortest that KMS takes: docs.aws.amazon.com/kms/latest/developerguide/deleting-keys.html
_DELETION_DAYS = 7
#: What the agent calls for sessions. The managed policy AmazonSSMManagedInstanceCore has these,
#: and reads every parameter of the account, too. docs.aws.amazon.com/systems-manager/latest/
#: userguide/getting-started-add-permissions-to-existing-profile.html
_AGENT = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


def session_key(parent: pulumi.Resource, spec: CpuInferenceTierSpec) -> aws.kms.Key:
    """A key that agents and people use directly, which no key of a ring lets them: those are for
    services. Nothing is kept under it."""
    account = account_of(parent)

    def policy(number: str) -> pulumi.Output[str]:
        holder = KeyHolder(number, spec.placed.region, ())
        own = {"StringEquals": {"kms:CallerAccount": number}}
        principals = {"AWS": [holder.root]}
        return document(
            Statement("Administer", KEY_ADMINISTRATION, ["*"], principals=principals),
            Statement("Use", _USE, ["*"], principals=principals, conditions=own),
        )

    return aws.kms.Key(
        f"{spec.name}-session",
        description=f"Sessions with machines of {spec.placed.tenant}, {pulumi.get_stack()}",
        policy=account.apply(policy),
        enable_key_rotation=True,
        deletion_window_in_days=_DELETION_DAYS,
        multi_region=False,
        bypass_policy_lockout_safety_check=False,
        # By it whoever deploys may make such a key, and no other (`_role_permissions`).
        tags={**spec.placed.tags(spec.name), PURPOSE_TAG: SESSIONS},
        opts=child(parent),
    )


def may_have_sessions(log_group: pulumi.Output[str], key: pulumi.Output[str]) -> list[Statement]:
    """What machines need beside a right to write their log.

    Args:
        log_group: ARN of the group; the agent looks whether it is encrypted.
        key: ARN of the sessions' key.
    """
    return [
        Statement("DecryptSessions", ["kms:Decrypt"], [key]),
        Statement("HaveSessions", list(_AGENT), ["*"]),
        Statement("FindLogGroup", ["logs:DescribeLogGroups"], ["*"]),
        Statement(
            "FindLogStream",
            ["logs:DescribeLogStreams"],
            [log_group.apply(lambda arn: f"{arn}:*")],
        ),
    ]


def session_document(tier: Tier, key: pulumi.Output[str]) -> aws.ssm.Document:
    """Make the document that sessions are started with, and say how."""
    spec = tier.spec
    content = pulumi.Output.all(tier.log_group.name, key).apply(lambda known: _content(*known))
    made = aws.ssm.Document(
        f"{spec.name}-session",
        name=named(spec.placed, spec.name, "session", limit=128),
        document_type="Session",
        document_format="JSON",
        content=content,
        tags=tier.tags,
        opts=child(tier.component),
    )
    made.name.apply(
        lambda name: pulumi.log.info(
            "a shell on a machine: aws ssm start-session --target INSTANCE "
            f"--document-name {name} --region {spec.placed.region}",
            tier.component,
        )
    )
    return made


def _content(log_group: str, key: str) -> str:
    """https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-schema.html"""
    return json.dumps(
        {
            "schemaVersion": "1.0",
            "description": "A shell that is encrypted and logged",
            "sessionType": "Standard_Stream",
            "inputs": {
                "cloudWatchLogGroupName": log_group,
                "cloudWatchEncryptionEnabled": True,
                "cloudWatchStreamingEnabled": True,
                "kmsKeyId": key,
            },
        },
        sort_keys=True,
    )
