"""The way out of a network: a firewall that lets through named domains by TLS, and nothing else.

Nodes → firewall endpoint → NAT gateway → internet gateway, in the same zone all the way. Answers
take the same way back. Plain HTTP has no way out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, named
from falaj.components.aws._logs import log_group
from falaj.components.catalogue.clusters import PRIVATE_RANGES, SHARED_RANGE
from falaj.components.specification.network import NetworkSpec

#: Everything but these can be a public server: private networks stay out of reach even if one is
#: connected to this one later (RFC 1918, RFC 6598, and what is no unicast address).
_NOT_PUBLIC = (*PRIVATE_RANGES, SHARED_RANGE, "224.0.0.0/3")
_ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class Egress:
    """What nodes need to get out."""

    endpoint_ids: dict[str, pulumi.Output[str]]
    """Endpoints of the firewall by zone."""
    public_prefix_list_id: pulumi.Output[str]
    """Public addresses, for the nodes' security group."""


def public_ranges() -> list[ipaddress.IPv4Network]:
    """All addresses of the internet."""
    ranges = [ipaddress.IPv4Network(_ANYWHERE)]
    for taken in map(ipaddress.IPv4Network, _NOT_PUBLIC):
        ranges = [
            part
            for each in ranges
            for part in (each.address_exclude(taken) if taken.subnet_of(each) else [each])
        ]
    return sorted(ranges)


def make_egress(
    parent: pulumi.Resource,
    name: str,
    spec: NetworkSpec,
    *,
    vpc_id: pulumi.Output[str],
    subnets: Mapping[tuple[str, str], aws.ec2.Subnet],
    log_key_id: pulumi.Input[str],
) -> Egress:
    """Make the firewall and the gateways behind it, in every zone in use.

    Args:
        parent: the network.
        name: its name.
        spec: its checked arguments; `NetworkSpec.egress_domains` aren't empty.
        vpc_id: of the network.
        subnets: by zone and role; ``firewall`` and ``outlet`` among them.
        log_key_id: ARN of the key for the firewall's logs.
    """
    firewall = _firewall(parent, name, spec, vpc_id, subnets, log_key_id)
    _log(parent, name, spec, firewall, log_key_id)
    endpoint_ids = {
        zone: _endpoint_in(firewall, subnets[zone, "firewall"].id) for zone in spec.zones
    }
    gateway = aws.ec2.InternetGateway(
        f"{name}-outlet",
        vpc_id=vpc_id,
        tags={**spec.placed.tags(name), "Name": f"{name}-outlet"},
        opts=child(parent),
    )
    for zone in spec.zones:
        _zone_outlet(
            parent,
            f"{name}-{zone}",
            spec.placed.tags(name),
            gateway=gateway,
            endpoint_id=endpoint_ids[zone],
            subnets={role: subnets[zone, role] for role in ("nodes", "firewall", "outlet")},
        )
    return Egress(endpoint_ids, _public_prefix_list(parent, name, spec))


def _firewall(  # noqa: PLR0917 - what a firewall is made of
    parent: pulumi.Resource,
    name: str,
    spec: NetworkSpec,
    vpc_id: pulumi.Output[str],
    subnets: Mapping[tuple[str, str], aws.ec2.Subnet],
    key_id: pulumi.Input[str],
) -> aws.networkfirewall.Firewall:
    tags = spec.placed.tags(name)
    # The names of domains say what somebody does: docs.aws.amazon.com/network-firewall/latest/
    # developerguide/kms-encryption-at-rest.html
    kind = "CUSTOMER_KMS"
    rules = aws.networkfirewall.RuleGroup(
        f"{name}-domains",
        # The capacity is fixed for good: with more domains a group of another name comes first,
        # and the old one goes when the policy has let go of it.
        name=named(spec.placed, name, "domains", str(_capacity(spec)), limit=128),
        type="STATEFUL",
        capacity=_capacity(spec),
        description="Domains that nodes may reach by TLS",
        rule_group={
            "rule_variables": {
                "ip_sets": [{"key": "HOME_NET", "ip_set": {"definitions": [spec.cidr]}}]
            },
            "rules_source": {
                "rules_source_list": {
                    "generated_rules_type": "ALLOWLIST",
                    "target_types": ["TLS_SNI"],
                    "targets": list(spec.egress_domains),
                }
            },
            "stateful_rule_options": {"rule_order": "STRICT_ORDER"},
        },
        encryption_configuration=aws.networkfirewall.RuleGroupEncryptionConfigurationArgs(
            type=kind, key_id=key_id
        ),
        tags=tags,
        opts=child(parent),
    )
    policy = aws.networkfirewall.FirewallPolicy(
        f"{name}-egress",
        name=named(spec.placed, name, "egress", limit=128),
        firewall_policy={
            "stateless_default_actions": ["aws:forward_to_sfe"],
            "stateless_fragment_default_actions": ["aws:forward_to_sfe"],
            "stateful_engine_options": {
                "rule_order": "STRICT_ORDER",
                # What is no longer followed is let go, not let through.
                "stream_exception_policy": "DROP",
            },
            # "established": the handshake has to pass, since the domain is told only after it.
            "stateful_default_actions": ["aws:drop_established", "aws:alert_established"],
            "stateful_rule_group_references": [{"priority": 1, "resource_arn": rules.arn}],
        },
        encryption_configuration=aws.networkfirewall.FirewallPolicyEncryptionConfigurationArgs(
            type=kind, key_id=key_id
        ),
        tags=tags,
        opts=child(parent),
    )
    return aws.networkfirewall.Firewall(
        f"{name}-egress",
        name=named(spec.placed, name, "egress", limit=128),
        vpc_id=vpc_id,
        firewall_policy_arn=policy.arn,
        subnet_mappings=[{"subnet_id": subnets[zone, "firewall"].id} for zone in spec.zones],
        delete_protection=spec.placed.retained,
        encryption_configuration=aws.networkfirewall.FirewallEncryptionConfigurationArgs(
            type=kind, key_id=key_id
        ),
        tags=tags,
        opts=child(parent),
    )


