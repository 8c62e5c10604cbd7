"""What an account or organisation sets up in other regions: stacks, bills, messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import Finding, Resource, Rule, Severity, View, rule, violation
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

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


#: Types that make resources which no rule sees.
_HIDING: Final[dict[str, str]] = {
    "aws:cloudformation/stack:Stack": "the resources of its template",
    "aws:cloudformation/stackSet:StackSet": "the resources of its template",
    "aws:serverlessrepository/cloudFormationStack:CloudFormationStack": "what it deploys",
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct": "what the product deploys",
    "aws-native:cloudformation:Stack": "the resources of its template",
    "aws-native:cloudformation:StackSet": "the resources of its template",
}


@rule(
    "residency-aws-hidden-resources",
    "Every resource is declared where rules can see it",
    Severity.HIGH,
    frozenset(_HIDING) | {"aws:cloudformation/cloudFormationType:CloudFormationType"},
    ("pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.8.9", "uae-ia:T6.3.1"),
    "Declare the resources in the program instead of a template, or have the template judged by "
    "other means and a waiver approved.",
)
def hidden_resources(resource: Resource, view: View) -> Iterator[Finding]:
    """Templates and products: presence is the violation."""
    if (what := _HIDING.get(resource.kind)) and resource.custom:
        yield violation("", f"no rule can see {what}; {places_said(view)}")


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


RULES: tuple[Rule, ...] = (stack_region, hidden_resources, billing_export, user_messages)
