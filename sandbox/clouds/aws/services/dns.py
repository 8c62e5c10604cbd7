"""Route 53: zones, records, the resolver's query log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT
from falaj.sandbox.clouds.aws.hashes import digits
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, matches, not_together, sized

_QUERY_LOG: Final = "aws:route53/resolverQueryLogConfig:ResolverQueryLogConfig"


def _zone(resource: Resource) -> Mapping[str, Any]:
    servers = [f"ns-{digits(3, resource.id, str(n))}.awsdns-{n:02d}.{end}"
               for n, end in enumerate(("com", "net", "org", "co.uk"))]  # fmt: skip
    return {"zoneId": resource.id, "nameServers": servers, "primaryNameServer": servers[0]}


def _record(resource: Resource) -> Mapping[str, Any]:
    zone = resource.world.by_id(t.ZONE, resource.string("zoneId"))
    domain = str(zone.outputs.get("name", "")).rstrip(".") if zone is not None else ""
    name = resource.string("name").rstrip(".")
    full = name if not domain or name == domain or name.endswith(f".{domain}") else (
        f"{name}.{domain}" if name else domain
    )  # fmt: skip
    return {"fqdn": full}


def _content(inputs: Inputs) -> Iterator[Problem]:
    """A record has values with a lifetime, or is an alias."""
    alias = inputs.is_given("aliases")
    if alias:
        for path in ("records", "ttl"):
            if inputs.is_given(path):
                yield Problem(path, "can't go with aliases; remove it")
    elif not inputs.is_given("records"):
        yield Problem("records", "is missing; give records and ttl, or aliases")
    elif not inputs.is_given("ttl"):
        yield Problem("ttl", "is missing; records need it")


KINDS: Final[AwsKinds] = {
    t.ZONE: AwsKind(
        id="Z{letters20}",
        arn="route53:::hostedzone/{id}",
        replaces=("delegationSetId", "name"),
        rules=(
            matches("name", r"([A-Za-z0-9_*-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", "a domain name"),
            sized("name", 1, 1024, "characters"),
            not_together("delegationSetId", "vpcs"),
        ),
        references=(links.vpc("vpcs[].vpcId"),),
        computed=_zone,
        defaults={"comment": "Managed by Pulumi", "forceDestroy": False},
    ),
    "aws:route53/zoneAssociation:ZoneAssociation": AwsKind(
        id="{zoneId}:{vpcId}",
        replaces=("vpcId", "vpcRegion", "zoneId"),
        references=(links.vpc(), Reference("zoneId", (t.ZONE,), holds=False, regional=False)),
        computed=lambda _: {"owningAccount": ACCOUNT},
    ),
    "aws:route53/record:Record": AwsKind(
        id="{zoneId}_{name}_{type}",
        replaces=("name", "setIdentifier", "zoneId"),
        rules=(_content, between("ttl", 0, 2147483647, "seconds")),
        references=(Reference("zoneId", (t.ZONE,), by=("zoneId",), regional=False),),
        computed=_record,
    ),
    _QUERY_LOG: AwsKind(
        id="rqlc-{hex17}",
        arn="route53resolver:{region}:{account}:resolver-query-log-config/{id}",
        replaces=("destinationArn", "name"),
        rules=(
            matches("name", r"(?!^[0-9]+$)[a-zA-Z0-9\-_' ]{1,64}",
                    "up to 64 letters, digits, spaces and -_'"),
            matches("destinationArn", r"arn:.+", "the ARN of a log group, bucket or stream"),
        ),
        references=(
            Reference("destinationArn", (t.LOG_GROUP, t.BUCKET), by=("arn",), holds=False),
        ),
        computed=lambda _: {"ownerId": ACCOUNT, "shareStatus": "NOT_SHARED"},
    ),
    "aws:route53/resolverQueryLogConfigAssociation:ResolverQueryLogConfigAssociation": AwsKind(
        id="rqlca-{hex17}",
        replaces=("resolverQueryLogConfigId", "resourceId"),
        references=(
            Reference("resolverQueryLogConfigId", (_QUERY_LOG,)),
            links.vpc("resourceId"),
        ),
        unique=("resolverQueryLogConfigId", "resourceId"),
    ),
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": AwsKind(
        id="rslvr-fdl-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-domain-list/{id}",
        replaces=("name",),
    ),
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": AwsKind(
        id="rslvr-frg-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-rule-group/{id}",
        replaces=("name",),
        computed=lambda _: {"ownerId": ACCOUNT, "shareStatus": "NOT_SHARED"},
    ),
    ("aws:route53/resolverFirewallRuleGroupAssociation:"
     "ResolverFirewallRuleGroupAssociation"): AwsKind(
        id="rslvr-frgassoc-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-rule-group-association/{id}",
        replaces=("firewallRuleGroupId", "vpcId"),
        references=(links.vpc(),),
    ),
    "aws:route53/resolverEndpoint:ResolverEndpoint": AwsKind(
        id="rslvr-in-{hex17}",
        arn="route53resolver:{region}:{account}:resolver-endpoint/{id}",
        replaces=("direction", "resolverEndpointType", "securityGroupIds"),
        rules=(sized("ipAddresses", 2, 10),),
        references=(links.security_group(), links.subnet("ipAddresses[].subnetId")),
    ),
}  # fmt: skip
