"""Security groups and their rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.addresses import cidr
from falaj.sandbox.clouds.aws.arns import ACCOUNT
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.services.network import default_security_group
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference, Rule
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, exactly_one, matches, needs

# "Security group names" and CreateSecurityGroup, Amazon EC2 API reference.
_CHARACTERS: Final = r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]"
_ALLOWED: Final = "255 of a-z, A-Z, 0-9, spaces and ._-:/()#,@[]+=&;{}!$* at most"
_PROTOCOLS: Final = {"tcp", "udp", "icmp", "icmpv6", "all", "-1", "ah", "esp", "gre", "sctp"}


def ports(low: str, high: str, protocol: str) -> Rule:
    """Ports fit the protocol: 0 to 65535, in order; -1 only for ICMP and all protocols."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        kind = str(inputs.get(protocol) or "").lower()
        if not kind:
            return
        any_port = kind in {"-1", "all", "icmp", "icmpv6", "1", "58"}
        first, last = inputs.get(low), inputs.get(high)
        for path, value in ((low, first), (high, last)):
            if isinstance(value, int | float) and not (-1 if any_port else 0) <= value <= 65535:
                yield Problem(path, f"{value} is no port of {kind}; allowed: 0 to 65535")
        if kind in {"-1", "all"}:
            for path, value in ((low, first), (high, last)):
                if value not in (None, 0, -1):
                    yield Problem(
                        path,
                        f"{value} was given although the protocol is {kind}, which means all "
                        "ports; name a protocol such as tcp, or leave the ports out",
                    )
        elif (
            isinstance(first, int | float)
            and isinstance(last, int | float)
            and first > last
            and not any_port
        ):
            yield Problem(low, f"{first} is above {high}, which is {last}; exchange them")

    return rule


