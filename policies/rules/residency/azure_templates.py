"""Templates of Azure Resource Manager: they make resources that no preview shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.region_names import normalise_azure
from falaj.policies.model import (
    ABSENT,
    Finding,
    Path,
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
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_ai import REGIONAL
from falaj.policies.rules.residency.azure_locations import CONTROLS
from falaj.policies.rules.residency.azure_places import allowed, groups_of, place_of, where_allowed

TEMPLATED: Final = azure(
    "resources:Deployment", "resources:DeploymentAtScope",
    "resources:DeploymentAtManagementGroupScope", "resources:DeploymentAtSubscriptionScope",
    "resources:DeploymentStackAtSubscription",
    "resources:DeploymentAtTenantScope", "resources:DeploymentStackAtResourceGroup",
    "resources:DeploymentStackAtManagementGroup",
)  # fmt: skip
#: A resource of any type, by its type in Azure's own words.
GENERIC: Final = azure("resources:Resource")
_TYPE: Final = ("resourceProviderNamespace", "parentResourcePath", "resourceType")
#: Services at the edge, and kinds of models' deployments that run elsewhere, in those words.
_EDGE: Final = re.compile(
    r"microsoft\.(?:cdn/(?:profiles|edgeactions)|network/(?:frontdoors|trafficmanagerprofiles)"
    r"|web/staticsites|botservice|maps/accounts|azuresphere|azureactivedirectory)(?:/|$)",
    re.IGNORECASE,
)
_MODELS: Final = re.compile(
    r"microsoft\.cognitiveservices/accounts/(?:[^/]+/)?deployments", re.IGNORECASE
)
_PARAMETER: Final = re.compile(r"\[\s*parameters\(\s*'([^']+)'\s*\)\s*\]", re.IGNORECASE)
_GROUP: Final = re.compile(r"\[\s*resourceGroup\(\)\s*\.\s*location\s*\]", re.IGNORECASE)


@rule(
    "residency-azure-template",
    "What a template makes is where the program can see it",
    Severity.CRITICAL,
    TEMPLATED | GENERIC,
    CONTROLS,
    "Declare the resources in the program instead of the template; or write every location in it "
    "as a word, as a parameter that is given, or as [resourceGroup().location].",
)
def template(resource: Resource, view: View) -> Iterator[Finding]:
    """Locations that are expressions, and types whose own rules don't see into templates.

    Locations that are words are judged wherever they stand.
    """
    if resource.kind in GENERIC:
        parts = [resource.get(each) for each in _TYPE]
        if any(is_unknown(each) for each in parts):
            yield indeterminate("resourceType", "which service it is of can't be seen")
        kind = "/".join(text(each) for each in parts if text(each))
        yield from _reach("resourceType", kind, resource.get("sku.name"))
        return
    for key in ("properties.templateLink", "templateLink"):
        link = resource.get(key)
        if is_unknown(link) or isinstance(link, Mapping):
            yield indeterminate(key, "the template is elsewhere, and what it makes can't be seen")
    for holder in ("properties.", ""):
        body = resource.get(f"{holder}template")
        if is_unknown(body):
            yield indeterminate(f"{holder}template", "what the template makes can't be seen")
        for below, value in leaves(get(body, "resources")):
            path = f"{holder}template.resources{spell(below)}"
            if below and below[-1] == "location":
                yield from _judge(resource, view, path, value, holder)
            elif below and below[-1] == "type":
                around = spell(below[:-1])
                sku = get(_at(get(body, "resources"), below[:-1]), "sku.name")
                yield from _reach(f"{holder}template.resources{around}", text(value), sku)


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


def _at(value: Any, path: Path) -> Any:
    """What is at a path that was met before."""
    for part in path:
        value = value[part]
    return value


def _reach(path: str, kind: str, sku: Any) -> Iterator[Finding]:
    """What a type by itself, or with its sku, says about other countries."""
    if _EDGE.match(kind):
        yield violation(path, f"{kind} handles data at sites in other countries")
    elif _MODELS.match(kind):
        if is_unknown(sku) or not text(sku) or text(sku).startswith("["):
            yield indeterminate(path, "where the model runs can't be seen")
        elif text(sku).lower() not in REGIONAL:
            yield violation(path, f"{text(sku)} processes prompts in other regions")


RULES: Final[tuple[Rule, ...]] = (template,)
