"""Log groups under a key of one's own, and the roles that write to them."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import ROLE_LIMIT, child, log_group_name, named, stateful
from falaj.components.aws._iam import Statement, arn, document, trust
from falaj.components.specification.placed import Placed


def log_group(
    parent: pulumi.Resource,
    name: str,
    placed: Placed,
    *,
    part: str,
    days: int,
    key_id: pulumi.Input[str],
) -> aws.cloudwatch.LogGroup:
    """The log group ``/falaj/<tenant>/<stack>/<name>/<part>``.

    Args:
        parent: the component that logs.
        name: its name.
        placed: whose it is; logs are kept with their stack's data.
        part: what is logged, such as ``flow``.
        days: retention in days.
        key_id: ARN of the key for logs.
    """
    return aws.cloudwatch.LogGroup(
        f"{name}-{part}",
        name=log_group_name(placed, name, part),
        retention_in_days=days,
        kms_key_id=key_id,
        log_group_class="STANDARD",
        skip_destroy=placed.retained,
        tags=placed.tags(name),
        opts=stateful(parent, placed),
    )


def writer_role(
    parent: pulumi.Resource,
    name: str,
    placed: Placed,
    *,
    service: str,
    group: aws.cloudwatch.LogGroup,
    account: pulumi.Output[str],
    says_account: bool,
) -> aws.iam.Role:
    """A role by which a service, such as ``cloudtrail.amazonaws.com``, writes one group.

    Args:
        parent: the component that logs.
        name: its name.
        placed: whose it is.
        service: the service's principal.
        group: what it writes.
        account: number of the account.
        says_account: whether the service says for which account it takes the role, which the role
            then compares; a service that doesn't would be refused.

    Flow logs look for their group first, and are dropped where they may not:
    https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html
    """
    role = aws.iam.Role(
        f"{name}-logs",
        name=named(placed, name, "logs", limit=ROLE_LIMIT),
        description=f"{service} writes the logs of {name}",
        assume_role_policy=account.apply(
            lambda number: trust(service, number if says_account else None)
        ),
        tags=placed.tags(name),
        opts=child(parent),
    )

    def policy(known: dict[str, str]) -> pulumi.Output[str]:
        return document(
            Statement(
                "FindGroup",
                ["logs:DescribeLogGroups"],
                [arn("logs", placed.region, known["account"], "log-group:*")],
            ),
            Statement(
                "WriteOwnGroup",
                [
                    "logs:CreateLogStream",
                    "logs:DescribeLogStreams",
                    "logs:PutLogEvents",
                ],
                [f"{known['group']}:*"],
            ),
        )

    known = pulumi.Output.all(account=account, group=group.arn)
    aws.iam.RolePolicy(
        f"{name}-logs", role=role.name, policy=known.apply(policy), opts=child(parent)
    )
    return role
