"""Services without a region of their own, and what they do abroad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.components.catalogue.region_names import aws_region_of
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_false,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.reading.place import REGIONLESS, REGIONLESS_MODULES, format_places, is_allowed
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.everywhere import CONTROLS

# AWS types without a region: which run at edges abroad, and which nobody has classified.

#: The same services through Cloud Control, whose types say nothing of regions.
_CONTROLLED = ("aws-native:cloudfront:", "aws-native:globalaccelerator:")


@rule(
    "residency-aws-edge",
    "No data passes edges of AWS, which are abroad as well",
    Severity.CRITICAL,
    frozenset(REGIONLESS) | {f"{each}*" for each in _CONTROLLED},
    CONTROLS,
    "Serve from the region itself: a load balancer with AWS WAF in front, and Route 53 for names. "
    "Edge locations terminate TLS and read requests wherever the client is.",
)
def regionless_edge(resource: Resource, context: Context) -> Iterator[Finding]:
    """Presence is the violation: no setting keeps these in a region."""
    kind, reason = REGIONLESS.get(resource.kind, ("", ""))
    if resource.kind.startswith(_CONTROLLED):
        kind, reason = "edge data plane", "it serves through edges abroad"
    if kind == "edge data plane" and resource.custom:
        yield violation("", f"{reason}; {format_places(context)}")


@rule(
    "residency-aws-unclassified",
    "Every AWS type without a region is classified",
    Severity.HIGH,
    {f"aws:{module}/*" for module in REGIONLESS_MODULES},
    ("iso27001:A.5.23", "uae-ia:T6.3.1", "health-data:13"),
    "Find out where the service keeps and processes data. Where it keeps none abroad, name the "
    "type in the setting allowedServices, with what shows it.",
)
def unclassified(resource: Resource, context: Context) -> Iterator[Finding]:
    """A type that a later version of the SDK added to a service that has no regions."""
    if not resource.custom or resource.kind in REGIONLESS:
        return
    if context.settings.allows_service(resource.kind):
        return
    if resource.get("region") is ABSENT:
        yield violation(
            "", f"nobody has classified {resource.kind}, whose service has no regions; "
            f"{format_places(context)}",
        )  # fmt: skip


@rule(
    "residency-aws-account-region",
    "No region abroad is switched on for the account",
    Severity.MEDIUM,
    {"aws:account/region:Region"},
    ("iso27001:A.5.23", "uae-ia:T6.3.1", "cbuae-outsourcing:6.1"),
    "Leave regions abroad switched off (enabled: false); a region that isn't switched on can't "
    "take data by mistake.",
)
def account_region(resource: Resource, context: Context) -> Iterator[Finding]:
    """Opt-in regions; to switch one off is what is wanted."""
    enabled = resource.get("enabled")
    if is_false(enabled):
        return
    name = resource.get("regionName")
    if is_unknown(name):
        yield indeterminate("regionName", f"the region can't be known; {format_places(context)}")
    elif (region := aws_region_of(name)) and not is_allowed(f"aws/{region}", context):
        find = indeterminate if is_unknown(enabled) else violation
        yield find("regionName", f"switches on aws/{region}; {format_places(context)}")


# Regional types that may serve through edges abroad, or span regions, by how they are set.


@rule(
    "residency-aws-edge-api",
    "APIs are served by their region, not by edges",
    Severity.CRITICAL,
    {"aws:apigateway/restApi:RestApi", "aws:apigateway/domainName:DomainName"},
    CONTROLS,
    "Set endpointConfiguration.types to REGIONAL or PRIVATE: by default requests enter through "
    "CloudFront.",
)
def edge_api(resource: Resource, context: Context) -> Iterator[Finding]:
    """API Gateway's endpoint type, EDGE by default.

    https://docs.aws.amazon.com/apigateway/latest/api/API_EndpointConfiguration.html
    """
    path = "endpointConfiguration.types"
    given = resource.get(path)
    if is_unknown(given):
        yield indeterminate(path, "whether requests pass edges can't be known")
        return
    if given is ABSENT or not items(given):
        if resource.kind.endswith(":DomainName") and any(
            resource.get(key) is not ABSENT
            for key in ("regionalCertificateArn", "regionalCertificateName")
        ):
            return
        yield violation(
            path, f"the default, EDGE, serves through CloudFront; {format_places(context)}"
        )
    for each in items(given):
        if is_unknown(each):
            yield indeterminate(path, "whether requests pass edges can't be known")
        elif text(each).upper() not in {"REGIONAL", "PRIVATE"}:
            yield violation(
                path, f"{text(each) or 'this'} serves through CloudFront; {format_places(context)}"
            )


#: Types that always serve through edges or span regions, and why; beside each a type that doesn't.
_ALWAYS: Final[dict[str, str]] = {
    "aws:amplify/app:App": "Amplify serves sites through CloudFront",
    "aws:amplify/domainAssociation:DomainAssociation": "Amplify serves sites through CloudFront",
    "aws:lightsail/distribution:Distribution": "it is a content delivery network",
    "aws:cloudwatch/eventEndpoint:EventEndpoint": "it spans two regions",
    "aws:sesv2/multiRegionEndpoint:MultiRegionEndpoint": "it spans two regions",
    "aws:arcregionswitch/plan:Plan": "it moves services between regions",
}
_CLOUDFRONT: Final = frozenset((
    "aws:wafv2/webAcl:WebAcl", "aws:wafv2/ruleGroup:RuleGroup", "aws:wafv2/ipSet:IpSet",
    "aws:wafv2/regexPatternSet:RegexPatternSet",
))  # fmt: skip
_COGNITO: Final = "aws:cognito/userPoolDomain:UserPoolDomain"


@rule(
    "residency-aws-edge-service",
    "Services don't serve through edges or span regions",
    Severity.CRITICAL,
    frozenset(_ALWAYS) | _CLOUDFRONT | {_COGNITO},
    CONTROLS,
    "Serve from the region: a load balancer with a web ACL of scope REGIONAL, a prefix domain for "
    "Cognito, an event bus of the region.",
)
def edge_service(resource: Resource, context: Context) -> Iterator[Finding]:
    """What is at the edge by its type, its scope, or its own domain."""
    if (reason := _ALWAYS.get(resource.kind)) and resource.custom:
        yield violation("", f"{reason}; {format_places(context)}")
    elif resource.kind in _CLOUDFRONT:
        scope = resource.get("scope")
        if is_unknown(scope):
            yield indeterminate("scope", "whether it is for CloudFront can't be known")
        elif text(scope).upper() == "CLOUDFRONT":
            yield violation("scope", f"it inspects requests at edges; {format_places(context)}")
    elif resource.kind == _COGNITO:
        # https://docs.aws.amazon.com/cognito/latest/developerguide/cognito-user-pools-add-custom-domain.html
        if is_unknown(resource.get("certificateArn")):
            yield indeterminate("certificateArn", "whether it is a domain of its own isn't known")
        elif destinations.is_set(resource, "certificateArn"):
            yield violation(
                "certificateArn",
                "Cognito serves domains of one's own through CloudFront; "
                f"{format_places(context)}",
            )


# Services of Azure that are in no region, each by what it does with data.

#: How a location says that there is none; normalised.
GLOBAL: Final = frozenset(("global", "worldwide", "world"))


class Reach(Enum):
    """What a service without a region does with data."""

    EDGE = "edge"
    CONTROL_PLANE = "control_plane"
    HARMLESS = "harmless"


def _read() -> Mapping[str, tuple[Reach, str]]:
    file = Path(__file__).with_name("azure_global.yaml")
    document: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {
        token: (Reach(reach), str(each["reason"]))
        for reach, groups in document.items()
        for each in groups
        for token in azure(*each["types"])
    }


#: Every type that is classified, ``module:*`` for whole modules, with the reason.
CLASSIFIED: Final = _read()
EDGE: Final = frozenset(each for each, (reach, _) in CLASSIFIED.items() if reach is Reach.EDGE)
#: They are in a region unless their tier is Global: then every region that has a part of the load
#: balancer takes in what is sent (https://learn.microsoft.com/azure/load-balancer/cross-region-overview).
TIERED: Final = azure("network:LoadBalancer", "network:PublicIPAddress", "network:PublicIPPrefix")
#: Browsers for tests run in the region next to the client unless that is disabled
#: (https://learn.microsoft.com/azure/playwright-testing/how-to-optimize-regional-latency).
BROWSERS: Final = azure("azureplaywrightservice:Account", "loadtestservice:PlaywrightWorkspace")


@lru_cache(maxsize=4096)
def reach_of(kind: str) -> tuple[Reach, str] | None:
    """How a type without a region is classified, and why; None for all others."""
    return CLASSIFIED.get(kind) or CLASSIFIED.get(kind.rpartition(":")[0] + ":*")


def may_be_global(kind: str) -> bool:
    """Whether ``global`` is no finding of its own: it holds no data, or `edge` tells of it."""
    return reach_of(kind) is not None


@rule(
    "residency-azure-edge",
    "No service handles data at sites in other countries",
    Severity.CRITICAL,
    EDGE | TIERED | BROWSERS,
    ("health-data:13", "cbuae-outsourcing:6.1", "pdpl:22", "gdpr:44", "iso27001:A.5.23"),
    "Serve from the region itself: an Application Gateway with its firewall in front of "
    "applications, a storage account or a registry in the country for content, a hosted or "
    "regional service in the place of a global one.",
)
def azure_edge(resource: Resource, context: Context) -> Iterator[Finding]:
    """The presence of a service of the edge, or a setting that makes a regional one such."""
    del context
    if resource.kind in TIERED:
        yield from _unless(
            resource, "sku.tier", "Regional", "Regional", "it is reached through all regions"
        )
    elif resource.kind in BROWSERS:
        yield from _unless(
            resource, "regionalAffinity", "Disabled", "Enabled", "browsers run next to the client"
        )
    elif found := reach_of(resource.kind):
        yield violation("", f"{found[1]}; no setting of this type keeps data in the country")


def _unless(
    resource: Resource, path: str, wanted: str, default: str, otherwise: str
) -> Iterator[Finding]:
    given = resource.get(path)
    if is_unknown(given):
        yield indeterminate(path, f"it can't be seen, and must be {wanted}")
    elif (text(given) or default).lower() != wanted.lower():
        value_text = text(given) or f"not given, and so {default}"
        yield violation(path, f"it is {value_text}: {otherwise}; it must be {wanted}")


RULES: tuple[Rule, ...] = (
    regionless_edge,
    unclassified,
    account_region,
    edge_api,
    edge_service,
    azure_edge,
)
