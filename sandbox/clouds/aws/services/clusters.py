"""EKS: clusters, who may use them, what is added to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.addresses import cidr
from falaj.sandbox.clouds.aws.documents import json_text
from falaj.sandbox.clouds.aws.draft import Draft, as_map
from falaj.sandbox.clouds.aws.hashes import hexdigits, letters, marked, uuid
from falaj.sandbox.clouds.aws.kinds import AutoName, Kind, Kinds, Reference
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.aws.rules import (
    matches,
)
from falaj.sandbox.clouds.aws.services.trust import trusts
from falaj.sandbox.clouds.model import Problem, World

VERSION: Final = "1.34"
"""What a cluster gets that asks for none; the sandbox's figure, as AWS moves it several times a
year."""


def oidc_issuer(region: str, cluster_id: str) -> str:
    """The URL of a cluster's identity provider."""
    return f"https://oidc.eks.{region}.{dns_suffix(region)}/id/{letters(32, 'oidc', cluster_id)}"


def _cluster(draft: Draft, id: str, world: World) -> Mapping[str, Any]:
    subnet = world.by_id(t.SUBNET, draft.text("vpcConfig.subnetIds[]"))
    digits = hexdigits(32, "endpoint", draft.region, id).upper()
    host = f"{digits}.gr7.{draft.region}.eks.{dns_suffix(draft.region)}"
    given = as_map(draft.inputs.get("vpcConfig"))
    network: dict[str, Any] = {
        "endpointPrivateAccess": False,
        "endpointPublicAccess": True,
        **{key: value for key, value in given.items() if value is not None},
        "clusterSecurityGroupId": "sg-" + marked(17, "cluster", draft.region, id),
        "vpcId": subnet.outputs.get("vpcId", "") if subnet is not None else "",
    }
    access = {
        "authenticationMode": "CONFIG_MAP",
        "bootstrapClusterCreatorAdminPermissions": True,
        **as_map(draft.inputs.get("accessConfig")),
    }
    service = {
        "ipFamily": "ipv4",
        "serviceIpv4Cidr": "172.20.0.0/16",
        **as_map(draft.inputs.get("kubernetesNetworkConfig")),
    }
    return {
        "accessConfig": access,
        "certificateAuthority": {"data": _certificate()},
        "certificateAuthorities": [{"data": _certificate()}],
        "createdAt": "2026-01-01T00:00:00Z",
        "endpoint": f"https://{host}",
        "identities": [{"oidcs": [{"issuer": oidc_issuer(draft.region, id)}]}],
        "kubernetesNetworkConfig": service,
        "platformVersion": "eks.1",
        "status": "ACTIVE",
        "version": draft.get("version") or VERSION,
        "vpcConfig": network,
    }


def _certificate() -> str:
    """Base64 of a text that says what it is; no certificate, as nothing listens."""
    return "U0FOREJPWDogbm8gY2VydGlmaWNhdGUsIG5vdGhpbmcgcmVhbCBpcyBiZWhpbmQgdGhpcw=="


def _endpoint_access(draft: Draft) -> Iterator[Problem]:
    private, public = (
        draft.get("vpcConfig.endpointPrivateAccess"),
        draft.get("vpcConfig.endpointPublicAccess"),
    )
    if private is not True and not _hidden(draft, "endpointPrivateAccess") and public is False:
        yield Problem(
            "vpcConfig.endpointPublicAccess",
            "is false although endpointPrivateAccess isn't true: nobody could reach the cluster; "
            "set one of them to true",
        )
    if public is False and draft.get("vpcConfig.publicAccessCidrs"):
        yield Problem("vpcConfig.publicAccessCidrs", "needs endpointPublicAccess to be true")


def _hidden(draft: Draft, name: str) -> bool:
    path = f"vpcConfig.{name}"
    return draft.given(path) and draft.get(path) is None


def _two_zones(draft: Draft, world: World, _id: str | None) -> Iterator[Problem]:
    """A cluster's subnets are of one VPC and lie in at least two zones (EKS user guide)."""
    found = [world.by_id(t.SUBNET, str(id)) for _, id in draft.each("vpcConfig.subnetIds[]")]
    subnets = [made for made in found if made is not None]
    if not subnets or len(subnets) != len(found):
        return
    vpcs = {str(made.outputs.get("vpcId")) for made in subnets}
    zones = {str(made.outputs.get("availabilityZoneId")) for made in subnets}
    if len(vpcs) > 1:
        yield Problem("vpcConfig.subnetIds", f"are of several VPCs: {', '.join(sorted(vpcs))}")
    if len(zones) < 2:
        yield Problem(
            "vpcConfig.subnetIds",
            f"lie in {', '.join(sorted(zones))} only; EKS needs subnets in two zones at least",
        )


def _addon(draft: Draft, id: str, _world: World) -> Mapping[str, Any]:
    cluster, _, name = id.partition(":")
    return {
        "arn": draft.arn("eks", f"addon/{cluster}/{name}/{uuid('addon', draft.region, id)}"),
        "addonVersion": draft.get("addonVersion") or addon_version(name),
        "createdAt": "2026-01-01T00:00:00Z",
        "modifiedAt": "2026-01-01T00:00:00Z",
    }


def addon_version(name: str) -> str:
    """The version of an add-on that the sandbox offers."""
    return f"v1.{1 + int(hexdigits(2, name), 16) % 30}.0-eksbuild.1"


