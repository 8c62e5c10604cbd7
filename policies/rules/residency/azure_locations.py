"""Locations anywhere in resources of Azure, given or left to the provider and the group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from policies.model import (
    ABSENT,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    leaves,
    rule,
    spell,
    text,
    violation,
)
from policies.reading.regions import is_azure_location, normalise_azure
from policies.rules.residency.azure_global import GLOBAL, may_be_global
from policies.rules.residency.azure_places import (
    LOCATED,
    allowed,
    place_of,
    where_allowed,
)

CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T6.3.1", "pdpl:22", "gdpr:44",
    "iso27001:A.5.23",
)  # fmt: skip

# A key whose last word is a location or a region: `dataLocation`, `targetRegions`, `locationName`;
# `allocation` isn't one.
_PLACE: Final = re.compile(r"(?:^(?:l|.*L)ocation|^(?:r|.*R)egion)s?(?:Names?)?$")
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
        "secretLocation", "secretsLocation", "sourceLocation", "staticContentLocations",
        "storageLocation", "storeLocation", "tableRootLocation", "useFromLocation",
    )
)  # fmt: skip
#: Labels, and filters that only choose among resources that are already somewhere.
_SAYING_NOTHING: Final = frozenset(
    (
        "tags", "tagsAll", "labels", "annotations", "displayName", "description", "metadata",
        "filter", "azureQueries", "customsubdomain",
    )
)  # fmt: skip
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
#: The country where a service names geographies rather than locations.
_COUNTRY: Final = frozenset(("uae", "unitedarabemirates"))
#: Where identifiers always hold a location: of connectors' managed APIs, and of what is restored.
_IDS_WITH_LOCATION: Final = frozenset((("api", "id"), ("restoreParameters", "restoreSource")))
_IN_ID: Final = re.compile(r"/locations/([A-Za-z0-9 ]+?)(?=/|$)", re.IGNORECASE)


def _names_a_place(path: Path) -> bool:
    """Whether a value stands under a key that names a place, and under nothing that says not."""
    keys = [each for each in path if isinstance(each, str)]
    if any(each in _SAYING_NOTHING for each in keys):
        return False
    at = next((index for index, each in enumerate(keys) if _PLACE.search(each)), None)
    return at is not None and not any(each in _NO_PLACES for each in keys)


def _is_sure(path: Path) -> bool:
    keys = [each for each in path if isinstance(each, str)]
    return keys == ["location"] or keys[-1] in _SURE or ".".join(keys[-2:]) in _SURE


def _is_expression(value: str) -> bool:
    """Whether a text is a template's expression, which another rule evaluates."""
    return value.startswith("[") and value.endswith("]")


def _judge_text(path: Path, value: str, resource: Resource, view: View) -> Iterator[Finding]:
    region = normalise_azure(value)
    if not value or region in allowed(view) or _is_expression(value):
        return
    if region in GLOBAL:
        if not may_be_global(resource.kind) and "template" not in path:
            yield violation(
                spell(path),
                f"the location is {value!r}, and nothing says that this type keeps its data out "
                f"of other countries; {where_allowed(view)}",
            )
    elif region in _COUNTRY and path[-1] != "location":
        return
    elif _is_sure(path) or is_azure_location(value, geographies=True):
        yield violation(spell(path), f"the location is {value!r}; {where_allowed(view)}")


def _judge_unknown(path: Path, resource: Resource, view: View) -> Iterator[Finding]:
    if path == ("location",) and (known := text(resource.outputs.get("location"))):
        yield from _judge_text(path, known, resource, view)
        return
    found = view.referred(resource, str(path[0]))
    places = [place_of(each, view) for each in found]
    foreign = next((each for each in places if each and each not in allowed(view)), None)
    if foreign:
        yield violation(
            spell(path),
            f"the location is made from a resource in {foreign}; {where_allowed(view)}",
        )
    elif not places or None in places:
        yield indeterminate(spell(path), f"the location can't be seen; {where_allowed(view)}")


