"""EKS: clusters, add-ons, access, node groups and Fargate profiles."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.nearest import nearest
from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import json_text
from falaj.sandbox.clouds.aws.key_policies import Caller, Need, deployer, usable
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.machine_types import instruction_set, of_image
from falaj.sandbox.clouds.aws.naming import arn_of, hexdigits, letters, marked, uuid
from falaj.sandbox.clouds.aws.regions import (
    cidr,
    dns_suffix,
    inside,
    network,
    region_of,
    sold,
    sold_in_subnets,
)
from falaj.sandbox.clouds.aws.services.compute import disks_of_groups, launch_templates
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_map
from falaj.sandbox.clouds.kinds import (
    Reference,
    at_most,
    between,
    listed,
    matches,
    minor_version,
    not_together,
    sized,
)
from falaj.sandbox.clouds.kinds import texts as texts_at
from falaj.sandbox.clouds.model import Problem

VERSION: Final = "1.34"
"""What a cluster gets that asks for none; the sandbox's figure, as AWS moves it several times a
year."""


#: Minor versions that EKS makes clusters of: docs.aws.amazon.com/eks/latest/userguide/
#: kubernetes-versions.html (November 2026: extended support ends 26 months after a version came,
#: and one comes about every four months; the newest is left open by two).
_OLDEST_MINOR: Final = 30
_NEWEST_MINOR: Final = 38


#: docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html (botocore 1.44.5 names
#: none of them; November 2026).
_ACCESS_POLICIES: Final = (
    "AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSClusterAdminPolicy",
    "AmazonEKSEditPolicy", "AmazonEKSViewPolicy", "AmazonEKSSecretReaderPolicy",
)  # fmt: skip


def _access_policy(path: str, arn: str) -> Iterator[Problem]:
    """Policies for people; those for machines and for EKS's own parts are AWS's to give."""
    name = arn.rpartition("/")[2]
    near = nearest(name, _ACCESS_POLICIES, alike=0.8)
    if name not in _ACCESS_POLICIES and near:
        yield Problem(path, f"{name!r} is no access policy of EKS; did you mean {near[0]!r}?")


def _machines_entry(inputs: Inputs) -> Iterator[Problem]:
    """Entries of machines bring their own groups ("CreateAccessEntry", type)."""
    kind = inputs.get("type")
    if isinstance(kind, str) and kind != "STANDARD":
        for path in ("kubernetesGroups", "userName"):
            if inputs.is_given(path):
                yield Problem(path, f"can't be given for the type {kind!r}; remove it")


def _own_id(region: str, cluster_id: str) -> str:
    """The id that a cluster's endpoint and its identity provider have in their addresses.

    Source: docs.aws.amazon.com/eks/latest/userguide/enable-iam-roles-for-service-accounts.html.
    """
    return hexdigits(32, "endpoint", region, cluster_id).upper()


def oidc_issuer(region: str, cluster_id: str) -> str:
    """The URL of a cluster's identity provider."""
    return f"https://oidc.eks.{region}.{dns_suffix(region)}/id/{_own_id(region, cluster_id)}"


def _cluster(resource: Resource) -> Mapping[str, Any]:
    subnet = resource.world.by_id(t.SUBNET, resource.string("vpcConfig.subnetIds[]"))
    own = _own_id(region_of(resource), resource.id)
    host = f"{own}.gr7.{region_of(resource)}.eks.{dns_suffix(region_of(resource))}"
    given = as_map(resource.values.get("vpcConfig"))
    network: dict[str, Any] = {
        "endpointPrivateAccess": False,
        "endpointPublicAccess": True,
        **{key: value for key, value in given.items() if value is not None},
        "clusterSecurityGroupId": "sg-" + marked(17, "cluster", region_of(resource), resource.id),
        "vpcId": subnet.outputs.get("vpcId", "") if subnet is not None else "",
    }
    access = {
        "authenticationMode": "CONFIG_MAP",
        "bootstrapClusterCreatorAdminPermissions": True,
        **as_map(resource.values.get("accessConfig")),
    }
    service = {
        "ipFamily": "ipv4",
        "serviceIpv4Cidr": "172.20.0.0/16",
        **as_map(resource.values.get("kubernetesNetworkConfig")),
    }
    return {
        "accessConfig": access,
        "certificateAuthority": {"data": _certificate()},
        "certificateAuthorities": [{"data": _certificate()}],
        # Of clusters on Outposts alone (DescribeCluster).
        "clusterId": "",
        "createdAt": "2026-01-01T00:00:00Z",
        "endpoint": f"https://{host}",
        "identities": [{"oidcs": [{"issuer": oidc_issuer(region_of(resource), resource.id)}]}],
        "kubernetesNetworkConfig": service,
        "platformVersion": "eks.1",
        "status": "ACTIVE",
        "version": resource.get("version") or VERSION,
        "vpcConfig": network,
    }


