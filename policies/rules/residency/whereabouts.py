"""Where resources themselves are: by their own region, their provider's, or by nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.region_names import aws_region_of, normalise_azure
from falaj.policies.model import (
    ABSENT,
    EVERY,
    Context,
    Finding,
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
from falaj.policies.reading.hosts import host_of, may_talk_to
from falaj.policies.reading.place import (
    REGIONLESS,
    format_places,
    has_place,
    is_allowed,
    referred_place,
    region_of_resource,
)
from falaj.policies.rules.residency.everywhere import CONTROLS

#: Packages whose resources rules can place.
_JUDGED: Final = frozenset(("aws", "aws-native", "azure-native"))
#: Images that are built and named on the machine that runs the program; where they are pushed is
#: judged by a rule of its own.
_BUILDS: Final = frozenset((
    "docker:index/image:Image", "docker:index/registryImage:RegistryImage",
    "docker:index/remoteImage:RemoteImage", "docker:index/tag:Tag",
))  # fmt: skip


@rule(
    "residency-aws-region",
    "Every AWS resource is in an allowed region",
    Severity.CRITICAL,
    {"aws:*", "aws-native:*"},
    CONTROLS,
    "Set the region of the resource, or of its provider, to an allowed one. Where neither names a "
    "region the environment of whoever runs the program decides, so name it: set aws:region in "
    "the stack's configuration, or give the provider a region.",
)
def aws_region(resource: Resource, context: Context) -> Iterator[Finding]:
    """The resource's own region, else its provider's; that nobody says it is a violation."""
    if not has_place(resource) or resource.kind in REGIONLESS:
        return
    given = region_of_resource(resource)
    if given is ABSENT:
        # The first look may not know the provider.
        find = indeterminate if context.stack is None and resource.provider is None else violation
        yield find(
            "region", f"neither it nor its provider says a region; {format_places(context)}"
        )
    elif is_unknown(given):
        place = referred_place(context, resource, "region")
        if place == "unknown" or is_allowed(place, context):
            # What is made from something at home may still say another region than its own.
            yield indeterminate("region", f"its region can't be known; {format_places(context)}")
        else:
            yield violation("region", f"its region is made from {place}; {format_places(context)}")
    else:
        region = aws_region_of(given) or given
        if not is_allowed(f"aws/{region}", context):
            whose = "it is" if text(resource.get("region")) else "its provider is"
            yield violation("region", f"{whose} in aws/{region}; {format_places(context)}")


def _endpoints(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Addresses of services, also as the JSON text in which the engine keeps a provider's."""
    given = properties.get("endpoints")
    if text(given)[:1] in {"[", "{"}:
        try:
            given = json.loads(text(given))
        except (ValueError, RecursionError):
            return
    for path, value in leaves(given, ("endpoints",)):
        yield format_path(path), value


@rule(
    "residency-aws-provider",
    "Providers of AWS work in allowed regions, and talk to their endpoints",
    Severity.CRITICAL,
    {"pulumi:providers:aws", "pulumi:providers:aws-native"},
    CONTROLS,
    "Set the provider's region and stsRegion to an allowed region, and leave out endpoints and "
    "proxies abroad: requests carry configuration and secrets. Add an endpoint of your own to the "
    "setting allowedHosts.",
)
def aws_provider(resource: Resource, context: Context) -> Iterator[Finding]:
    """What a provider says of regions; one that says none is judged with its resources."""
    allowed = context.settings.regions("aws")
    for key in ("region", "stsRegion"):
        given = resource.get(key)
        if is_unknown(given):
            yield indeterminate(key, f"{key} can't be known; {format_places(context)}")
        elif text(given) and text(given).lower() not in allowed:
            yield violation(key, f"{key} is {text(given)}; {format_places(context)}")
    if is_unknown(resource.get("s3UsEast1RegionalEndpoint")):
        yield indeterminate("s3UsEast1RegionalEndpoint", "which endpoint of S3 can't be known")
    if text(resource.get("s3UsEast1RegionalEndpoint")).lower() == "legacy":
        yield violation(
            "s3UsEast1RegionalEndpoint",
            "legacy sends requests to the endpoint of all regions, which is in us-east-1; "
            f"{format_places(context)}",
        )
    addresses = [
        *_endpoints(resource.properties),
        *((key, get(resource.properties, key)) for key in ("httpProxy", "httpsProxy")),
    ]
    for path, value in addresses:
        if is_unknown(value):
            yield indeterminate(path, f"the endpoint can't be known; {format_places(context)}")
        elif (host := host_of(value)) and not may_talk_to(host, context.settings):
            yield violation(path, f"requests go to {host}, which is no host of an allowed region")


@rule(
    "residency-azure-provider",
    "Providers of Azure put resources in allowed locations of the public cloud",
    Severity.CRITICAL,
    {"pulumi:providers:azure-native"},
    CONTROLS,
    "Set the provider's location to an allowed one, in the environment public: the clouds of "
    "other governments have no region in the country.",
)
def azure_provider(resource: Resource, context: Context) -> Iterator[Finding]:
    """The location that resources without one take, and the cloud."""
    allowed = context.settings.regions("azure")
    given = resource.get("location")
    if is_unknown(given):
        yield indeterminate("location", f"the location can't be known; {format_places(context)}")
    elif text(given) and normalise_azure(given) not in allowed:
        yield violation("location", f"the location is {text(given)}; {format_places(context)}")
    cloud = resource.get("environment")
    if is_unknown(cloud):
        yield indeterminate("environment", "which of Azure's clouds it is can't be known")
    elif text(cloud) and text(cloud).lower() not in {"public", "azurepubliccloud", "azurecloud"}:
        yield violation(
            "environment", f"the cloud is {text(cloud)}, which has no region in the country"
        )


@rule(
    "residency-unjudged-package",
    "Every resource is of a kind whose place can be told",
    Severity.HIGH,
    EVERY,
    ("pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.23", "uae-ia:T6.3.1"),
    "Use the packages aws, azure-native and kubernetes, which rules can judge. Where another "
    "service is needed, find out where it keeps data: where none is abroad, name the type in the "
    "setting allowedServices, with what shows it.",
)
def unjudged_package(resource: Resource, context: Context) -> Iterator[Finding]:
    """Resources of packages that no rule knows, dynamic providers included."""
    judged = resource.package in _JUDGED or resource.kind in _BUILDS
    judged = judged or context.settings.allows_service(resource.kind)
    if has_place(resource) and not judged:
        yield violation(
            "",
            f"no rule can tell where the package {resource.package} keeps data; "
            f"{format_places(context)}",
        )


RULES: tuple[Rule, ...] = (aws_region, aws_provider, azure_provider, unjudged_package)