def _capacity(spec: NetworkSpec) -> int:
    """Rules that the group has room for: the next hundred above the number of domains."""
    return 100 * (1 + len(spec.egress_domains) // 100)


def _log(
    parent: pulumi.Resource,
    name: str,
    spec: NetworkSpec,
    firewall: aws.networkfirewall.Firewall,
    log_key_id: pulumi.Input[str],
) -> None:
    group = log_group(
        parent, name, spec.placed, part="egress", days=spec.flow_log_days, key_id=log_key_id
    )
    aws.networkfirewall.LoggingConfiguration(
        f"{name}-egress",
        firewall_arn=firewall.arn,
        logging_configuration={
            "log_destination_configs": [
                {
                    "log_destination_type": "CloudWatchLogs",
                    "log_type": kind,
                    "log_destination": {"logGroup": group.name},
                }
                for kind in ("ALERT", "FLOW")
            ]
        },
        opts=child(parent),
    )


def _endpoint_in(
    firewall: aws.networkfirewall.Firewall, subnet_id: pulumi.Output[str]
) -> pulumi.Output[str]:
    def find(
        subnet: str, statuses: Sequence[aws.networkfirewall.outputs.FirewallFirewallStatus]
    ) -> str:
        for status in statuses:
            for state in status.sync_states or []:
                for attachment in state.attachments or []:
                    if attachment.subnet_id == subnet and attachment.endpoint_id:
                        return attachment.endpoint_id
        raise RuntimeError(f"the firewall has no endpoint in subnet {subnet}")

    # One after the other: together they would come as plain dictionaries.
    return subnet_id.apply(
        lambda subnet: firewall.firewall_statuses.apply(lambda statuses: find(subnet, statuses))
    )


def _zone_outlet(
    parent: pulumi.Resource,
    label: str,
    tags: Mapping[str, str],
    *,
    gateway: aws.ec2.InternetGateway,
    endpoint_id: pulumi.Output[str],
    subnets: Mapping[str, aws.ec2.Subnet],
) -> None:
    address = aws.ec2.Eip(
        f"{label}-outlet", domain="vpc", tags=dict(tags), opts=child(parent, depends_on=[gateway])
    )
    translation = aws.ec2.NatGateway(
        f"{label}-outlet",
        subnet_id=subnets["outlet"].id,
        allocation_id=address.id,
        connectivity_type="public",
        tags=dict(tags),
        opts=child(parent),
    )
    nodes = subnets["nodes"].cidr_block.apply(str)
    ways: dict[str, Sequence[tuple[pulumi.Input[str], dict[str, pulumi.Input[str]]]]] = {
        "firewall": [(_ANYWHERE, {"nat_gateway_id": translation.id})],
        "outlet": [
            (_ANYWHERE, {"gateway_id": gateway.id}),
            # Without this, answers would pass the firewall by, which would then drop the rest.
            (nodes, {"vpc_endpoint_id": endpoint_id}),
        ],
    }
    for role, routes in ways.items():
        table = aws.ec2.RouteTable(
            f"{label}-{role}",
            vpc_id=subnets[role].vpc_id,
            tags={**tags, "Name": f"{label}-{role}"},
            opts=child(parent),
        )
        aws.ec2.RouteTableAssociation(
            f"{label}-{role}",
            route_table_id=table.id,
            subnet_id=subnets[role].id,
            opts=child(parent),
        )
        for position, (destination, target) in enumerate(routes):
            aws.ec2.Route(
                f"{label}-{role}-{position}",
                route_table_id=table.id,
                destination_cidr_block=destination,
                **target,
                opts=child(parent),
            )


def _public_prefix_list(
    parent: pulumi.Resource, name: str, spec: NetworkSpec
) -> pulumi.Output[str]:
    ranges = public_ranges()
    made = aws.ec2.ManagedPrefixList(
        f"{name}-public",
        name=named(spec.placed, name, "public", limit=255),
        address_family="IPv4",
        max_entries=len(ranges),
        entries=[{"cidr": str(each)} for each in ranges],
        tags=spec.placed.tags(name),
        opts=child(parent),
    )
    return made.id
