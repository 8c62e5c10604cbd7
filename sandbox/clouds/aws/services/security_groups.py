"""Security groups and their rules, Network Firewall and WAF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import RESOURCE, policy
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, marked, uuid
from falaj.sandbox.clouds.aws.regions import cidr, region_of
from falaj.sandbox.clouds.aws.services.network import default_security_group
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_map
from falaj.sandbox.clouds.kinds import Reference, Rule, between, exactly_one, matches, needs, sized
from falaj.sandbox.clouds.model import Problem

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
            relations.security_group("referencedSecurityGroupId"),
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


_ACTIONS: Final = ("aws:pass", "aws:drop", "aws:forward_to_sfe")
_STATEFUL: Final = {
    "aws:drop_strict", "aws:drop_established", "aws:alert_strict", "aws:alert_established",
    "aws:drop_established_app_layer", "aws:alert_established_app_layer",
}  # fmt: skip


def _firewall(resource: Resource) -> Mapping[str, Any]:
    """One endpoint in each subnet's zone, which routes point to."""
    states: list[dict[str, Any]] = []
    for _, subnet_id in resource.each("subnetMappings[].subnetId"):
        subnet = resource.world.by_id(t.SUBNET, str(subnet_id))
        zone = str(subnet.outputs.get("availabilityZone", "")) if subnet is not None else ""
        attachment = {
            "subnetId": subnet_id,
            "endpointId": "vpce-" + marked(17, resource.id, str(subnet_id)),
        }
        states.append({"availabilityZone": zone, "attachments": [attachment]})
    return {
        "firewallStatuses": [{"syncStates": states, "transitGatewayAttachmentSyncStates": []}],
        "updateToken": uuid(resource.id, "token"),
    }


def _one_subnet_per_zone(resource: Resource) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for path, subnet_id in resource.each("subnetMappings[].subnetId"):
        subnet = resource.world.by_id(t.SUBNET, str(subnet_id))
        if subnet is None:
            continue
        if subnet.outputs.get("vpcId") != resource.get("vpcId"):
            yield Problem(
                path, f"{subnet.id} belongs to {subnet.outputs.get('vpcId')}, the firewall to "
                f"{resource.get('vpcId')}",
            )  # fmt: skip
        zone = str(subnet.outputs.get("availabilityZoneId"))
        if zone in seen:
            yield Problem(path, f"{subnet.id} lies in {zone} as does {seen[zone]}; one a zone")
        seen[zone] = subnet.id


def _stateless_actions(inputs: Inputs) -> Iterator[Problem]:
    """Exactly one of the standard actions, with custom ones beside it."""
    custom = {
        str(as_map(item).get("actionName"))
        for _, item in inputs.each("firewallPolicy.statelessCustomActions[]")
    }
    for name in ("statelessDefaultActions", "statelessFragmentDefaultActions"):
        path = f"firewallPolicy.{name}"
        given = [value for _, value in inputs.each(f"{path}[]") if isinstance(value, str)]
        for value in given:
            if value not in _ACTIONS and value not in custom:
                yield Problem(path, f"{value!r} isn't allowed; allowed: {', '.join(_ACTIONS)}")
        if len([value for value in given if value in _ACTIONS]) > 1:
            yield Problem(path, f"has several of {', '.join(_ACTIONS)}; give one")


def _stateful_actions(inputs: Inputs) -> Iterator[Problem]:
    path = "firewallPolicy.statefulDefaultActions"
    given = [value for _, value in inputs.each(f"{path}[]") if isinstance(value, str)]
    for value in given:
        if value not in _STATEFUL:
            yield Problem(
                path, f"{value!r} isn't allowed; allowed: {', '.join(sorted(_STATEFUL))}"
            )
    order = inputs.get("firewallPolicy.statefulEngineOptions.ruleOrder")
    hidden = inputs.is_given("firewallPolicy.statefulEngineOptions.ruleOrder") and order is None
    if given and order != "STRICT_ORDER" and not hidden:
        yield Problem(path, "applies only with statefulEngineOptions.ruleOrder STRICT_ORDER")