def protocol(path: str) -> Rule:
    """A protocol by its name or its number, 0 to 255; -1 for all."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            text = str(value).lower()
            if text not in _PROTOCOLS and not (text.isdigit() and int(text) <= 255):
                yield Problem(
                    where, f"{value!r} is no protocol; allowed: tcp, udp, icmp, icmpv6, a number "
                    "from 0 to 255, or -1 for all",
                )  # fmt: skip

    return rule


def _rule_needs_ports(inputs: Inputs) -> Iterator[Problem]:
    kind = str(inputs.get("ipProtocol") or "").lower()
    if kind in {"tcp", "udp", "6", "17", "icmp", "icmpv6"}:
        for path in ("fromPort", "toPort"):
            if not inputs.is_given(path):
                yield Problem(path, f"is missing; a rule for {kind} needs fromPort and toPort")


def _reserved_name(inputs: Inputs) -> Iterator[Problem]:
    name = inputs.string("name")
    if name.startswith("sg-"):
        yield Problem("name", f"{name!r} begins with 'sg-', which is kept for ids; choose another")
    if name == "default":
        yield Problem("name", "'default' is the name of each VPC's own group; choose another")


def _same_vpc(resource: Resource) -> Iterator[Problem]:
    one = resource.world.by_id(t.SECURITY_GROUP, resource.string("securityGroupId"))
    other = resource.world.by_id(t.SECURITY_GROUP, resource.string("referencedSecurityGroupId"))
    if one is None or other is None:
        return
    mine, theirs = one.outputs.get("vpcId"), other.outputs.get("vpcId")
    if mine != theirs:
        yield Problem(
            "referencedSecurityGroupId",
            f"{other.id} belongs to {theirs}, {one.id} to {mine}; "
            "refer to a group of the same VPC",
        )


def _rule(direction: str) -> AwsKind:
    return AwsKind(
        id="sgr-{hex17}",
        arn="ec2:{region}:{account}:security-group-rule/{id}",
        replaces=("securityGroupId",),
        rules=(
            exactly_one("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId"),
            cidr("cidrIpv4"),
            cidr("cidrIpv6", version=6),
            protocol("ipProtocol"),
            ports("fromPort", "toPort", "ipProtocol"),
            _rule_needs_ports,
            matches("description", _CHARACTERS + "{0,255}",
                    _ALLOWED),
        ),
        references=(
            Reference("securityGroupId", (t.SECURITY_GROUP, t.DEFAULT_SECURITY_GROUP),
                      holds=False),
            links.security_group("referencedSecurityGroupId"),
            # A gateway endpoint's list is the service's own, the same in every network.
            Reference(
                "prefixListId", (t.PREFIX_LIST, t.VPC_ENDPOINT), by=("id", "prefixListId"),
                lets_go=(t.VPC_ENDPOINT,),
            ),
        ),
        crosschecks=(_same_vpc,),
        unique=("securityGroupId", "ipProtocol", "fromPort", "toPort", "cidrIpv4", "cidrIpv6",
                "prefixListId", "referencedSecurityGroupId"),
        computed=lambda resource: {
            "securityGroupRuleId": resource.id, "direction": direction
        },
    )  # fmt: skip


KINDS: Final[AwsKinds] = {
    t.SECURITY_GROUP: AwsKind(
        id="sg-{hex17}",
        arn="ec2:{region}:{account}:security-group/{id}",
        name=AutoName(longest=255),
        replaces=("name", "namePrefix", "description", "vpcId"),
        rules=(
            matches("name", _CHARACTERS + "{1,255}",
                    _ALLOWED),
            matches("description", _CHARACTERS + "{0,255}",
                    _ALLOWED),
            _reserved_name,
            cidr("ingress[].cidrBlocks[]"),
            cidr("egress[].cidrBlocks[]"),
            cidr("ingress[].ipv6CidrBlocks[]", version=6),
            cidr("egress[].ipv6CidrBlocks[]", version=6),
            protocol("ingress[].protocol"),
            protocol("egress[].protocol"),
            between("ingress[].fromPort", -1, 65535, "(-1 only for ICMP)"),
            between("ingress[].toPort", -1, 65535, "(-1 only for ICMP)"),
            between("egress[].fromPort", -1, 65535, "(-1 only for ICMP)"),
            between("egress[].toPort", -1, 65535, "(-1 only for ICMP)"),
        ),
        references=(
            links.vpc(),
            links.security_group("ingress[].securityGroups[]"),
            links.security_group("egress[].securityGroups[]"),
        ),
        unique=("vpcId", "name"),
        computed=lambda _: {"ownerId": ACCOUNT},
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
    ),
    t.DEFAULT_SECURITY_GROUP: AwsKind(
        id=lambda inputs: default_security_group(inputs.string("vpcId")),
        arn="ec2:{region}:{account}:security-group/{id}",
        replaces=("vpcId",),
        rules=(cidr("ingress[].cidrBlocks[]"), cidr("egress[].cidrBlocks[]")),
        references=(Reference("vpcId", (t.VPC,), holds=False),),
        computed=lambda _: {
            "ownerId": ACCOUNT, "name": "default", "description": "default VPC security group"
        },
    ),
    t.INGRESS_RULE: _rule("ingress"),
    t.EGRESS_RULE: _rule("egress"),
    "aws:ec2/securityGroupRule:SecurityGroupRule": AwsKind(
        id="sgrule-{digits10}",
        replaces=("cidrBlocks", "fromPort", "ipv6CidrBlocks", "prefixListIds", "protocol",
                  "securityGroupId", "self", "sourceSecurityGroupId", "toPort", "type"),
        rules=(
            cidr("cidrBlocks[]"),
            cidr("ipv6CidrBlocks[]", version=6),
            protocol("protocol"),
            ports("fromPort", "toPort", "protocol"),
            needs("fromPort", "toPort"),
        ),
        references=(
            Reference("securityGroupId", (t.SECURITY_GROUP, t.DEFAULT_SECURITY_GROUP),
                      holds=False),
            links.security_group("sourceSecurityGroupId"),
        ),
    ),
}  # fmt: skip