def _certificate() -> str:
    """Base64 of a text that says what it is; no certificate, as nothing listens."""
    return "U0FOREJPWDogbm8gY2VydGlmaWNhdGUsIG5vdGhpbmcgcmVhbCBpcyBiZWhpbmQgdGhpcw=="


def _endpoint_access(inputs: Inputs) -> Iterator[Problem]:
    private, public = (
        inputs.get("vpcConfig.endpointPrivateAccess"),
        inputs.get("vpcConfig.endpointPublicAccess"),
    )
    if private is not True and not _hidden(inputs, "endpointPrivateAccess") and public is False:
        yield Problem(
            "vpcConfig.endpointPublicAccess",
            "is false although endpointPrivateAccess isn't true: nobody could reach the cluster; "
            "set one of them to true",
        )
    if public is False and inputs.get("vpcConfig.publicAccessCidrs"):
        yield Problem("vpcConfig.publicAccessCidrs", "needs endpointPublicAccess to be true")


def _hidden(inputs: Inputs, name: str) -> bool:
    path = f"vpcConfig.{name}"
    return inputs.is_given(path) and inputs.get(path) is None


def _two_zones(resource: Resource) -> Iterator[Problem]:
    """A cluster's subnets are of one VPC and lie in at least two zones (EKS user guide)."""
    found = [
        resource.world.by_id(t.SUBNET, str(subnet_id))
        for _, subnet_id in resource.each("vpcConfig.subnetIds[]")
    ]
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


