"""Security groups by role, and the rules between them: groups only, never ranges of addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child

CONTROL_PLANE = "control-plane"
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
    Flow(CONTROL_PLANE, NODES, 443, 443, "Extension API servers"),
    Flow(CONTROL_PLANE, NODES, 4443, 4443, "Metrics server"),
    Flow(CONTROL_PLANE, NODES, 8443, 8443, "Admission webhooks"),
    Flow(CONTROL_PLANE, NODES, 9443, 9443, "Admission webhooks of controllers"),
    Flow(CONTROL_PLANE, NODES, 10250, 10250, "Kubelet"),
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
    Flow(SERVING, SERVING, 8443, 8443, "Load balancer to machines"),
)


def security_groups(
    parent: pulumi.Resource, name: str, vpc_id: pulumi.Input[str], tags: Mapping[str, str]
) -> dict[str, aws.ec2.SecurityGroup]:
    """A group for each role, with the rules of `FLOWS` and no other."""
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
    for flow in FLOWS:
        _allow(parent, name, flow, groups, tags)
    return groups


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
) -> None:
    everything = flow.protocol == "-1"
    # Ports mean nothing where every protocol is allowed; EC2 then wants none.
    first = None if everything else flow.first_port
    last = None if everything else flow.last_port
    aws.vpc.SecurityGroupEgressRule(
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
    aws.vpc.SecurityGroupIngressRule(
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
