"""Guard rails of the clouds: what they admit is in the country, and nobody is let out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.region_names import aws_region_of, normalise_azure
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    indeterminate,
    is_list,
    is_unknown,
    items,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.iam import Statement, read
from falaj.policies.reading.place import format_places
from falaj.policies.reading.resource_policies import RESOURCE_POLICIES
from falaj.policies.reading.types import aws_type, azure
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS
from falaj.policies.rules.residency.everywhere import CONTROLS
from falaj.wire.documents import is_mapping

# AWS: documents that say in which regions requests may be made.

_ORGANISATION: Final = aws_type("organizations/policy")
#: Which property of a type holds documents that say so.
_DOCUMENTS: Final[Mapping[str, str]] = {
    **RESOURCE_POLICIES,
    _ORGANISATION: "content",
    **{
        aws_type(each): "policy"
        for each in ("iam/policy", "iam/rolePolicy", "iam/userPolicy", "iam/groupPolicy")
    },
    aws_type("iam/role"): "inlinePolicies.policy",
    aws_type("ssoadmin/permissionSetInlinePolicy"): "inlinePolicy",
}
_KEY: Final = "aws:requestedregion"


def _admits(statement: Statement) -> Iterator[tuple[str, bool]]:
    """The regions (or patterns of them) that a statement admits; whether each can be seen."""
    for condition in statement.conditions:
        if condition.key == _KEY and ("not" in condition.operator) is not statement.is_allow:
            yield from ((each, True) for each in condition.values)
            if condition.is_unknown:
                yield "", False


@rule(
    "residency-aws-guard-rail",
    "Documents that name the regions of requests admit allowed ones only",
    Severity.CRITICAL,
    frozenset(_DOCUMENTS),
    CONTROLS,
    "Name allowed regions only in aws:RequestedRegion; leave out services without a region with "
    "NotAction rather than by the region in which they are served.",
)
def guard_rail(resource: Resource, context: Context) -> Iterator[Finding]:
    """What a denial spares (``StringNotEquals``), and what a permission is narrowed to.

    https://docs.aws.amazon.com/organizations/latest/userguide/orgs_manage_policies_scps_examples_general.html
    """
    regions = context.settings.regions("aws")
    for path, value in select(resource.properties, _DOCUMENTS[resource.kind]):
        document = read(value, path)
        if document.hidden and resource.kind == _ORGANISATION:
            yield indeterminate(document.hidden, "which regions it admits can't be known")
        for statement in document.statements:
            for each, is_seen in dict.fromkeys(_admits(statement)):
                if not is_seen:
                    yield indeterminate(
                        statement.path, f"which regions {statement.label} admits can't be known"
                    )
                elif each not in regions and ("*" in each or "?" in each or aws_region_of(each)):
                    yield violation(
                        statement.path,
                        f"{statement.label} admits {format_value(each)}; {format_places(context)}",
                    )


# Azure: definitions and assignments of policies that say where resources may be.

_ASSIGNMENT: Final = azure("authorization:PolicyAssignment")
_EXEMPTION: Final = azure("authorization:PolicyExemption")
_DEFINITION: Final = azure(
    "authorization:PolicyDefinition", "authorization:PolicyDefinitionAtManagementGroup",
    "authorization:PolicyDefinitionVersion",
    "authorization:PolicyDefinitionVersionAtManagementGroup",
)  # fmt: skip
_SET: Final = azure(
    "authorization:PolicySetDefinition", "authorization:PolicySetDefinitionAtManagementGroup",
    "authorization:PolicySetDefinitionVersion",
    "authorization:PolicySetDefinitionVersionAtManagementGroup",
)  # fmt: skip
#: Built-in definitions on locations: of resources, of groups, of Cosmos DB
#: (https://learn.microsoft.com/azure/governance/policy/samples/built-in-policies#general).
_BUILT_IN: Final = (
    "e56962a6-4747-49cd-b67b-bf8b01975c4c", "e765b5de-1225-4ba3-bd56-1ac6695af988",
    "0473574d-2d43-4217-aefe-941fcdf7e684",
)  # fmt: skip
#: Parameters that list what is admitted: ``listOfAllowedLocations``, not ``notAllowedLocations``.
_ADMITTING: Final = re.compile(
    r"(?i)(?<!not)(?<!dis)(?:allowed|permitted|approved)\w*(?:location|region)"
)
_ABOUT: Final = re.compile(r"(?i)location|region|residen|sovereign")
_FIELD: Final = re.compile(r"(?i)(?:^|[/.])(?:locations?|locationname)(?:\[\*\])?$")


def _foreign(values: object, context: Context) -> Iterator[str]:
    for each in items(values):
        given = text(each)
        if given and not given.startswith("["):
            place = normalise_azure(given)
            if place not in (*allowed(context), "global"):
                yield given


def _judge(path: str, values: Any, context: Context) -> Iterator[Finding]:
    if is_unknown(values) or any(is_unknown(each) for each in items(values)):
        yield indeterminate(
            path, f"which locations it admits can't be seen; {where_allowed(context)}"
        )
    for each in _foreign(values, context):
        yield violation(path, f"it admits {format_value(each)}; {where_allowed(context)}")


def _parameters(resource: Resource, key: str) -> Iterator[tuple[str, Any]]:
    given = resource.get("parameters")
    if is_mapping(given):
        for name, each in given.items():
            if _ADMITTING.search(str(name)):
                yield f"parameters.{name}.{key}", get(each, key)


def _passed_on(resource: Resource) -> Iterator[tuple[str, Any]]:
    """What an initiative gives to the definitions in it."""
    for path, given in select(resource.properties, "policyDefinitions.parameters"):
        for name, each in given.items() if is_mapping(given) else ():
            if _ADMITTING.search(str(name)):
                yield f"{path}.{name}.value", get(each, "value")


def _is_of_locations(resource: Resource) -> bool:
    """Whether an assignment says where resources may be."""
    return bool(list(_parameters(resource, "value"))) or text(
        resource.get("policyDefinitionId")
    ).lower().endswith(_BUILT_IN)


@rule(
    "residency-azure-guard-rail",
    "Policies of Azure that name locations admit those in the country, and hold for everything",
    Severity.CRITICAL,
    _ASSIGNMENT | _EXEMPTION | _DEFINITION | _SET,
    AZURE_CONTROLS,
    "Admit uaenorth and uaecentral only; enforce the assignment, leave no scope out of it, and "
    "exempt nothing from it.",
)
def azure_guard_rail(resource: Resource, context: Context) -> Iterator[Finding]:
    """Lists of allowed locations, assignments that aren't enforced or leave something out, and
    exemptions from them."""
    if resource.kind in _EXEMPTION:
        yield from _exemption(resource, context)
    elif resource.kind in _DEFINITION | _SET:
        for path, values in (*_parameters(resource, "defaultValue"), *_passed_on(resource)):
            yield from _judge(path, values, context)
        for values in _admitted(resource.get("policyRule.if"), negated=False):
            yield from _judge("policyRule", values, context)
    else:
        yield from _assignment(resource, context)


def _assignment(resource: Resource, context: Context) -> Iterator[Finding]:
    if is_unknown(resource.get("parameters")):
        yield indeterminate("parameters", "which locations it admits can't be seen")
    for path, values in _parameters(resource, "value"):
        yield from _judge(path, values, context)
    if not _is_of_locations(resource):
        return
    mode = resource.get("enforcementMode")
    if is_unknown(mode):
        yield indeterminate("enforcementMode", "whether it is enforced can't be seen")
    elif text(mode) and text(mode).lower() not in {"default", "enroll"}:
        yield violation("enforcementMode", f"it is {text(mode)}, so that nothing is refused")
    for key in ("notScopes", "resourceSelectors"):
        left = resource.get(key)
        if is_unknown(left):
            yield indeterminate(key, "what it leaves out can't be seen")
        elif items(left):
            yield violation(key, "it holds for a part only: what is left out may be anywhere")


def _exemption(resource: Resource, context: Context) -> Iterator[Finding]:
    path = "policyAssignmentId"
    given = resource.get(path)
    found = [each for each in context.referred(resource, path) if each.kind in _ASSIGNMENT]
    if any(_is_of_locations(each) for each in found) or _ABOUT.search(
        text(given).rpartition("/")[2]
    ):
        yield violation(path, "what is exempt from the policy on locations may be anywhere")
    elif not found:
        yield indeterminate(
            path, "whether the policy that it lifts is the one on locations can't be seen"
        )


def _admitted(node: Any, *, negated: bool) -> Iterator[Any]:
    """The values of locations that a condition spares from its effect.

    https://learn.microsoft.com/azure/governance/policy/concepts/definition-structure-policy-rule
    """
    if is_list(node):
        for each in node:
            yield from _admitted(each, negated=negated)
    if not is_mapping(node):
        return
    for key in ("allOf", "anyOf"):
        yield from _admitted(node.get(key), negated=negated)
    yield from _admitted(node.get("not"), negated=not negated)
    if _FIELD.search(text(node.get("field"))):
        for key in ("in", "equals", "like") if negated else ("notIn", "notEquals", "notLike"):
            if node.get(key) is not None:
                yield node[key]


RULES: tuple[Rule, ...] = (guard_rail, azure_guard_rail)
