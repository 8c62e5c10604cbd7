"""Managed clusters: private API servers, records, and nobody who administers all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.addresses import are_open
from falaj.policies.reading.types import aws, azure

# EKS clusters: a private API server, its audit log, and nobody who administers all of it.

_AWS_CLUSTER: Final = aws("eks/cluster")


# The API server is on the internet, for all addresses, unless the cluster says otherwise.
public_endpoint: Final = requirement_rule(
    "zero-trust-aws-eks-public-endpoint",
    "The API server of a cluster is private",
    Severity.HIGH,
    {
        _AWS_CLUSTER: (
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
    _AWS_CLUSTER,
    ("cis-eks:2.1.1", "iso27001:A.8.15", "uae-ia:T3.6.2", "nist-800-207:7", "pdpl:9"),
    "Set enabledClusterLogTypes to api, audit and authenticator at least.",
)
def audit_log(resource: Resource, context: Context) -> Iterator[Finding]:
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
        _AWS_CLUSTER: (
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
def cluster_admin(resource: Resource, context: Context) -> Iterator[Finding]:
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
def node_shell(resource: Resource, context: Context) -> Iterator[Finding]:
    """With a key and without sources, port 22 is open to everybody:
    https://docs.aws.amazon.com/eks/latest/APIReference/API_RemoteAccessConfig.html."""
    key = resource.get("remoteAccess.ec2SshKey")
    sources = resource.get("remoteAccess.sourceSecurityGroupIds")
    if (is_unknown(key) or text(key)) and not is_unknown(sources) and not items(sources):
        yield violation(
            "remoteAccess", "port 22 of the nodes is open to the world; name source groups"
        )


# AKS: a private API server, people by name, pods kept apart, machines that nobody logs in to.

_AZURE_CLUSTER: Final = azure("containerservice:ManagedCluster")
_POOL: Final = azure("containerservice:AgentPool")
_API: Final = "learn.microsoft.com/azure/aks/private-clusters"
_ACCESS: Final = "apiServerAccessProfile"
_TRUE: Final = ("true",)


def _is_automatic(resource: Resource) -> bool:
    """Of AKS Automatic, which sets up identities, roles and network policies by itself:
    https://learn.microsoft.com/azure/aks/intro-aks-automatic."""
    return scalar(resource.get("sku.name")) == "automatic"


_private_api = requirement_rule(
    "zero-trust-azure-aks-private-api",
    "API servers of AKS have no public endpoint",
    Severity.HIGH,
    {_AZURE_CLUSTER: (Requirement(f"{_ACCESS}.enablePrivateCluster", _TRUE, "false", _API),)},
    ("cis-aks:5.4.1", "cis-aks:5.4.2", "uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2"),
    "Set apiServerAccessProfile.enablePrivateCluster to true, which only a new cluster can have.",
)

