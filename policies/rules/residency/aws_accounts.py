"""What an account or organisation sets up in other regions: stacks, bills, messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.model import Finding, Resource, Rule, Severity, View, rule
from policies.rules.residency import aws_targets
from policies.rules.residency.everywhere import CONTROLS

_STACKS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudformation/stackSetInstance:StackSetInstance": ("stackSetInstanceRegion", "region"),
    "aws:cloudformation/stackInstances:StackInstances": ("regions",),
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct": (
        "stackSetProvisioningPreferences.regions",
    ),
    "aws:codepipeline/pipeline:Pipeline": ("artifactStores.region", "stages.actions.region"),
}  # fmt: skip


@rule(
    "residency-aws-stack-region",
    "Nothing is rolled out to regions abroad",
    Severity.CRITICAL,
    frozenset(_STACKS),
    CONTROLS,
    "Name allowed regions only. What a stack set or a pipeline makes there isn't judged by any "
    "rule.",
)
def stack_region(resource: Resource, view: View) -> Iterator[Finding]:
    """Regions of stack sets, pipelines and products."""
    for path in _STACKS[resource.kind]:
        yield from aws_targets.region(resource, view, path, "what is rolled out")


_BILLS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cur/reportDefinition:ReportDefinition": ("s3Region",),
    "aws:bcmdata/export:Export": (
        "export.destinationConfigurations.s3Destinations.s3Region",
    ),
}  # fmt: skip


@rule(
    "residency-aws-billing-export",
    "Reports of costs go to buckets in allowed regions",
    Severity.MEDIUM,
    frozenset(_BILLS),
    CONTROLS,
    "Deliver the report to a bucket of an allowed region: it holds names and tags of resources.",
)
def billing_export(resource: Resource, view: View) -> Iterator[Finding]:
    """The region of the report's bucket."""
    for path in _BILLS[resource.kind]:
        yield from aws_targets.region(resource, view, path, "the report's bucket")


_MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "aws:cognito/userPool:UserPool": ("smsConfiguration.snsRegion",),
}


@rule(
    "residency-aws-user-messages",
    "Messages to users are sent from allowed regions",
    Severity.HIGH,
    frozenset(_MESSAGES),
    CONTROLS,
    "Send messages with the SNS and SES of an allowed region, or with a function of one's own "
    "(customSmsSender, customEmailSender): they hold names, numbers and codes.",
)
def user_messages(resource: Resource, view: View) -> Iterator[Finding]:
    """The region of SNS, and of the identity in SES that mail is sent from."""
    for path in _MESSAGES[resource.kind]:
        yield from aws_targets.region(resource, view, path, "the sender")
    yield from aws_targets.arn(resource, view, "emailConfiguration.sourceArn", "the sender")


RULES: tuple[Rule, ...] = (stack_region, billing_export, user_messages)
