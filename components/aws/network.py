"""The private network of a foundation on AWS: subnets, and security groups by role.

Rules between security groups name groups only, never ranges of addresses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, after, child, token, written
from falaj.components.aws._egress import make_egress
from falaj.components.aws._endpoints import (
    Place,
    gateway_endpoints,
    interface_endpoints,
    interfaces,
)
from falaj.components.aws._logs import log_group, writer_role
from falaj.components.aws.serving.cloud_init import PORT
from falaj.components.specification.address_plan import CONTROL_PLANE, FIREWALL, OUTLET
from falaj.components.specification.called_ports import CALLED_PORTS
from falaj.components.specification.network import CLUSTER, NetworkArgs, NetworkSpec, check
from falaj.components.specification.network import SERVING as SERVING_ONLY
from falaj.components.specification.property_names import engine_inputs

NODES = "nodes"
ENDPOINTS = "endpoints"
STORAGE = "storage"
SERVING = "serving"

PURPOSES = {
    CONTROL_PLANE: "Control plane of the cluster",
    NODES: "Nodes of the cluster",
    ENDPOINTS: "Private endpoints of AWS services",
    STORAGE: "Shared file systems",
    SERVING: "Inference behind an internal load balancer",
}


@dataclass(frozen=True)
class Flow:
    """Traffic that is allowed from one role to another; answers always are."""

    source: str
    target: str
    first_port: int
    last_port: int
    why: str
    protocol: str = "tcp"

    @property
    def label(self) -> str:
        """Part of the rules' names."""
        if self.protocol == "-1":
            return f"{self.source}-to-{self.target}-all"
        return f"{self.source}-to-{self.target}-{self.first_port}"


#: Ports of Lustre's network, in both directions: https://docs.aws.amazon.com/fsx/latest/LustreGuide/
#: limit-access-security-groups.html
_LUSTRE = ((988, 988), (1018, 1023))

FLOWS = (
    Flow(NODES, CONTROL_PLANE, 443, 443, "Kubernetes API"),
    *(Flow(CONTROL_PLANE, NODES, port, port, why) for port, why in CALLED_PORTS.items()),
    # EFA passes only where all traffic of the group to itself is allowed, both ways:
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html#efa-start-security
    Flow(NODES, NODES, 0, 0, "Pods and the EFA fabric", "-1"),
    Flow(NODES, ENDPOINTS, 443, 443, "AWS services"),
    Flow(SERVING, ENDPOINTS, 443, 443, "AWS services"),
    Flow(NODES, STORAGE, 2049, 2049, "Shared homes"),
    *(Flow(NODES, STORAGE, first, last, "Lustre") for first, last in _LUSTRE),
    *(Flow(STORAGE, NODES, first, last, "Lustre to its clients") for first, last in _LUSTRE),
    *(Flow(STORAGE, STORAGE, first, last, "Lustre servers") for first, last in _LUSTRE),
    Flow(NODES, SERVING, 443, 443, "Inference"),
    Flow(SERVING, SERVING, 443, 443, "Load balancer"),
    Flow(SERVING, SERVING, PORT, PORT, "Load balancer to machines"),
)


def security_groups(
    parent: pulumi.Resource, name: str, vpc_id: pulumi.Input[str], tags: Mapping[str, str]
) -> tuple[dict[str, aws.ec2.SecurityGroup], list[pulumi.Resource]]:
    """A group for each role, with the rules of `FLOWS` and no other, and these rules."""
    groups = {
        role: aws.ec2.SecurityGroup(
            f"{name}-{role}",
            vpc_id=vpc_id,
            description=purpose,
            # A group whose rules another still names can't be deleted; its own go first.
            revoke_rules_on_delete=True,
            tags={**tags, "Name": f"{name}-{role}"},
            opts=child(parent),
        )
        for role, purpose in PURPOSES.items()
    }
    rules = [rule for flow in FLOWS for rule in _allow(parent, name, flow, groups, tags)]
    return groups, rules