def _same_order(resource: Resource) -> Iterator[Problem]:
    """Groups are evaluated in the policy's order ("StatefulRuleOptions", Network Firewall API)."""
    order = resource.get("firewallPolicy.statefulEngineOptions.ruleOrder") or _DEFAULT_ORDER
    for path, arn in resource.each("firewallPolicy.statefulRuleGroupReferences[].resourceArn"):
        for made in resource.world.find(t.FIREWALL_RULES, arn=arn):
            own = Inputs(made.outputs)
            if own.is_given("ruleGroup"):
                theirs = own.get("ruleGroup.statefulRuleOptions.ruleOrder") or _DEFAULT_ORDER
                if theirs != order:
                    yield Problem(
                        path,
                        f"the group {own.get('name')!r} has the order {theirs}, and the policy "
                        f"{order}; give both the same (ruleGroup.statefulRuleOptions.ruleOrder)",
                    )


def _room(inputs: Inputs) -> Iterator[Problem]:
    """A list takes a place for each domain at least ("Setting rule group capacity")."""
    capacity, domains = inputs.number("capacity"), len(inputs.items(_LIST))
    if capacity is not None and domains > capacity:
        yield Problem(
            "capacity", f"{capacity:g} is less than the {domains} domains of the group; raise it"
        )


def _rule_source(inputs: Inputs) -> Iterator[Problem]:
    if inputs.is_given("rules") == inputs.is_given("ruleGroup"):
        yield Problem("ruleGroup", "exactly one of rules and ruleGroup must be given")


def _targets(path: str) -> Rule:
    # "RulesSourceList", Network Firewall API reference: a leading dot stands for all subdomains.
    return matches(
        path,
        r"\.?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9-]{1,63}\.?",
        "a domain such as example.com, or .example.com for it and all below",
    )


def _scope(inputs: Inputs) -> Iterator[Problem]:
    if inputs.get("scope") == "CLOUDFRONT" and region_of(inputs) not in ("", "us-east-1"):
        yield Problem("scope", "'CLOUDFRONT' exists only in us-east-1; use 'REGIONAL'")


