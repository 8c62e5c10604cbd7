"""Templates of Azure Resource Manager: they make resources that no preview shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    leaves,
    rule,
    spell,
    text,
    violation,
)
from policies.reading.azure_types import azure
from policies.reading.regions import normalise_azure
from policies.rules.residency.azure_locations import CONTROLS
from policies.rules.residency.azure_places import allowed, groups_of, place_of, where_allowed

TEMPLATED: Final = azure(
    "resources:Deployment", "resources:DeploymentAtScope",
    "resources:DeploymentAtManagementGroupScope", "resources:DeploymentAtSubscriptionScope",
    "resources:DeploymentStackAtSubscription",
    "resources:DeploymentAtTenantScope", "resources:DeploymentStackAtResourceGroup",
    "resources:DeploymentStackAtManagementGroup",
)  # fmt: skip
_PARAMETER: Final = re.compile(r"\[\s*parameters\(\s*'([^']+)'\s*\)\s*\]", re.IGNORECASE)
_GROUP: Final = re.compile(r"\[\s*resourceGroup\(\)\s*\.\s*location\s*\]", re.IGNORECASE)


@rule(
    "residency-azure-template",
    "What a template makes is where the program can see it",
    Severity.CRITICAL,
    TEMPLATED,
    CONTROLS,
    "Declare the resources in the program instead of the template; or write every location in it "
    "as a word, as a parameter that is given, or as [resourceGroup().location].",
)
def template(resource: Resource, view: View) -> Iterator[Finding]:
    """Locations that are expressions; words are judged wherever they stand."""
    for key in ("properties.templateLink", "templateLink"):
        link = resource.get(key)
        if is_unknown(link) or isinstance(link, Mapping):
            yield indeterminate(key, "the template is elsewhere, and what it makes can't be seen")
    for holder in ("properties.", ""):
        body = resource.get(f"{holder}template")
        if is_unknown(body):
            yield indeterminate(f"{holder}template", "what the template makes can't be seen")
        for below, value in leaves(get(body, "resources")):
            if below and below[-1] == "location":
                path = f"{holder}template.resources{spell(below)}"
                yield from _judge(resource, view, path, value, holder)


def _judge(
    resource: Resource, view: View, path: str, value: Any, holder: str
) -> Iterator[Finding]:
    if is_unknown(value):
        yield indeterminate(path, f"the location can't be seen; {where_allowed(view)}")
    if not (text(value).startswith("[") and text(value).endswith("]")):
        return
    found: Any = value
    if matched := _PARAMETER.fullmatch(text(value)):
        found = resource.get(f"{holder}parameters.{matched[1]}.value")
        if found is ABSENT:
            found = resource.get(f"{holder}template.parameters.{matched[1]}.defaultValue")
    if _GROUP.fullmatch(text(found)):
        found = next((place_of(each, view) for each in groups_of(resource, view)), None)
    if not text(found) or text(found).startswith("["):
        yield indeterminate(
            path, f"the template's location can't be evaluated; {where_allowed(view)}"
        )
    elif normalise_azure(found) not in {*allowed(view), "global"}:
        yield violation(path, f"the location is {text(found)!r}; {where_allowed(view)}")


RULES: Final[tuple[Rule, ...]] = (template,)