def let_call_the_api(
    parent: pulumi.Resource,
    name: str,
    callers: Sequence[str],
    *,
    group: aws.ec2.SecurityGroup,
    tags: Mapping[str, str],
) -> None:
    """Let ranges, or members of other groups, open TLS connections to the control plane."""
    for caller in callers:
        is_group = caller.startswith("sg-")
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-api-caller-{caller.replace('/', '-')}",
            security_group_id=group.id,
            cidr_ipv4=None if is_group else caller,
            referenced_security_group_id=caller if is_group else None,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            description=f"Kubernetes API for {caller}",
            tags=dict(tags),
            opts=child(parent),
        )


def allow_to_prefix_list(
    parent: pulumi.Resource,
    name: str,
    *,
    group: aws.ec2.SecurityGroup,
    prefix_list_id: pulumi.Input[str],
    why: str,
    tags: Mapping[str, str],
) -> None:
    """Let a role open TLS connections to the addresses of a prefix list."""
    aws.vpc.SecurityGroupEgressRule(
        name,
        security_group_id=group.id,
        prefix_list_id=prefix_list_id,
        ip_protocol="tcp",
        from_port=443,
        to_port=443,
        description=why,
        tags=dict(tags),
        opts=child(parent),
    )


def _allow(
    parent: pulumi.Resource,
    name: str,
    flow: Flow,
    groups: Mapping[str, aws.ec2.SecurityGroup],
    tags: Mapping[str, str],
) -> tuple[pulumi.Resource, pulumi.Resource]:
    everything = flow.protocol == "-1"
    # Ports mean nothing where every protocol is allowed; EC2 then wants none.
    first = None if everything else flow.first_port
    last = None if everything else flow.last_port
    out = aws.vpc.SecurityGroupEgressRule(
        f"{name}-{flow.label}-out",
        security_group_id=groups[flow.source].id,
        referenced_security_group_id=groups[flow.target].id,
        ip_protocol=flow.protocol,
        from_port=first,
        to_port=last,
        description=flow.why,
        tags=dict(tags),
        opts=child(parent),
    )
    into = aws.vpc.SecurityGroupIngressRule(
        f"{name}-{flow.label}-in",
        security_group_id=groups[flow.target].id,
        referenced_security_group_id=groups[flow.source].id,
        ip_protocol=flow.protocol,
        from_port=first,
        to_port=last,
        description=flow.why,
        tags=dict(tags),
        opts=child(parent),
    )
    return out, into


__all__ = ["Network", "NetworkArgs"]

#: Roles that have subnets in every zone; those of the way out only where there is one. Where
#: nothing but inference stands there are none for nodes, so that no cluster can be put there.
ROLES = {
    CLUSTER: ("nodes", "endpoints", "storage", "serving"),
    SERVING_ONLY: ("endpoints", "serving"),
}


