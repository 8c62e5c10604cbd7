"""Azure's locations: of resources, of the parts of them that have one, and in templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.region_names import is_azure_location, normalise_azure
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_path,
    get,
    indeterminate,
    is_unknown,
    leaves,
    rule,
    text,
    violation,
)
from falaj.policies.reading.program_hosts import is_market
from falaj.policies.reading.types import azure
from falaj.policies.reading.walk import Leaf, walk
from falaj.policies.rules.residency.ai import REGIONAL
from falaj.policies.rules.residency.azure_places import (
    LOCATED,
    allowed,
    azure_place_of,
    groups_of,
    refers_to,
    where_allowed,
)
from falaj.policies.rules.residency.global_services import GLOBAL, may_be_global

# Locations anywhere in resources of Azure, given or left to the provider and the group.

CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T6.3.1", "pdpl:22", "gdpr:44",
    "iso27001:A.5.23",
)  # fmt: skip

# A key whose last word is a location or a region: `dataLocation`, `targetRegions`, `locationName`;
# `allocation` isn't one.
_PLACE: Final = re.compile(r"(?:^(?:l|.*L)ocation|^(?:r|.*R)egion)s?(?:Names?)?$")
#: Settings of applications: ``AZURE_REGION``, ``Target__Location``, ``azure.location``.
_SETTING: Final = re.compile(r"(?:^|[_.:-])(?:location|region)s?(?:_?names?)?$", re.IGNORECASE)
#: Keys that end so and name no place of Azure: addresses of people, paths of files, stores of
#: certificates, racks, and what an assessment merely calculates prices for.
_NO_PLACES: Final = frozenset(
    (
        "apiLocation", "appArtifactLocation", "awsRegion", "azureLocation", "blobLocation",
        "certificateStoreLocation", "countryAndRegion", "countryOrRegion", "customLocation",
        "customLocationName", "disasterRecoveryLocation", "extendedLocation", "fabricLocation",
        "imageLocation", "jarFileLocation", "kubeManifestLocations", "logLocation",
        "mocLocation", "osImageLocation", "outputLocation", "packageLocation",
        "publicCertificateLocation", "rackLocation", "rootConfigurationLocation",
        "secretLocation", "secretsLocation", "staticContentLocations",
        "storageLocation", "storeLocation", "tableRootLocation", "useFromLocation",
    )
)  # fmt: skip
#: Filters that only choose among resources that are already somewhere, and free text.
_SAYING_NOTHING: Final = frozenset(
    ("annotations", "metadata", "filter", "azureQueries", "customsubdomain")
)
#: Whole modules whose properties describe other things than where they are: policies, products of
#: providers, resources of another cloud.
_DESCRIBING: Final = frozenset(
    f"azure-native:{each}" for each in ("authorization", "providerhub", "awsconnector")
)
#: Keys (with the key around, where one alone says too little) whose every text names a place.
_SURE: Final = frozenset(
    (
        "locationName", "dataLocation", "dataRegions", "remoteVolumeRegion", "replicatedRegions",
        "replicationRegions", "linkedRedisCacheLocation", "dataCenterLocation", "targetRegion",
        "secondaryLocation", "failoverLocation", "primaryLocation", "workspaceRegion",
        "targetRegions.name", "targetLocations.name", "additionalLocations.location",
        "replicaSets.location", "partnerRegions.location", "regionDetails.location",
        "locationProfiles.location", "customDetails.location", "regions.name",
    )
)  # fmt: skip
#: Where data comes from, which is no way out: of restored backups, of cloned applications.
_INWARD: Final = re.compile(r"(?:restore)?[sS]ource[A-Z]|restoreSource$")
#: What rules of their own judge, for it depends on more: whether a copy is on, what a default is.
_JUDGED_ELSEWHERE: Final = {
    kind: keys
    for names, keys in (
        (("operationalinsights:Workspace", "operationalinsights:Cluster"),
         ("replication", "location")),
        (("datafactory:IntegrationRuntime", "synapse:IntegrationRuntime"),
         ("computeProperties", "location")),
        (("monitor:ActionGroup",), ("itsmReceivers", "region")),
        # A log profile lists the regions whose activities it collects; its account says where.
        (("monitor:LogProfile",), ("locations",)),
    )
    for kind in azure(*names)
}  # fmt: skip
_LIST: Final = re.compile(r"[,;|]")
#: The country where a service names geographies rather than locations.
_COUNTRY: Final = frozenset(("uae", "unitedarabemirates"))
#: Where identifiers always hold a location: those of connectors' managed APIs.
_IDS_WITH_LOCATION: Final = frozenset((("api", "id"),))
# az group create -l westeurope; New-AzResourceGroup -Location "West Europe".
_IN_COMMAND: Final = re.compile(
    r"(?:^|\s)(?:--location|-location|-l)[\s=:]+(?:\"([^\"]{5,40})\"|'([^']{5,40})'|([a-z0-9]{5,30})(?![\w.-]))",
    re.IGNORECASE,
)
_IN_ID: Final = re.compile(r"/locations/([A-Za-z0-9 ]+?)(?=/|$)", re.IGNORECASE)


def _names_a_place(keys: Sequence[str]) -> bool:
    """Whether a value stands under a key that names a place, and under nothing that says not."""
    return any(_PLACE.search(each) or _SETTING.search(each) for each in keys) and not any(
        each in _NO_PLACES or each in _SAYING_NOTHING or _INWARD.match(each) for each in keys
    )


def _is_near(keys: tuple[str, ...]) -> bool:
    """Whether the value is the place's own name, rather than something else about it."""
    own = keys[-2:-1] if keys[-1] in {"name", "value", "defaultValue"} else keys[-1:]
    return any(_PLACE.search(each) for each in own)


