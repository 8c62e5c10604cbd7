"""Regional types that may serve through edges abroad, or span regions, by how they are set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS


@rule(
    "residency-aws-edge-api",
    "APIs are served by their region, not by edges",
    Severity.CRITICAL,
    {"aws:apigateway/restApi:RestApi", "aws:apigateway/domainName:DomainName"},
    CONTROLS,
    "Set endpointConfiguration.types to REGIONAL or PRIVATE: by default requests enter through "
    "CloudFront.",
)
def edge_api(resource: Resource, view: View) -> Iterator[Finding]:
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
        yield violation(path, f"the default, EDGE, serves through CloudFront; {places_said(view)}")
    for each in items(given):
        if is_unknown(each):
            yield indeterminate(path, "whether requests pass edges can't be known")
        elif text(each).upper() not in {"REGIONAL", "PRIVATE"}:
            yield violation(
                path, f"{text(each) or 'this'} serves through CloudFront; {places_said(view)}"
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
def edge_service(resource: Resource, view: View) -> Iterator[Finding]:
    """What is at the edge by its type, its scope, or its own domain."""
    if (reason := _ALWAYS.get(resource.kind)) and resource.custom:
        yield violation("", f"{reason}; {places_said(view)}")
    elif resource.kind in _CLOUDFRONT:
        scope = resource.get("scope")
        if is_unknown(scope):
            yield indeterminate("scope", "whether it is for CloudFront can't be known")
        elif text(scope).upper() == "CLOUDFRONT":
            yield violation("scope", f"it inspects requests at edges; {places_said(view)}")
    elif resource.kind == _COGNITO:
        # https://docs.aws.amazon.com/cognito/latest/developerguide/cognito-user-pools-add-custom-domain.html
        if is_unknown(resource.get("certificateArn")):
            yield indeterminate("certificateArn", "whether it is a domain of its own isn't known")
        elif aws_targets.is_set(resource, "certificateArn"):
            yield violation(
                "certificateArn",
                f"Cognito serves domains of one's own through CloudFront; {places_said(view)}",
            )


RULES: tuple[Rule, ...] = (edge_api, edge_service)