class Network(pulumi.ComponentResource):
    """A VPC with private subnets only, from which nothing is reached but what is named.

    ::

        network = Network("core", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30", "zones": ["mec1-az1", "mec1-az2"],
            "log_key_id": keys.key_ids["logs"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes a VPC with its default security group and route table emptied; in every zone a subnet
    for nodes, endpoints, storage and serving; security groups by role whose rules name groups
    only, except for ``api_callers``; gateway endpoints (S3, DynamoDB) and interface endpoints
    whose policies admit own principals and own resources; flow logs of all traffic under the key
    for logs. There is no internet gateway, no public address and no SSH.

    With ``egress_domains`` nodes (nothing else) reach these by TLS on port 443, through an AWS
    Network Firewall in every zone that drops all else, NAT gateways with an elastic address each,
    and an internet gateway. A pool of EFA nodes needs all traffic inside the nodes' group, which
    is allowed.

    A cluster's API is reached by its nodes, and by ``api_callers``: ranges of networks that are
    joined to this one, whose routes are theirs to make, or members of other security groups.

    With ``purpose`` ``serving`` the only endpoints are those of the registry, logs, secrets and
    S3, which is all that a `CpuInferenceTier` calls (with ``session_manager`` those of Session
    Manager, too), and there are no subnets for nodes and storage: a cluster or file system is
    refused there.

    An EKS cluster needs two zones. The default is one where only one isn't reported as impaired.
    """

    network_id: pulumi.Output[str]
    """Id of the VPC."""
    node_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnets of nodes by zone id; none where ``purpose`` is ``serving``."""
    endpoint_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnets of private endpoints by zone id."""
    storage_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnets of file systems by zone id; none where ``purpose`` is ``serving``."""
    serving_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnets of inference by zone id."""
    security_group_ids: pulumi.Output[dict[str, str]]
    """Security groups by role: ``control-plane``, ``nodes``, ``endpoints``, ``storage``,
    ``serving``."""
    zones: list[str]
    """Ids of the zones in use, as plain values."""

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("Network"), name, engine_inputs(args), opts)
        self.zones = list(spec.zones)
        account = account_of(self)
        tags = spec.placed.tags(name)
        vpc = self._vpc(name, spec)
        own = ROLES[spec.purpose]
        roles = (*own, FIREWALL, OUTLET) if spec.egress_domains else own
        subnets = {
            (zone, role): self._subnet(name, spec, vpc, zone, role)
            for zone in spec.zones
            for role in roles
        }
        tables = self._route_tables(name, spec, vpc, subnets)
        groups, rules = security_groups(self, name, vpc.id, tags)
        let_call_the_api(self, name, spec.api_callers, group=groups[CONTROL_PLANE], tags=tags)
        place = Place(
            spec.placed.region,
            vpc.id,
            account,
            spec.organization_id,
            spec.purpose,
            interfaces(spec.purpose, sessions=spec.session_manager),
            tags,
        )
        gateways = gateway_endpoints(self, name, place, [each.id for each in tables.values()])
        interface_endpoints(
            self,
            name,
            place,
            [subnets[zone, "endpoints"].id for zone in spec.zones],
            groups["endpoints"].id,
        )
        for service, endpoint in gateways.items():
            for role in (NODES, SERVING):
                allow_to_prefix_list(
                    self,
                    f"{name}-{role}-to-{service}",
                    group=groups[role],
                    prefix_list_id=endpoint.prefix_list_id,
                    why=f"{service} through the gateway endpoint",
                    tags=tags,
                )
        self._flow_log(name, spec, vpc, account, args["log_key_id"])
        if spec.egress_domains:
            egress = make_egress(
                self,
                name,
                spec,
                vpc_id=vpc.id,
                subnets=subnets,
                log_key_id=args["log_key_id"],
            )
            allow_to_prefix_list(
                self,
                f"{name}-nodes-to-domains",
                group=groups[NODES],
                prefix_list_id=egress.public_prefix_list_id,
                why="Named domains, through the firewall",
                tags=tags,
            )
            for zone in spec.zones:
                aws.ec2.Route(
                    f"{name}-{zone}-nodes-out",
                    route_table_id=tables[f"{zone}-nodes"].id,
                    destination_cidr_block="0.0.0.0/0",
                    vpc_endpoint_id=egress.endpoint_ids[zone],
                    opts=child(self),
                )
        self.network_id = vpc.id
        self.node_subnet_ids = _ids(subnets, "nodes")
        self.endpoint_subnet_ids = _ids(subnets, "endpoints")
        self.storage_subnet_ids = _ids(subnets, "storage")
        self.serving_subnet_ids = _ids(subnets, "serving")
        # What stands in a group finds its rules: FSx looks for Lustre's when it makes files.
        self.security_group_ids = pulumi.Output.all(
            **{role: after(group.id, rules) for role, group in groups.items()}
        )
        outputs: dict[str, Any] = {
            "network_id": self.network_id,
            "node_subnet_ids": self.node_subnet_ids,
            "endpoint_subnet_ids": self.endpoint_subnet_ids,
            "storage_subnet_ids": self.storage_subnet_ids,
            "serving_subnet_ids": self.serving_subnet_ids,
            "security_group_ids": self.security_group_ids,
            "zones": self.zones,
        }
        self.register_outputs(written(outputs))

    def _vpc(self, name: str, spec: NetworkSpec) -> aws.ec2.Vpc:
        tags = {**spec.placed.tags(name), "Name": name}
        vpc = aws.ec2.Vpc(
            name,
            cidr_block=spec.cidr,
            # Private names of endpoints, file systems and clusters need both.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            instance_tenancy="default",
            tags=tags,
            opts=child(self),
        )
        # Whatever is started without a group or a route table gets these, and reaches nothing.
        aws.ec2.DefaultSecurityGroup(
            name, vpc_id=vpc.id, ingress=[], egress=[], tags=tags, opts=child(self)
        )
        aws.ec2.DefaultRouteTable(
            name,
            default_route_table_id=vpc.default_route_table_id,
            routes=[],
            tags=tags,
            opts=child(self),
        )
        return vpc

    def _subnet(
        self, name: str, spec: NetworkSpec, vpc: aws.ec2.Vpc, zone: str, role: str
    ) -> aws.ec2.Subnet:
        label = f"{name}-{zone}-{role}"
        # The tag lets the load balancer controller find the subnets of internal balancers:
        # https://docs.aws.amazon.com/eks/latest/userguide/network-load-balancing.html
        internal = {"kubernetes.io/role/internal-elb": "1"} if role == "serving" else {}
        return aws.ec2.Subnet(
            label,
            vpc_id=vpc.id,
            cidr_block=str(spec.plan.subnet(zone, role)),
            availability_zone_id=zone,
            map_public_ip_on_launch=False,
            assign_ipv6_address_on_creation=False,
            tags={**spec.placed.tags(name), **internal, "Name": label, "falaj:role": role},
            opts=child(self),
        )

    def _route_tables(
        self,
        name: str,
        spec: NetworkSpec,
        vpc: aws.ec2.Vpc,
        subnets: Mapping[tuple[str, str], aws.ec2.Subnet],
    ) -> dict[str, aws.ec2.RouteTable]:
        """One for the nodes of each zone, whose way out differs; one for all that has none."""
        roles = ROLES[spec.purpose]
        labels = ["isolated"]
        if NODES in roles:
            labels.extend(f"{zone}-nodes" for zone in spec.zones)
        tables = {
            label: aws.ec2.RouteTable(
                f"{name}-{label}",
                vpc_id=vpc.id,
                tags={**spec.placed.tags(name), "Name": f"{name}-{label}"},
                opts=child(self),
            )
            for label in labels
        }
        for (zone, role), subnet in subnets.items():
            if role in roles:
                table = tables[f"{zone}-nodes" if role == "nodes" else "isolated"]
                aws.ec2.RouteTableAssociation(
                    f"{name}-{zone}-{role}",
                    route_table_id=table.id,
                    subnet_id=subnet.id,
                    opts=child(self),
                )
        return tables

    def _flow_log(
        self,
        name: str,
        spec: NetworkSpec,
        vpc: aws.ec2.Vpc,
        account: pulumi.Output[str],
        log_key_id: pulumi.Input[str],
    ) -> None:
        group = log_group(
            self, name, spec.placed, part="flow", days=spec.flow_log_days, key_id=log_key_id
        )
        service = "vpc-flow-logs.amazonaws.com"
        role = writer_role(
            self,
            name,
            spec.placed,
            service=service,
            group=group,
            account=account,
            # docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html
            says_account=True,
        )
        aws.ec2.FlowLog(
            name,
            vpc_id=vpc.id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=60,
            tags=spec.placed.tags(name),
            opts=child(self),
        )


def _ids(
    subnets: Mapping[tuple[str, str], aws.ec2.Subnet], wanted: str
) -> pulumi.Output[dict[str, str]]:
    found = {zone: subnet.id for (zone, role), subnet in subnets.items() if role == wanted}
    # Of nothing `all` would make a list.
    return pulumi.Output.all(**found) if found else pulumi.Output.from_input(dict[str, str]())
