"""Network ACLs: no shells from the world."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.cidr import is_open
from falaj.policies.reading.types import aws
from falaj.policies.rules.zero_trust._aws_acl_entries import acl_entries, is_denied, opens_shells


@rule(
    "zero-trust-aws-network-acl-open",
    "No network ACL opens shells to the world",
    Severity.MEDIUM,
    aws("ec2/networkAcl", "ec2/defaultNetworkAcl", "ec2/networkAclRule"),
    ("cis-aws:6.3", "iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Allow named ranges to the ports of shells, or none; ports of answers begin above 3389 if "
    "the list of ports is cut in two.",
)
def network_acl_open(resource: Resource, view: View) -> Iterator[Finding]:
    """Entries that allow SSH or RDP from everywhere, unless an earlier one denies it."""
    entries = list(acl_entries(resource))
    for path, each in entries:
        if is_unknown(each):
            yield indeterminate(path, "its entries can't be known yet")
            continue
        for key in ("cidrBlock", "ipv6CidrBlock"):
            for _, cidr in select(each, key):
                at = f"{path}.{key}" if path else key
                if is_unknown(cidr) and opens_shells(each):
                    yield indeterminate(at, "its addresses can't be known yet")
                elif is_open(cidr) and opens_shells(each) and not is_denied(each, key, entries):
                    yield violation(at, f"{text(cidr)} may reach SSH or RDP; name who may")


RULES: tuple[Rule, ...] = (network_acl_open,)
