"""AWS types without a region: which run at edges abroad, and which nobody has classified."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.components.catalogue.region_names import aws_region_of
from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_false,
    is_unknown,
    rule,
    violation,
)
from falaj.policies.reading.place import REGIONLESS, REGIONLESS_MODULES, is_allowed, places_said
from falaj.policies.rules.residency.everywhere import CONTROLS

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
def edge(resource: Resource, view: View) -> Iterator[Finding]:
    """Presence is the violation: no setting keeps these in a region."""
    kind, reason = REGIONLESS.get(resource.kind, ("", ""))
    if resource.kind.startswith(_CONTROLLED):
        kind, reason = "edge data plane", "it serves through edges abroad"
    if kind == "edge data plane" and resource.custom:
        yield violation("", f"{reason}; {places_said(view)}")


@rule(
    "residency-aws-unclassified",
    "Every AWS type without a region is classified",
    Severity.HIGH,
    {f"aws:{module}/*" for module in REGIONLESS_MODULES},
    ("iso27001:A.5.23", "uae-ia:T6.3.1", "health-data:13"),
    "Find out where the service keeps and processes data. Then have the type added to the list of "
    "types without a region, as control plane, edge data plane or harmless, with the reason.",
)
def unclassified(resource: Resource, view: View) -> Iterator[Finding]:
    """A type that a later version of the SDK added to a service that has no regions."""
    if not resource.custom or resource.kind in REGIONLESS:
        return
    if resource.get("region") is ABSENT:
        yield violation(
            "", f"nobody has classified {resource.kind}, whose service has no regions; "
            f"{places_said(view)}",
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
def account_region(resource: Resource, view: View) -> Iterator[Finding]:
    """Opt-in regions; to switch one off is what is wanted."""
    enabled = resource.get("enabled")
    if is_false(enabled):
        return
    name = resource.get("regionName")
    if is_unknown(name):
        yield indeterminate("regionName", f"the region can't be known; {places_said(view)}")
    elif (region := aws_region_of(name)) and not is_allowed(f"aws/{region}", view):
        find = indeterminate if is_unknown(enabled) else violation
        yield find("regionName", f"switches on aws/{region}; {places_said(view)}")


RULES: tuple[Rule, ...] = (edge, unclassified, account_region)
