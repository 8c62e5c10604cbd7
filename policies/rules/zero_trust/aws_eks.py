"""EKS clusters: a private API server, its audit log, and nobody who administers all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.types import aws

_CLUSTER: Final = aws("eks/cluster")


# The API server is on the internet, for all addresses, unless the cluster says otherwise.
public_endpoint: Final = requirement_rule(
    "zero-trust-aws-eks-public-endpoint",
    "The API server of a cluster is private",
    Severity.HIGH,
    {
        _CLUSTER: (
            Requirement(
                "vpcConfig.endpointPublicAccess",
                ("false",),
                absent="the API server is public by default",
                hint="the API server has to be private",
            ),
        )
    },
    ("cis-eks:5.4.1", "cis-eks:5.4.2", "iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Set vpcConfig.endpointPublicAccess to false and endpointPrivateAccess to true; "
    "administrators come by VPN or Session Manager.",
)


@rule(
    "zero-trust-aws-eks-audit-log",
    "Clusters log API calls, audit and sign-ins",
    Severity.MEDIUM,
    _CLUSTER,
    ("cis-eks:2.1.1", "iso27001:A.8.15", "uae-ia:T3.6.2", "nist-800-207:7", "pdpl:9"),
    "Set enabledClusterLogTypes to api, audit and authenticator at least.",
)
def audit_log(resource: Resource, view: View) -> Iterator[Finding]:
    """Clusters log nothing by default."""
    path = "enabledClusterLogTypes"
    kinds = resource.get(path)
    given = items(kinds)
    if any(map(is_unknown, given)):
        yield indeterminate(path, "what is logged can't be known yet")
        return
    named = {text(each).lower() for each in given}
    if lacking := [each for each in ("api", "audit", "authenticator") if each not in named]:
        yield violation(path, f"the logs {', '.join(lacking)} are off; they have to be on")


# The older config map is invisible to IAM, and whoever made a cluster administers it.
access_mode: Final = requirement_rule(
    "zero-trust-aws-eks-access-mode",
    "Access to a cluster is granted by AWS's API alone",
    Severity.LOW,
    {
        _CLUSTER: (
            Requirement(
                "accessConfig.authenticationMode",
                ("API",),
                absent="access is granted by a config map by default",
            ),
            Requirement(
                "accessConfig.bootstrapClusterCreatorAdminPermissions",
                denied=("true", "1"),
                hint="whoever makes the cluster mustn't administer it for good",
            ),
        )
    },
    ("iso27001:A.5.15", "uae-ia:T5.2.2", "nist-800-207:6"),
    "Set accessConfig.authenticationMode to API and bootstrapClusterCreatorAdminPermissions to "
    "false, and declare aws.eks.AccessEntry for those who need access.",
)


@rule(
    "zero-trust-aws-eks-cluster-admin",
    "Nobody administers a whole cluster for good",
    Severity.MEDIUM,
    aws("eks/accessPolicyAssociation", "eks/accessEntry"),
    ("iso27001:A.8.2", "iso27001:A.5.3", "uae-ia:T3.2.4", "uae-ia:T5.2.2", "nist-800-207:3"),
    "Associate AmazonEKSAdminPolicy or AmazonEKSEditPolicy with the namespaces of the duty.",
)
def cluster_admin(resource: Resource, view: View) -> Iterator[Finding]:
    """Access policies and groups that allow everything everywhere."""
    for path in ("policyArn", "kubernetesGroups"):
        for at, value in select(resource.properties, path):
            if is_unknown(value):
                yield indeterminate(at, "what it grants can't be known yet")
            elif text(value).endswith(("/AmazonEKSClusterAdminPolicy", "system:masters")):
                yield violation(
                    at, f"{text(value).rpartition('/')[2]} allows everything; name less"
                )


@rule(
    "zero-trust-aws-eks-node-shell",
    "Shells of nodes aren't open to the world",
    Severity.HIGH,
    aws("eks/nodeGroup"),
    ("iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Leave remoteAccess out; where it has to be, name sourceSecurityGroupIds.",
)
def node_shell(resource: Resource, view: View) -> Iterator[Finding]:
    """With a key and without sources, port 22 is open to everybody:
    https://docs.aws.amazon.com/eks/latest/APIReference/API_RemoteAccessConfig.html."""
    key = resource.get("remoteAccess.ec2SshKey")
    sources = resource.get("remoteAccess.sourceSecurityGroupIds")
    if (is_unknown(key) or text(key)) and not is_unknown(sources) and not items(sources):
        yield violation(
            "remoteAccess", "port 22 of the nodes is open to the world; name source groups"
        )


RULES: tuple[Rule, ...] = (public_endpoint, audit_log, access_mode, cluster_admin, node_shell)