@rule(
    "residency-azure-location",
    "Every location in a resource of Azure is an allowed one",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Set the property to a location in the country, uaenorth or uaecentral, or remove the copy "
    "that it makes elsewhere.",
    waivable=True,
)
def location(resource: Resource, view: View) -> Iterator[Finding]:
    """Any key that names a location, at any depth."""
    describing = resource.kind.rpartition(":")[0] in _DESCRIBING
    for path, value in leaves(resource.properties):
        if not path or (describing and path[0] != "location") or not _names_a_place(path):
            continue
        if is_unknown(value):
            yield from _judge_unknown(path, resource, view)
        else:
            yield from _judge_text(path, text(value), resource, view)


@rule(
    "residency-azure-location-id",
    "No identifier names a location abroad",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Refer to what is offered in a location in the country: identifiers hold the location after "
    "/locations/.",
)
def location_id(resource: Resource, view: View) -> Iterator[Finding]:
    """Identifiers such as a managed API's: ``…/locations/westeurope/managedApis/office365``."""
    if resource.kind.rpartition(":")[0] in _DESCRIBING:
        return
    for path, value in leaves(resource.properties):
        if any(each in _SAYING_NOTHING for each in path):
            continue
        if is_unknown(value) and path[-2:] in _IDS_WITH_LOCATION:
            yield indeterminate(spell(path), "the identifier's location can't be seen")
        for found in _IN_ID.finditer(text(value)):
            if is_azure_location(found[1]) and normalise_azure(found[1]) not in allowed(view):
                yield violation(
                    spell(path), f"the identifier is of {found[1]!r}; {where_allowed(view)}"
                )


@rule(
    "residency-azure-effective-location",
    "A resource without a location gets an allowed one",
    Severity.CRITICAL,
    LOCATED,
    CONTROLS,
    "Give the resource a location, or the provider the setting azure-native:location, or put the "
    "resource's group into a location in the country.",
)
def effective_location(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a location it is the provider's default, else that of its resource group."""
    given = resource.get("location")
    if not (given is ABSENT or given == "") or may_be_global(resource.kind):
        return
    place = place_of(resource, view)
    if place is None:
        yield indeterminate(
            "location",
            "no location is given, and neither the provider's nor the resource group's can be "
            f"seen; {where_allowed(view)}",
        )
    elif place not in allowed(view):
        yield violation(
            "location",
            f"no location is given, so it is the provider's or the resource group's, {place}; "
            f"{where_allowed(view)}",
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
def edge_zone(resource: Resource, view: View) -> Iterator[Finding]:
    """An extended location of the type EdgeZone, or one named by a plain word."""
    del view
    for path, value in leaves(resource.properties):
        keys = [each for each in path if isinstance(each, str)]
        within = len(keys) > 1 and keys[-2].lower().endswith("extendedlocation")
        if not within or keys[-1] not in {"name", "type"}:
            continue
        if is_unknown(value):
            if keys[-1] == "type":
                yield indeterminate(spell(path), "the kind of extended location can't be seen")
        elif keys[-1] == "type" and text(value).lower() == "edgezone":
            yield violation(spell(path), "it is in an edge zone; no edge zone is in the country")


@rule(
    "residency-azure-provider",
    "The provider of Azure works in Azure's public cloud and defaults to an allowed location",
    Severity.CRITICAL,
    {"pulumi:providers:azure-native"},
    CONTROLS,
    "Set azure-native:location to a location in the country and leave azure-native:environment "
    "at public: the other clouds of Azure are in China and in the United States.",
)
def provider(resource: Resource, view: View) -> Iterator[Finding]:
    """The provider's own settings."""
    given: Any = resource.get("location")
    if is_unknown(given):
        yield indeterminate("location", f"the location can't be seen; {where_allowed(view)}")
    elif text(given) and normalise_azure(given) not in allowed(view):
        yield violation("location", f"the location is {text(given)!r}; {where_allowed(view)}")
    cloud = resource.get("environment")
    if is_unknown(cloud):
        yield indeterminate("environment", "the cloud can't be seen; it must be public")
    elif text(cloud).lower() not in {"", "public", "azurecloud", "azurepubliccloud"}:
        yield violation(
            "environment", f"the cloud is {text(cloud)!r}, which is abroad; it must be public"
        )


RULES: Final[tuple[Rule, ...]] = (location, location_id, effective_location, edge_zone, provider)
