"""What the AWS components share: their tokens, inputs and the options of what they make."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import pulumi
import pulumi_aws as aws

from falaj.components.specification.names import physical_name
from falaj.components.specification.placed import Placed
from falaj.components.specification.property_names import camel
from falaj.components.specification.queries import asked_once

Known = TypeVar("Known")

#: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
ROLE_LIMIT = 64


def token(name: str) -> str:
    """The type token of a component."""
    return f"falaj-aws:index:{name}"


def written(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A component's outputs as the engine writes them."""
    return {camel(key): value for key, value in outputs.items()}


def named(placed: Placed, *parts: str, limit: int) -> str:
    """The name of something in the cloud: tenant, stack and ``parts``."""
    return physical_name(placed.tenant, pulumi.get_stack(), *parts, limit=limit)


def log_group_name(placed: Placed, *parts: str) -> str:
    """The name of a log group: a path that begins with the tenant and the stack."""
    # https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html
    return "/".join(("/falaj", placed.tenant, pulumi.get_stack(), *parts))[:512]


def child(parent: pulumi.Resource, **options: Any) -> pulumi.ResourceOptions:
    """Options of a resource that may come and go with the stack."""
    return pulumi.ResourceOptions(parent=parent, **options)


def after(value: pulumi.Output[Known], made: Sequence[pulumi.Resource]) -> pulumi.Output[Known]:
    """The output; what uses it waits for other resources as well.

    Its value isn't theirs: in a preview in which one of them is new it stays known.
    """

    async def resources() -> set[pulumi.Resource]:
        return {*await value.resources(), *made}

    future = cast("Awaitable[Known]", value.future(with_unknowns=True))
    return pulumi.Output(resources(), future, value.is_known(), value.is_secret())


def stateful(parent: pulumi.Resource, placed: Placed, **options: Any) -> pulumi.ResourceOptions:
    """Options of a resource that holds data: protected and retained where `Placed.retained`."""
    kept = True if placed.retained else None
    return pulumi.ResourceOptions(parent=parent, protect=kept, retain_on_delete=kept, **options)


_CALLER: Final = "aws:index/getCallerIdentity:getCallerIdentity"


def account_of(parent: pulumi.Resource) -> pulumi.Output[str]:
    """Number of the account that the parent's provider deploys into."""
    opts = pulumi.InvokeOutputOptions(parent=parent)
    identity = asked_once(parent, _CALLER, lambda: aws.get_caller_identity_output(opts=opts))
    return identity.account_id