_DEFAULT_ORDER: Final = "DEFAULT_ACTION_ORDER"
_NAME: Final = r"[a-zA-Z0-9-]{1,128}"
_LIST: Final = "ruleGroup.rulesSource.rulesSourceList.targets"


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
            relations.vpc(),
            relations.security_group("ingress[].securityGroups[]"),
            relations.security_group("egress[].securityGroups[]"),
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
            "ownerId": ACCOUNT, "name": "default", "namePrefix": "",
            "description": "default VPC security group",
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
            relations.security_group("sourceSecurityGroupId"),
        ),
    ),
    t.FIREWALL: AwsKind(
        id="arn:{partition}:network-firewall:{region}:{account}:firewall/{name}",
        arn="*",
        name=AutoName(longest=128),
        replaces=("name", "transitGatewayId", "vpcId"),
        rules=(matches("name", _NAME, "up to 128 letters, digits and '-'"),),
        references=(
            relations.vpc(),
            relations.subnet("subnetMappings[].subnetId"),
            Reference("firewallPolicyArn", (t.FIREWALL_POLICY,), by=("arn",)),
            Reference("encryptionConfiguration.keyId", (t.KEY,), by=("arn", "keyId"),
                      holds=False),
        ),
        crosschecks=(_one_subnet_per_zone,),
        unique=("name",),
        computed=_firewall,
        defaults={"deleteProtection": False, "subnetChangeProtection": False,
                  "firewallPolicyChangeProtection": False},
    ),
    t.FIREWALL_POLICY: AwsKind(
        id="arn:{partition}:network-firewall:{region}:{account}:firewall-policy/{name}",
        arn="*",
        name=AutoName(longest=128),
        replaces=("name",),
        rules=(
            matches("name", _NAME, "up to 128 letters, digits and '-'"),
            between("firewallPolicy.statefulRuleGroupReferences[].priority", 1, 65535),
            between("firewallPolicy.statelessRuleGroupReferences[].priority", 1, 65535),
            _stateless_actions,
            _stateful_actions,
        ),
        references=(
            Reference("firewallPolicy.statefulRuleGroupReferences[].resourceArn",
                      (t.FIREWALL_RULES,), by=("arn",)),
            Reference("firewallPolicy.statelessRuleGroupReferences[].resourceArn",
                      (t.FIREWALL_RULES,), by=("arn",)),
        ),
        crosschecks=(_same_order,),
        unique=("name",),
        computed=lambda resource: {"updateToken": uuid(resource.id, "token")},
    ),
    t.FIREWALL_RULES: AwsKind(
        id=lambda inputs: arn_of(inputs, "network-firewall",
            f"{'stateless' if inputs.get('type') == 'STATELESS' else 'stateful'}-rulegroup/"
            f"{inputs.string('name')}",
        ),
        arn="*",
        name=AutoName(longest=128),
        replaces=("capacity", "name", "type", "ruleGroup.statefulRuleOptions"),
        rules=(
            matches("name", _NAME, "up to 128 letters, digits and '-'"),
            between("capacity", 1, 30000),
            _rule_source,
            _targets(f"{_LIST}[]"),
            _room,
            sized("rules", 1, 2000000, "characters"),
        ),
        unique=("name", "type"),
        computed=lambda resource: {"updateToken": uuid(resource.id, "token")},
    ),
    "aws:networkfirewall/loggingConfiguration:LoggingConfiguration": AwsKind(
        id="{firewallArn}",
        replaces=("firewallArn",),
        rules=(sized("loggingConfiguration.logDestinationConfigs", 1, 3),),
        references=(Reference("firewallArn", (t.FIREWALL,), by=("arn",), holds=False),),
        unique=("firewallArn",),
    ),
    "aws:networkfirewall/resourcePolicy:ResourcePolicy": AwsKind(
        id="{resourceArn}",
        replaces=("resourceArn",),
        rules=(policy("policy", RESOURCE, sids=False),),
    ),
    t.WEB_ACL: AwsKind(
        id="{uuid}",
        arn="wafv2:{region}:{account}:regional/webacl/{name}/{id}",
        name=AutoName(longest=128),
        replaces=("name", "scope"),
        rules=(
            matches("name", r"[\w-]{1,128}", "up to 128 letters, digits, '-' and '_'"),
            exactly_one("defaultAction.allow", "defaultAction.block"),
            _scope,
        ),
        unique=("name", "scope"),
        computed=lambda resource: {
            "capacity": 0, "lockToken": uuid(resource.id, "lock"), "applicationIntegrationUrl": ""
        },
    ),
    "aws:wafv2/webAclAssociation:WebAclAssociation": AwsKind(
        id="{webAclArn},{resourceArn}",
        replaces=("resourceArn", "webAclArn"),
        references=(
            Reference("webAclArn", (t.WEB_ACL,), by=("arn",)),
            Reference("resourceArn", (t.LOAD_BALANCER,), by=("arn",), holds=False),
        ),
        unique=("resourceArn",),
    ),
    "aws:wafv2/webAclLoggingConfiguration:WebAclLoggingConfiguration": AwsKind(
        id="{resourceArn}",
        replaces=("resourceArn",),
        rules=(sized("logDestinationConfigs", 1, 1),),
        references=(Reference("resourceArn", (t.WEB_ACL,), by=("arn",), holds=False),),
        unique=("resourceArn",),
    ),
    "aws:wafv2/ipSet:IpSet": AwsKind(
        id="{uuid}",
        arn="wafv2:{region}:{account}:regional/ipset/{name}/{id}",
        name=AutoName(longest=128),
        replaces=("ipAddressVersion", "name", "scope"),
        rules=(_scope,),
        unique=("name", "scope"),
    ),
}  # fmt: skip