def _is_sure(keys: tuple[str, ...]) -> bool:
    return keys == ("location",) or keys[-1] in _SURE or ".".join(keys[-2:]) in _SURE


def _judge_text(leaf: Leaf, value: str, resource: Resource, context: Context) -> Iterator[Finding]:
    region, path = normalise_azure(value), format_path(leaf.path)
    in_template = "template" in leaf.keys
    # Another rule evaluates the expressions of templates.
    if not value or region in allowed(context) or (in_template and value.startswith("[")):
        return
    if region in GLOBAL:
        known = may_be_global(resource.kind) or context.settings.allows_service(resource.kind)
        if _is_near(leaf.keys) and not in_template and not known:
            yield violation(
                path,
                f"the location is {value!r}, and nothing says that this type keeps its data out "
                f"of other countries; {where_allowed(context)}",
            )
    elif region not in _COUNTRY and (_is_sure(leaf.keys) or _is_foreign(leaf, value, context)):
        yield violation(path, f"the location is {value!r}; {where_allowed(context)}")


def _is_foreign(leaf: Leaf, value: str, context: Context) -> bool:
    """Whether a text names a location abroad, alone or in a list with commas."""
    return any(
        is_azure_location(each, geographies=_is_near(leaf.keys))
        and normalise_azure(each) not in (*allowed(context), *_COUNTRY)
        for each in _LIST.split(value)
    )


def _judge_unknown(leaf: Leaf, resource: Resource, context: Context) -> Iterator[Finding]:
    if leaf.keys == ("location",) and (known := text(resource.outputs.get("location"))):
        yield from _judge_text(leaf, known, resource, context)
        return
    path = format_path(leaf.path)
    places = [
        azure_place_of(each, context) for each in refers_to(resource, path, leaf.value, context)
    ]
    foreign = next((each for each in places if each and each not in allowed(context)), None)
    if foreign:
        yield violation(
            path, f"the location is made from a resource in {foreign}; {where_allowed(context)}"
        )
    elif not places or None in places:
        yield indeterminate(path, f"the location can't be seen; {where_allowed(context)}")


@rule(
    "residency-azure-location",
    "Every location in a resource of Azure is an allowed one",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Set the property to a location in the country, uaenorth or uaecentral, or remove the copy "
    "that it makes elsewhere. A type that is global and keeps no data abroad is named in the "
    "setting allowedServices, with what shows it.",
)
def location(resource: Resource, context: Context) -> Iterator[Finding]:
    """Any key that names a location, at any depth."""
    describing = resource.kind.rpartition(":")[0] in _DESCRIBING
    for leaf in walk(resource):
        if (describing and leaf.keys != ("location",)) or not _names_a_place(leaf.keys):
            continue
        elsewhere = _JUDGED_ELSEWHERE.get(resource.kind, ("",))
        if leaf.keys[-len(elsewhere) :] == elsewhere:
            continue
        if leaf.is_own and is_market(leaf.name, text(leaf.value)):
            continue
        if not is_unknown(leaf.value):
            yield from _judge_text(leaf, text(leaf.value), resource, context)
        elif _is_near(leaf.keys) or _SETTING.search(leaf.keys[-2 if leaf.key == "value" else -1]):
            yield from _judge_unknown(leaf, resource, context)