_public_name = requirement_rule(
    "zero-trust-azure-aks-public-name",
    "Private API servers of AKS have no name in public DNS",
    Severity.LOW,
    {
        _AZURE_CLUSTER: (
            Requirement(f"{_ACCESS}.enablePrivateClusterPublicFQDN", ("false",)),
            Requirement("publicNetworkAccess", ("Disabled", "SecuredByPerimeter")),
        )
    },
    ("cis-aks:5.4.2", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Set apiServerAccessProfile.enablePrivateClusterPublicFQDN to false and publicNetworkAccess "
    "to Disabled.",
)


@rule(
    "zero-trust-azure-aks-authorized-ranges",
    "A public API server of AKS answers named ranges only",
    Severity.CRITICAL,
    _AZURE_CLUSTER,
    ("cis-aks:5.4.1", "uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2"),
    "Make the cluster private; where that can't be, list the ranges of administrators in "
    "apiServerAccessProfile.authorizedIPRanges.",
)
def authorized_ranges(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without ranges everybody may talk to the API server:
    https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges."""
    private = resource.get(f"{_ACCESS}.enablePrivateCluster")
    if is_true(private) or scalar(resource.get("publicNetworkAccess")) == "disabled":
        return
    path = f"{_ACCESS}.authorizedIPRanges"
    ranges = resource.get(path)
    given = items(ranges)
    known = [each for each in given if not is_unknown(each)]
    if are_open(known):
        where = next((i for i, each in enumerate(given) if are_open([each])), 0)
        yield violation(f"{path}[{where}]", "the API server answers the whole Internet")
    elif len(known) < len(given) or is_unknown(private):
        yield indeterminate(path, "who may reach the API server can't be seen")
    elif not given:
        yield violation(path, "no range is given, so the API server answers the whole Internet")


_local_accounts = requirement_rule(
    "zero-trust-azure-aks-local-accounts",
    "Clusters of AKS have no local accounts",
    Severity.HIGH,
    {
        _AZURE_CLUSTER: (
            Requirement("disableLocalAccounts", _TRUE, "false", "local accounts are on"),
        )
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Set disableLocalAccounts to true: the accounts are certificates that nobody can take back.",
    absence_is_fine=_is_automatic,
)

_entra = requirement_rule(
    "zero-trust-azure-aks-entra-id",
    "Who may use a cluster of AKS is decided by Entra ID and Azure's roles",
    Severity.HIGH,
    {
        _AZURE_CLUSTER: (
            Requirement("aadProfile.managed", _TRUE, "false"),
            Requirement("aadProfile.enableAzureRBAC", _TRUE, "false"),
        )
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.15", "iso27001:A.5.16", "nist-800-207:6"),
    "Set aadProfile.managed and aadProfile.enableAzureRBAC to true, and grant roles at the "
    "cluster's scope.",
    absence_is_fine=_is_automatic,
)

_rbac = requirement_rule(
    "zero-trust-azure-aks-rbac",
    "Clusters of AKS check what each account may do",
    Severity.HIGH,
    {
        _AZURE_CLUSTER: (
            Requirement("enableRBAC", _TRUE, "not promised", "the API documents none"),
        )
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.15", "iso27001:A.8.3", "nist-800-207:6"),
    "Set enableRBAC to true, which only a new cluster can have.",
    absence_is_fine=_is_automatic,
)

_network_policy = requirement_rule(
    "zero-trust-azure-aks-network-policy",
    "Clusters of AKS can keep pods apart",
    Severity.MEDIUM,
    {
        _AZURE_CLUSTER: (
            Requirement("networkProfile.networkPolicy", ("azure", "calico", "cilium"), "none"),
        )
    },
    ("cis-aks:4.4.2", "cis-aks:5.4.4", "uae-ia:T4.5.3", "iso27001:A.8.22", "nist-800-207:2"),
    "Set networkProfile.networkPolicy to cilium (with networkDataplane cilium), azure or calico.",
    absence_is_fine=_is_automatic,
)

_run_command = requirement_rule(
    "zero-trust-azure-aks-run-command",
    "Nobody runs commands in a cluster of AKS past its API server",
    Severity.MEDIUM,
    {_AZURE_CLUSTER: (Requirement(f"{_ACCESS}.disableRunCommand", _TRUE, "false"),)},
    ("uae-ia:T5.2.2", "iso27001:A.8.2", "nist-800-207:6"),
    "Set apiServerAccessProfile.disableRunCommand to true: the command enters private clusters "
    "from anywhere (https://learn.microsoft.com/azure/aks/access-private-cluster).",
)

_node_addresses = requirement_rule(
    "zero-trust-azure-aks-node-addresses",
    "Nodes of AKS have no public addresses",
    Severity.HIGH,
    {
        _AZURE_CLUSTER: (Requirement("enableNodePublicIP", ("false",), each="agentPoolProfiles"),),
        _POOL: (Requirement("enableNodePublicIP", ("false",)),),
    },
    ("cis-aks:5.4.3", "uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2"),
    "Leave enableNodePublicIP out, or set it to false.",
)

_node_logins = requirement_rule(
    "zero-trust-azure-aks-node-logins",
    "Nobody logs in to nodes of AKS",
    Severity.LOW,
    {
        _AZURE_CLUSTER: (
            Requirement(
                "securityProfile.sshAccess", ("Disabled", "EntraId"), "LocalUser",
                each="agentPoolProfiles",
            ),
        ),
        _POOL: (Requirement("securityProfile.sshAccess", ("Disabled", "EntraId"), "LocalUser"),),
    },
    ("uae-ia:T5.2.2", "iso27001:A.8.2", "nist-800-207:6"),
    "Set securityProfile.sshAccess to Disabled (https://learn.microsoft.com/azure/aks/"
    "manage-ssh-node-access).",
)  # fmt: skip

_workload_identity = requirement_rule(
    "zero-trust-azure-aks-workload-identity",
    "Pods of AKS sign in by themselves, without secrets",
    Severity.MEDIUM,
    {
        _AZURE_CLUSTER: (
            Requirement("oidcIssuerProfile.enabled", _TRUE, "false"),
            Requirement("securityProfile.workloadIdentity.enabled", _TRUE, "false"),
        )
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Set oidcIssuerProfile.enabled and securityProfile.workloadIdentity.enabled to true.",
    absence_is_fine=_is_automatic,
)

#: Add-ons that open a cluster: an ingress with a public address for development, and the old
#: dashboard. https://learn.microsoft.com/azure/aks/http-application-routing
_OPENING: Final = ("httpapplicationrouting", "kubedashboard")


@rule(
    "zero-trust-azure-aks-opening-addons",
    "Clusters of AKS have no add-on that opens them",
    Severity.HIGH,
    _AZURE_CLUSTER,
    ("uae-ia:T4.5.3", "iso27001:A.8.9", "nist-800-207:2"),
    "Remove the add-on; use an internal ingress and the tools that sign in with Entra ID.",
)
def opening_addons(resource: Resource, context: Context) -> Iterator[Finding]:
    """Their names are written in any letter case. The ingress of the routing add-on is public
    unless it is said to be internal: https://learn.microsoft.com/azure/aks/create-nginx-ingress-
    private-controller. Gateways of the mesh say what they are."""
    routing = "ingressProfile.webAppRouting"
    nginx = f"{routing}.nginx.defaultIngressControllerType"
    if is_true(resource.get(f"{routing}.enabled")):
        kind = resource.get(nginx)
        if is_unknown(kind):
            yield indeterminate(nginx, "whether the ingress is internal can't be seen")
        elif scalar(kind) not in {"internal", "none"}:
            yield violation(nginx, "the ingress has a public address; it must be Internal or None")
    gateways = "serviceMeshProfile.istio.components.ingressGateways"
    for where, gateway in select(resource.properties, gateways):
        if scalar(get(gateway, "mode")) == "external" and not is_false(get(gateway, "enabled")):
            yield violation(f"{where}.mode", "the gateway of the mesh has a public address")
    addons = resource.get("addonProfiles")
    if is_unknown(addons):
        yield indeterminate("addonProfiles", "the add-ons can't be seen")
    elif isinstance(addons, Mapping):
        for name in cast("Mapping[object, object]", addons):
            if str(name).lower() in _OPENING:
                enabled = resource.get(f"addonProfiles.{name}.enabled")
                path = f"addonProfiles.{name}.enabled"
                if is_true(enabled):
                    yield violation(path, f"the add-on {name} opens the cluster")
                elif is_unknown(enabled):
                    yield indeterminate(path, f"whether the add-on {name} is on can't be seen")


@rule(
    "zero-trust-azure-aks-identity",
    "Clusters of AKS act as a managed identity",
    Severity.MEDIUM,
    _AZURE_CLUSTER,
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Give the cluster an identity of type UserAssigned or SystemAssigned and remove "
    "servicePrincipalProfile, whose secret is known to whoever has read it once.",
)
def identity(resource: Resource, context: Context) -> Iterator[Finding]:
    """A service principal's client id may be ``msi``, which stands for a managed identity."""
    kind, client = resource.get("identity.type"), resource.get("servicePrincipalProfile.clientId")
    if scalar(kind) in {"systemassigned", "userassigned"}:
        return
    if is_unknown(kind):
        yield indeterminate("identity.type", "whether it has a managed identity can't be seen")
    elif scalar(client) == "msi":
        return
    elif client is ABSENT:
        yield violation("identity.type", "no managed identity is given")
    else:
        path = "servicePrincipalProfile.clientId"
        yield violation(path, "it acts as a service principal with a secret")


RULES: tuple[Rule, ...] = (
    public_endpoint,
    audit_log,
    access_mode,
    cluster_admin,
    node_shell,
    _private_api,
    _public_name,
    authorized_ranges,
    _local_accounts,
    _entra,
    _rbac,
    _network_policy,
    _run_command,
    _node_addresses,
    _node_logins,
    _workload_identity,
    opening_addons,
    identity,
)
