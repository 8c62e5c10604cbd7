"""Shells on a tier's machines by Session Manager, where they are asked for.

They go through private endpoints, are encrypted with the tier's key, and what is typed and printed
is in the tier's log. Who may start them is said in IAM, for people, and not here.
"""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, named
from falaj.components.aws._iam import Statement
from falaj.components.aws._tier_access import Tier

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


def may_have_sessions(log_group: pulumi.Output[str]) -> list[Statement]:
    """What machines need beside a right to decrypt and to write their log.

    Args:
        log_group: ARN of the group; the agent looks whether it is encrypted.
    """
    return [
        Statement("HaveSessions", list(_AGENT), ["*"]),
        Statement("FindLogGroup", ["logs:DescribeLogGroups"], ["*"]),
        Statement(
            "FindLogStream",
            ["logs:DescribeLogStreams"],
            [log_group.apply(lambda arn: f"{arn}:*")],
        ),
    ]


def session_document(tier: Tier) -> aws.ssm.Document:
    """Make the document that sessions are started with, and say how."""
    spec = tier.spec
    content = pulumi.Output.all(tier.log_group.name, tier.args["data_key_id"]).apply(
        lambda known: _content(*known)
    )
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