@rule(
    "residency-azure-location-id",
    "No identifier and no command names a location abroad",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Refer to what is offered in a location in the country: identifiers hold the location after "
    "/locations/, commands after --location.",
)
def location_id(resource: Resource, context: Context) -> Iterator[Finding]:
    """Identifiers such as ``…/locations/westeurope/managedApis/office365``, and scripts."""
    if resource.kind.rpartition(":")[0] in _DESCRIBING:
        return
    for leaf in walk(resource):
        if any(each in _SAYING_NOTHING or _INWARD.match(each) for each in leaf.keys):
            continue
        if is_unknown(leaf.value) and leaf.keys[-2:] in _IDS_WITH_LOCATION:
            yield indeterminate(format_path(leaf.path), "the identifier's location can't be seen")
        for named in _locations_in(text(leaf.value)):
            if is_azure_location(named) and normalise_azure(named) not in allowed(context):
                yield violation(
                    format_path(leaf.path), f"it names {named!r}; {where_allowed(context)}"
                )


def _locations_in(value: str) -> Iterator[str]:
    """The locations that identifiers and commands within a text name."""
    for found in _IN_ID.finditer(value):
        yield found[1]
    for found in _IN_COMMAND.finditer(value):
        yield found[1] or found[2] or found[3]


#: Deployments of templates into a group are where the group is, whatever the provider says.
_IN_GROUPS: Final = azure("resources:Deployment", "resources:DeploymentStackAtResourceGroup")


@rule(
    "residency-azure-effective-location",
    "A resource without a location gets an allowed one",
    Severity.CRITICAL,
    LOCATED - _IN_GROUPS,
    CONTROLS,
    "Give the resource a location, or the provider the setting azure-native:location, or put the "
    "resource's group into a location in the country.",
)
def effective_location(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a location it is the provider's default, else that of its resource group."""
    given = resource.get("location")
    if not (given is ABSENT or given == "") or may_be_global(resource.kind):
        return
    place = azure_place_of(resource, context)
    if place is None:
        yield indeterminate(
            "location",
            "no location is given, and neither the provider's nor the resource group's can be "
            f"seen; {where_allowed(context)}",
        )
    elif place not in allowed(context):
        yield violation(
            "location",
            f"no location is given, so it is the provider's or the resource group's, {place}; "
            f"{where_allowed(context)}",
        )


@rule(
    "residency-azure-edge-zone",
    "Nothing is in an edge zone, which are all abroad",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Remove extendedLocation: no edge zone of Azure is in the country. Custom locations of one's "
    "own machines (Azure Arc) are named by their id.",
)
def edge_zone(resource: Resource, context: Context) -> Iterator[Finding]:
    """An extended location of the type EdgeZone, or one named by a plain word."""
    del context
    for leaf in walk(resource):
        keys, path = leaf.keys, format_path(leaf.path)
        if len(keys) < 2 or not keys[-2].lower().endswith("extendedlocation"):
            continue
        if is_unknown(leaf.value):
            if leaf.key == "type":
                yield indeterminate(path, "the kind of extended location can't be seen")
        elif leaf.key == "type" and text(leaf.value).lower() == "edgezone":
            yield violation(path, "it is in an edge zone; no edge zone is in the country")


# Templates of Azure Resource Manager: they make resources that no preview shows.

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
def template(resource: Resource, context: Context) -> Iterator[Finding]:
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
            path = f"{holder}template.resources{format_path(below)}"
            if below and below[-1] == "location":
                yield from _judge(resource, context, path, value, holder)
            elif below and below[-1] == "type":
                around = format_path(below[:-1])
                sku = get(_at(get(body, "resources"), below[:-1]), "sku.name")
                yield from _reach(f"{holder}template.resources{around}", text(value), sku)


def _judge(
    resource: Resource, context: Context, path: str, value: Any, holder: str
) -> Iterator[Finding]:
    if is_unknown(value):
        yield indeterminate(path, f"the location can't be seen; {where_allowed(context)}")
    if not (text(value).startswith("[") and text(value).endswith("]")):
        return
    found: Any = value
    if matched := _PARAMETER.fullmatch(text(value)):
        found = resource.get(f"{holder}parameters.{matched[1]}.value")
        if found is ABSENT:
            found = resource.get(f"{holder}template.parameters.{matched[1]}.defaultValue")
    if _GROUP.fullmatch(text(found)):
        found = next(
            (azure_place_of(each, context) for each in groups_of(resource, context)), None
        )
    if not text(found) or text(found).startswith("["):
        yield indeterminate(
            path, f"the template's location can't be evaluated; {where_allowed(context)}"
        )
    elif normalise_azure(found) not in {*allowed(context), "global"}:
        yield violation(path, f"the location is {text(found)!r}; {where_allowed(context)}")


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


RULES: tuple[Rule, ...] = (
    location,
    location_id,
    effective_location,
    edge_zone,
    template,
)