#: "Networking requirements for VPC and subnets", Amazon EKS user guide: services' addresses are
#: private ones, and not the network's.
_PRIVATE: Final = tuple(
    ipaddress.ip_network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
_SERVICES: Final = "kubernetesNetworkConfig.serviceIpv4Cidr"


def _private_services(inputs: Inputs) -> Iterator[Problem]:
    asked = network(inputs.get(_SERVICES))
    if asked is not None and not any(inside(asked, each) for each in _PRIVATE):
        allowed = ", ".join(map(str, _PRIVATE))
        yield Problem(_SERVICES, f"{asked} isn't private; allowed: networks within {allowed}")


def _services_apart(resource: Resource) -> Iterator[Problem]:
    asked = network(resource.get(_SERVICES))
    for _, subnet_id in resource.each("vpcConfig.subnetIds[]"):
        subnet = resource.world.by_id(t.SUBNET, str(subnet_id))
        vpc = resource.world.by_id(t.VPC, str(subnet.outputs.get("vpcId"))) if subnet else None
        own = network(vpc.outputs.get("cidrBlock")) if vpc else None
        if asked is not None and own is not None and asked.overlaps(own):
            yield Problem(
                _SERVICES, f"{asked} overlaps {own}, the addresses of the VPC; choose others"
            )
            return


def _addon(resource: Resource) -> Mapping[str, Any]:
    cluster, _, name = resource.id.partition(":")
    return {
        "arn": arn_of(
            resource,
            "eks",
            f"addon/{cluster}/{name}/{uuid('addon', region_of(resource), resource.id)}",
        ),
        "addonVersion": resource.get("addonVersion") or addon_version(name),
        "createdAt": "2026-01-01T00:00:00Z",
        "modifiedAt": "2026-01-01T00:00:00Z",
    }


def _known_addon(inputs: Inputs) -> Iterator[Problem]:
    """EKS has the add-on; a seller's own, whose name has an underscore, isn't known here."""
    name = inputs.string("addonName")
    if name and "_" not in name:
        yield from listed("addonName", name, t.load_table("eks_addons")["addOns"])


def addon_version(name: str) -> str:
    """The version of an add-on that the sandbox offers."""
    return f"v1.{1 + int(hexdigits(2, name), 16) % 30}.0-eksbuild.1"


def _entry_for_policy(resource: Resource) -> Iterator[Problem]:
    """A policy is associated with a principal that has an access entry."""
    cluster, principal = (
        resource.string("clusterName"),
        resource.string("principalArn"),
    )
    if (
        cluster
        and principal
        and not any(
            made.outputs.get("principalArn") == principal
            for made in resource.world.find(t.ACCESS_ENTRY, clusterName=cluster)
        )
    ):
        yield Problem(
            "principalArn",
            f"{principal!r} has no access entry in {cluster!r}; create the AccessEntry first "
            "(and let this resource depend on it)",
        )


def _entry_mode(resource: Resource) -> Iterator[Problem]:
    """Access entries need the cluster's authentication mode to include the API."""
    for made in resource.world.find(t.CLUSTER, name=resource.string("clusterName")):
        mode = as_map(made.outputs.get("accessConfig")).get("authenticationMode")
        if mode == "CONFIG_MAP":
            yield Problem(
                "clusterName",
                f"the cluster {made.id!r} authenticates by CONFIG_MAP only; set its accessConfig."
                "authenticationMode to API or API_AND_CONFIG_MAP",
            )


def _namespaces(inputs: Inputs) -> Iterator[Problem]:
    if inputs.get("accessScope.type") == "namespace" and not inputs.is_given(
        "accessScope.namespaces"
    ):
        yield Problem("accessScope.namespaces", "is missing; a scope of namespaces names them")


def _maker(resource: Resource) -> Caller:
    """Whoever makes a cluster, in whose name EKS makes its grant on the key of secrets.

    The condition isn't supported there, and conditions on what is missing never hold:
    https://docs.aws.amazon.com/eks/latest/userguide/enable-kms.html
    """
    del resource
    return deployer({"kms:GrantIsForAWSResource": None})


_SINGLE: Final = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
_POD_IDENTITY: Final = "aws:eks/podIdentityAssociation:PodIdentityAssociation"


_NODE_NAME: Final = r"[0-9A-Za-z][A-Za-z0-9_-]{0,62}"


def _template_conflicts(resource: Resource) -> Iterator[Problem]:
    """What stands in the launch template can't be asked for again by the node group."""
    for made in launch_templates(resource, "launchTemplate", resource.world):
        both = (("instanceTypes", "instanceType"), ("amiType", "imageId"))
        for own, theirs in both:
            if resource.is_given(own) and made.outputs.get(theirs) not in (None, ""):
                if own == "amiType" and resource.get(own) == "CUSTOM":
                    continue
                yield Problem(
                    own, f"is given here and as {theirs} in the launch template {made.id}; "
                    "leave one of them out",
                )  # fmt: skip
        if made.outputs.get("iamInstanceProfile"):
            yield Problem(
                "launchTemplate", f"{made.id} has an instance profile; a node group brings its own"
            )


def _same_instruction_set(resource: Resource) -> Iterator[Problem]:
    """Machines and image are of one instruction set ("CreateNodegroup", amiType)."""
    image = resource.string("amiType")
    machines = [(path, str(name)) for path, name in resource.each("instanceTypes[]")]
    for made in launch_templates(resource, "launchTemplate", resource.world):
        machines.append(("launchTemplate", str(made.outputs.get("instanceType") or "")))
    for path, machine in machines:
        own = instruction_set(machine)
        if image and of_image(image) and own and own != of_image(image):
            yield Problem(
                path if path != "launchTemplate" else "amiType",
                f"{image} is an image for {of_image(image)}, and {machine} is a machine of {own}; "
                f"choose an image for {own}, or another machine",
            )


def _placed_in_one_zone(resource: Resource) -> Iterator[Problem]:
    """A cluster placement group lies in one zone (Amazon EC2 user guide, "Placement groups")."""
    for made in launch_templates(resource, "launchTemplate", resource.world):
        group = Inputs(made.outputs).string("placement.groupName")
        clustered = any(
            each.outputs.get("strategy") == "cluster"
            for each in resource.world.find(t.PLACEMENT_GROUP, name=group)
        )
        zones = {
            str(subnet.outputs.get("availabilityZoneId"))
            for _, subnet_id in resource.each("subnetIds[]")
            if (subnet := resource.world.by_id(t.SUBNET, str(subnet_id))) is not None
        }
        if group and clustered and len(zones) > 1:
            yield Problem(
                "subnetIds",
                f"lie in {', '.join(sorted(zones))}, and the placement group {group!r} of the "
                "strategy 'cluster' in one zone; give subnets of one zone",
            )


def _sold_in_zones(resource: Resource) -> Iterator[Problem]:
    subnets = [str(subnet_id) for _, subnet_id in resource.each("subnetIds[]")]
    for path, machine in resource.each("instanceTypes[]"):
        if isinstance(machine, str):
            yield from sold_in_subnets(path, machine, subnets, resource.world)
    for made in launch_templates(resource, "launchTemplate", resource.world):
        machine = made.outputs.get("instanceType")
        if isinstance(machine, str):
            yield from sold_in_subnets("launchTemplate", machine, subnets, resource.world)


def _node_group(resource: Resource) -> Mapping[str, Any]:
    cluster, _, name = resource.id.partition(":")
    own = uuid("node group", region_of(resource), resource.id)
    scaling = f"eks-{name}-{own}"
    return {
        "arn": arn_of(resource, "eks", f"nodegroup/{cluster}/{name}/{own}"),
        "resources": [
            {"autoscalingGroups": [{"name": scaling}], "remoteAccessSecurityGroupId": ""}
        ],
        "status": "ACTIVE",
        "version": resource.get("version") or VERSION,
        "releaseVersion": resource.get("releaseVersion") or f"{VERSION}.0-20260101",
        "amiType": resource.get("amiType") or "AL2023_x86_64_STANDARD",
        "capacityType": resource.get("capacityType") or "ON_DEMAND",
    }


def _capacity_block(inputs: Inputs) -> Iterator[Problem]:
    if inputs.get("capacityType") == "CAPACITY_BLOCK" and not inputs.is_given("launchTemplate"):
        yield Problem(
            "launchTemplate",
            "is missing; CAPACITY_BLOCK needs a launch template that names the reservation and "
            "the market type 'capacity-block'",
        )
    if inputs.is_given("launchTemplate"):
        for path in ("diskSize", "remoteAccess"):
            if inputs.is_given(path):
                yield Problem(path, "can't go with launchTemplate; put it into the template")


KINDS: Final[AwsKinds] = {
    t.CLUSTER: AwsKind(
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
            minor_version("version", _OLDEST_MINOR, _NEWEST_MINOR, "EKS"),
            cidr("vpcConfig.publicAccessCidrs[]"),
            cidr(_SERVICES, largest=12, smallest=24),
            _private_services,
            _endpoint_access,
        ),
        references=(
            relations.role("roleArn"),
            relations.subnet("vpcConfig.subnetIds[]"),
            relations.security_group("vpcConfig.securityGroupIds[]"),
            Reference("encryptionConfig.provider.keyArn", (t.KEY,), by=("arn",), holds=False),
        ),
        crosschecks=(
            _two_zones, _services_apart,
            relations.trusts("roleArn", "eks.amazonaws.com", "cluster's role"),
            usable(
                "encryptionConfig.provider.keyArn",
                _maker,
                Need(
                    ("kms:CreateGrant", "kms:DescribeKey"),
                    "EKS answers InvalidParameterException: Access denied to KMS key; allow both "
                    "to the account's principals without kms:GrantIsForAWSResource, which is "
                    "missing when EKS makes its grant",
                ),
            ),
        ),
        unique=("name",),
        computed=_cluster,
        defaults={"bootstrapSelfManagedAddons": True, "enabledClusterLogTypes": []},
    ),
    t.ACCESS_ENTRY: AwsKind(
        id="{clusterName}:{principalArn}",
        replaces=("clusterName", "principalArn", "type"),
        rules=(
            matches("principalArn", r"arn:aws[a-z-]*:(iam|sts)::\d{12}:.+",
                    "an IAM principal's ARN"),
            _machines_entry,
        ),
        references=(
            relations.cluster(),
            Reference("principalArn", (t.ROLE, t.USER), by=("arn",), holds=False, regional=False),
        ),
        crosschecks=(_entry_mode,),
        computed=lambda resource: {
            "accessEntryArn": arn_of(
                resource, "eks",
                f"access-entry/{resource.id.split(':', 1)[0]}/role/000000000000/"
                f"{resource.id.rsplit('/', 1)[-1]}/"
                f"{uuid('entry', region_of(resource), resource.id)}",
            ),
            "createdAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
        },
        defaults={"type": "STANDARD"},
    ),
    _SINGLE: AwsKind(
        id="{clusterName}#{principalArn}#{policyArn}",
        replaces=("accessScope", "clusterName", "policyArn", "principalArn"),
        rules=(
            matches("policyArn", r"arn:aws[a-z-]*:eks::aws:cluster-access-policy/\w+",
                    "such as arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"),
            texts_at("policyArn", _access_policy),
            _namespaces,
        ),
        references=(relations.cluster(),),
        crosschecks=(_entry_for_policy,),
        computed=lambda _: {
            "associatedAt": "2026-01-01T00:00:00Z", "modifiedAt": "2026-01-01T00:00:00Z"
        },
    ),
    t.ADDON: AwsKind(
        id="{clusterName}:{addonName}",
        replaces=("addonName", "clusterName"),
        rules=(
            json_text("configurationValues"),
            matches("addonName", r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", "an add-on's name"),
            _known_addon,
        ),
        references=(relations.cluster(), relations.role("serviceAccountRoleArn")),
        computed=_addon,
    ),
    _POD_IDENTITY: AwsKind(
        # As in the examples of CreatePodIdentityAssociation: a-9njjin9gfghecgocd.
        id=lambda inputs: "a-" + letters(17, *(
            inputs.string(each) for each in ("clusterName", "namespace", "serviceAccount")
        )).lower(),
        replaces=("clusterName", "namespace", "serviceAccount"),
        references=(relations.cluster(), relations.role()),
        crosschecks=(
            # docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
            relations.trusts("roleArn", "pods.eks.amazonaws.com", "pods' role",
                   ("sts:AssumeRole", "sts:TagSession")),
        ),
        unique=("clusterName", "namespace", "serviceAccount"),
        computed=lambda resource: {
            "associationId": resource.id,
            # What a role of another account asks for, where one is targeted.
            "externalId": uuid(resource.id) if resource.is_given("targetRoleArn") else "",
            "associationArn": arn_of(
                resource, "eks",
                f"podidentityassociation/{resource.string('clusterName')}/{resource.id}",
            ),
        },
    ),
    "aws:eks/identityProviderConfig:IdentityProviderConfig": AwsKind(
        id=lambda inputs: (
            f"{inputs.string('clusterName')}:{inputs.string('oidc.identityProviderConfigName')}"
        ),
        replaces=("clusterName", "oidc"),
        references=(relations.cluster(),),
    ),
    t.NODE_GROUP: AwsKind(
        id="{clusterName}:{nodeGroupName}",
        arn="eks:{region}:{account}:nodegroup/{id}",
        name=AutoName(property="nodeGroupName", longest=63, unless=("nodeGroupNamePrefix",)),
        replaces=("amiType", "capacityType", "clusterName", "diskSize", "instanceTypes",
                  "launchTemplate.id", "launchTemplate.name", "nodeGroupName",
                  "nodeGroupNamePrefix", "nodeRoleArn", "remoteAccess", "subnetIds"),
        rules=(
            matches("nodeGroupName", _NODE_NAME, "up to 63 letters, digits, '-' and '_'"),
            sized("nodeGroupNamePrefix", 1, 37, "characters"),
            between("scalingConfig.minSize", 0, 450), between("scalingConfig.maxSize", 1, 450),
            between("scalingConfig.desiredSize", 0, 450),
            at_most("scalingConfig.minSize", "scalingConfig.desiredSize"),
            at_most("scalingConfig.desiredSize", "scalingConfig.maxSize"),
            at_most("scalingConfig.minSize", "scalingConfig.maxSize"),
            not_together(
                "launchTemplate.id", "launchTemplate.name"),
            not_together("updateConfig.maxUnavailable", "updateConfig.maxUnavailablePercentage"),
            between("updateConfig.maxUnavailable", 1, 100),
            between("updateConfig.maxUnavailablePercentage", 1, 100),
            sold("instanceTypes[]"),
            sized("taints", 0, 50), sized("taints[].key", 1, 63, "characters"),
            sized("taints[].value", 0, 63, "characters"),
            sized("subnetIds", 1, 100),
            _capacity_block,
        ),
        references=(
            relations.cluster(holds=True),
            relations.role("nodeRoleArn"),
            relations.subnet(),
            Reference("launchTemplate.id", (t.LAUNCH_TEMPLATE,), holds=False),
            Reference("launchTemplate.name", (t.LAUNCH_TEMPLATE,), by=("name",), holds=False),
        ),
        crosschecks=(
            disks_of_groups("launchTemplate"),
            _template_conflicts, _same_instruction_set, _placed_in_one_zone, _sold_in_zones,
            relations.trusts("nodeRoleArn", "ec2.amazonaws.com", "nodes' role"),
        ),
        unique=("clusterName", "nodeGroupName"),
        computed=_node_group,
    ),
    "aws:eks/fargateProfile:FargateProfile": AwsKind(
        id="{clusterName}:{fargateProfileName}",
        arn="eks:{region}:{account}:fargateprofile/{clusterName}/{fargateProfileName}",
        name=AutoName(property="fargateProfileName", longest=63),
        replaces=("clusterName", "fargateProfileName", "podExecutionRoleArn", "selectors",
                  "subnetIds"),
        references=(
            relations.cluster(holds=True),
            relations.role("podExecutionRoleArn"),
            relations.subnet(),
        ),
        crosschecks=(
            relations.trusts(
                "podExecutionRoleArn", "eks-fargate-pods.amazonaws.com", "pods' role"
            ),
        ),
    ),
}  # fmt: skip