def _entry_for_policy(draft: Draft, world: World, _id: str | None) -> Iterator[Problem]:
    """A policy is associated with a principal that has an access entry."""
    cluster, principal = draft.text("clusterName"), draft.text("principalArn")
    if (
        cluster
        and principal
        and not any(
            made.outputs.get("principalArn") == principal
            for made in world.find(t.ACCESS_ENTRY, clusterName=cluster)
        )
    ):
        yield Problem(
            "principalArn",
            f"{principal!r} has no access entry in {cluster!r}; create the AccessEntry first "
            "(and let this resource depend on it)",
        )


def _entry_mode(draft: Draft, world: World, _id: str | None) -> Iterator[Problem]:
    """Access entries need the cluster's authentication mode to include the API."""
    for made in world.find(t.CLUSTER, name=draft.text("clusterName")):
        mode = as_map(made.outputs.get("accessConfig")).get("authenticationMode")
        if mode == "CONFIG_MAP":
            yield Problem(
                "clusterName",
                f"the cluster {made.id!r} authenticates by CONFIG_MAP only; set its accessConfig."
                "authenticationMode to API or API_AND_CONFIG_MAP",
            )


def _namespaces(draft: Draft) -> Iterator[Problem]:
    if draft.get("accessScope.type") == "namespace" and not draft.given("accessScope.namespaces"):
        yield Problem("accessScope.namespaces", "is missing; a scope of namespaces names them")


_SINGLE: Final = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
_POD_IDENTITY: Final = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

KINDS: Final[Kinds] = {
    t.CLUSTER: Kind(
        id="{name}",
        arn="eks:{region}:{account}:cluster/{name}",
        name=AutoName(longest=100),
        replaces=("name", "roleArn", "bootstrapSelfManagedAddons", "outpostConfig",
                  "accessConfig.bootstrapClusterCreatorAdminPermissions",
                  "encryptionConfig.provider.keyArn", "encryptionConfig.resources",
                  "kubernetesNetworkConfig.ipFamily", "kubernetesNetworkConfig.serviceIpv4Cidr"),
        rules=(
            matches("name", r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}",
                    "up to 100 letters, digits, '-' and '_', beginning with a letter or digit"),
            matches("version", r"1\.\d\d", "a version such as 1.34"),
            cidr("vpcConfig.publicAccessCidrs[]"),
            cidr("kubernetesNetworkConfig.serviceIpv4Cidr", largest=12, smallest=24),
            _endpoint_access,
        ),
        references=(
            links.role("roleArn"),
            links.subnet("vpcConfig.subnetIds[]"),
            links.security_group("vpcConfig.securityGroupIds[]"),
            Reference("encryptionConfig.provider.keyArn", (t.KEY,), by=("arn",), holds=False),
        ),
        crosschecks=(
            _two_zones, trusts("roleArn", "eks.amazonaws.com", "cluster's role"),
        ),
        unique=("name",),
        computed=_cluster,
        defaults={"bootstrapSelfManagedAddons": True, "enabledClusterLogTypes": []},
    ),
    t.ACCESS_ENTRY: Kind(
        id="{clusterName}:{principalArn}",
        replaces=("clusterName", "principalArn", "type"),
        rules=(
            matches("principalArn", r"arn:aws[a-z-]*:(iam|sts)::\d{12}:.+",
                    "an IAM principal's ARN"),
        ),
        references=(
            links.cluster(),
            Reference("principalArn", (t.ROLE, t.USER), by=("arn",), holds=False, regional=False),
        ),
        crosschecks=(_entry_mode,),
        computed=lambda draft, id, _world: {
            "accessEntryArn": draft.arn(
                "eks", f"access-entry/{id.split(':', 1)[0]}/role/000000000000/"
                f"{id.rsplit('/', 1)[-1]}/{uuid('entry', draft.region, id)}"
            ),
            "createdAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
        },
        defaults={"type": "STANDARD"},
    ),
    _SINGLE: Kind(
        id="{clusterName}#{principalArn}#{policyArn}",
        replaces=("accessScope", "clusterName", "policyArn", "principalArn"),
        rules=(
            matches("policyArn", r"arn:aws[a-z-]*:eks::aws:cluster-access-policy/\w+",
                    "such as arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"),
            _namespaces,
        ),
        references=(links.cluster(),),
        crosschecks=(_entry_for_policy,),
        computed=lambda _draft, _id, _world: {
            "associatedAt": "2026-01-01T00:00:00Z", "modifiedAt": "2026-01-01T00:00:00Z"
        },
    ),
    t.ADDON: Kind(
        id="{clusterName}:{addonName}",
        replaces=("addonName", "clusterName"),
        rules=(
            json_text("configurationValues"),
            matches("addonName", r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", "an add-on's name"),
        ),
        references=(links.cluster(), links.role("serviceAccountRoleArn")),
        computed=_addon,
    ),
    _POD_IDENTITY: Kind(
        id="a-{letters17}",
        replaces=("clusterName", "namespace", "serviceAccount"),
        references=(links.cluster(), links.role()),
        crosschecks=(trusts("roleArn", "pods.eks.amazonaws.com", "pods' role"),),
        unique=("clusterName", "namespace", "serviceAccount"),
        computed=lambda draft, id, _world: {
            "associationId": id,
            "associationArn": draft.arn(
                "eks", f"podidentityassociation/{draft.text('clusterName')}/{id}"
            ),
        },
    ),
    "aws:eks/identityProviderConfig:IdentityProviderConfig": Kind(
        id=lambda draft: (
            f"{draft.text('clusterName')}:{draft.text('oidc.identityProviderConfigName')}"
        ),
        replaces=("clusterName", "oidc"),
        references=(links.cluster(),),
    ),
}  # fmt: skip
