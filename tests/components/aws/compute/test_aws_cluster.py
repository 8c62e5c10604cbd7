"""EKS clusters: private, logged, encrypted, and nobody inside who wasn't named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws import Cluster
from falaj.components.aws._cluster_addons import CONTROLLERS
from falaj.components.aws._role_permissions import BOUNDARY_SERVICES
from falaj.components.aws.cluster import (
    ADMINISTRATOR_POLICY,
    LOG_TYPES,
    VIEWER_POLICY,
    network_plugin_settings,
)
from falaj.components.catalogue.clusters import (
    EKS_ADDONS,
    EKS_SNAPSHOT_ADDON,
    EKS_STORAGE_ADDONS,
)
from falaj.components.kubernetes import storage_classes
from falaj.components.kubernetes.addons import ADDONS
from tests.components.kubernetes.platforms import spec, values

CLUSTER = "aws:eks/cluster:Cluster"
POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
ADDON = "aws:eks/addon:Addon"
_TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": "ec2.amazonaws.com"},
            }
        ],
    }
)


#: What was deployed, by its changes: deployments are only looked at.
_DEPLOYED: dict[str, Any] = {}


@pytest.fixture
def cluster(deploy: Any, foundation: Any) -> Callable[..., Any]:
    """Deploys a cluster; returns the deployment and the cluster's inputs."""

    def make(**changes: Any) -> Any:
        def program(options: pulumi.ResourceOptions) -> Any:
            return Cluster("main", {**foundation(options)["cluster"], **changes}, options)

        key = repr(sorted(changes.items()))
        done = _DEPLOYED[key] = _DEPLOYED.get(key) or deploy(program)
        return done, done.of_type(CLUSTER)[0].inputs

    return make


def test_one_zone_is_refused(deploy: Any, placed: Any) -> None:
    plain = {
        **placed,
        "network_id": "vpc-1",
        "node_subnet_ids": {"mec1-az1": "subnet-1"},
        "security_group_id": "g",
        "cluster_key_id": "k",
        "log_key_id": "k",
        "disk_encryption_id": "k",
        "zones": ["mec1-az1"],
    }
    with pytest.raises(pulumi.InputPropertiesError, match="two zones or more, which EKS needs"):
        deploy(lambda options: Cluster("main", plain, options))


def test_a_cluster(cluster: Callable[..., Any]) -> None:
    done, inputs = cluster()
    assert inputs["name"] == "acme-dev-main"
    assert inputs["version"] == "1.35"
    assert inputs["vpcConfig"]["endpointPublicAccess"] is False
    assert inputs["vpcConfig"]["endpointPrivateAccess"] is True
    assert "publicAccessCidrs" not in inputs["vpcConfig"]
    assert len(inputs["vpcConfig"]["subnetIds"]) == 2
    assert len(inputs["vpcConfig"]["securityGroupIds"]) == 1
    assert inputs["enabledClusterLogTypes"] == list(LOG_TYPES)
    assert inputs["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    assert inputs["bootstrapSelfManagedAddons"] is False
    assert inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert inputs["encryptionConfig"]["provider"]["keyArn"].startswith("arn:aws:kms:me-central-1:")
    assert inputs["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "172.20.0.0/16"
    assert inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    assert inputs["deletionProtection"] is False
    assert inputs["tags"]["falaj:data-class"] == "restricted"
    assert not done.of_type("aws:eks/accessEntry:AccessEntry")
    returned = done.returned
    assert returned["cluster_id"] == returned["cluster_name"] == "acme-dev-main"
    assert "me-central-1.eks.amazonaws.com" in returned["endpoint"]
    assert returned["issuer_url"].startswith("https://oidc.eks.me-central-1.amazonaws.com/")
    assert returned["certificate_authority"]
    assert returned["security_group_id"].startswith("sg-")
    assert returned["node_identity_id"] == "arn:aws:iam::000000000000:role/acme-dev-main-node"


def test_its_log_has_its_own_key_and_is_made_first(cluster: Callable[..., Any]) -> None:
    done, _ = cluster(log_days=90)
    logs = done.of_type("aws:cloudwatch/logGroup:LogGroup")
    [log] = [each for each in logs if each.name == "main"]
    assert log.inputs["name"] == "/aws/eks/acme-dev-main/cluster"
    assert log.inputs["retentionInDays"] == 90
    assert log.inputs["kmsKeyId"].startswith("arn:aws:kms:")
    order = [each.type for each in done.resources]
    assert done.resources.index(log) < order.index(CLUSTER)


def test_production_is_protected(cluster: Callable[..., Any]) -> None:
    _, inputs = cluster(environment="production")
    assert inputs["deletionProtection"] is True


def test_addons_and_their_roles(cluster: Callable[..., Any]) -> None:
    done, _ = cluster()
    addons = {each.inputs["addonName"]: each.inputs for each in done.of_type(ADDON)}
    assert sorted(addons) == sorted(EKS_ADDONS)
    [network] = addons["vpc-cni"]["podIdentityAssociations"]
    assert network["serviceAccount"] == "aws-node"
    [disks] = addons["aws-ebs-csi-driver"]["podIdentityAssociations"]
    assert disks["serviceAccount"] == "ebs-csi-controller-sa"
    [lustre] = addons["aws-fsx-csi-driver"]["podIdentityAssociations"]
    assert lustre["serviceAccount"] == "fsx-csi-controller-sa"
    [homes] = addons["aws-efs-csi-driver"]["podIdentityAssociations"]
    assert homes["serviceAccount"] == "efs-csi-controller-sa"
    settings = json.loads(addons["vpc-cni"]["configurationValues"])
    assert settings["enableNetworkPolicy"] == "true"
    assert settings["env"]["NETWORK_POLICY_ENFORCING_MODE"] == "standard"


def _corefile(done: Any) -> str:
    (resolver,) = [
        each.inputs for each in done.of_type(ADDON) if each.inputs["addonName"] == "coredns"
    ]
    return json.loads(resolver.get("configurationValues") or "{}").get("corefile", "")


def test_pods_resolve_allowed_domains_alone(cluster: Callable[..., Any]) -> None:
    done, _ = cluster()
    plain = _corefile(done)
    assert "rcode NXDOMAIN" in plain
    assert "me-central-1.amazonaws.com:53" in plain
    done, _ = cluster(allowed_domains=["models.example.ae"], resolver_domains=[".corp.example"])
    more = _corefile(done)
    assert "\nmodels.example.ae:53 {" in more
    assert "corp.example:53 " in more
    done, _ = cluster(resolver="off")
    assert not _corefile(done)


def test_a_resolver_that_cant_be_is_refused(cluster: Callable[..., Any]) -> None:
    for wrong, told in (
        ({"resolver": "open"}, "enforce"),
        ({"resolver_domains": ["a.example {"]}, "a domain of two labels or more"),
    ):
        with pytest.raises(Exception, match=told):
            cluster(**wrong)


def test_strict_network_policy_is_asked_for() -> None:
    mode = "NETWORK_POLICY_ENFORCING_MODE"
    assert network_plugin_settings(strict=True)["env"][mode] == "strict"
    assert network_plugin_settings(strict=False)["env"][mode] == "standard"


def test_roles_have_least_policies(cluster: Callable[..., Any]) -> None:
    done, _ = cluster()
    attached = {
        (each.inputs["role"], each.inputs["policyArn"].rpartition("/")[2])
        for each in done.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    }
    assert attached == {
        ("acme-dev-main-control-plane", "AmazonEKSClusterPolicy"),
        ("acme-dev-main-node", "AmazonEKSWorkerNodePolicy"),
        ("acme-dev-main-node", "AmazonEC2ContainerRegistryPullOnly"),
        ("acme-dev-main-vpc-cni", "AmazonEKS_CNI_Policy"),
        ("acme-dev-main-ebs-csi", "AmazonEBSCSIDriverPolicy"),
        ("acme-dev-main-efs-csi", "AmazonEFSCSIDriverPolicy"),
    }
    for resource, _, document in done.documents():
        for statement in document["Statement"]:
            if resource.name.startswith("main-") and "Resource" in statement:
                assert "kms:*" not in statement["Action"]
                # What only describes knows no resources; all else names its own.
                if statement["Resource"] == ["*"]:
                    verbs = {each.partition(":")[2] for each in statement["Action"]}
                    assert all(verb.startswith(("Describe", "Get")) for verb in verbs)


def _statements(done: Any, duty: str) -> dict[str, Any]:
    """Statements of the policy of a role, by their ids."""
    (policy,) = [
        each.inputs["policy"]
        for each in done.of_type("aws:iam/rolePolicy:RolePolicy")
        if each.name == f"main-{duty}"
    ]
    return {each["Sid"]: each for each in json.loads(policy)["Statement"]}


def _trusted(done: Any, duty: str) -> Any:
    """The conditions of a role's trust policy."""
    (role,) = [each for each in done.of_type("aws:iam/role:Role") if each.name == f"main-{duty}"]
    (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    return statement["Condition"]


def test_storage_classes_find_their_drivers(cluster: Callable[..., Any]) -> None:
    done, _ = cluster()
    installed = {each.inputs["addonName"] for each in done.of_type(ADDON)}
    common = {
        "distribution": "eks",
        "region": "me-central-1",
        "registry": "111122223333.dkr.ecr.me-central-1.amazonaws.com/falaj",
        "tenant": "acme",
        "owner": "platform@acme.example",
        "data_class": "restricted",
        "cost_center": "ai-42",
        "acknowledge_degraded": "2026-04-30",
        "disk_encryption_id": "arn:aws:kms:me-central-1:111122223333:key/"
        "00000000-1111-2222-3333-444444444444",
    }
    existing = {
        "file_system_id": "fs-1",
        "mount_address": "fs-1.example@tcp:/x",
        "size_gib": 1200,
        "namespaces": ["acme-training"],
    }
    new = {"subnet_id": "subnet-1", "security_group_id": "sg-1"}
    for files in (existing, new):
        wanted: set[str] = set()
        for each in storage_classes.manifests(
            storage_classes.check("storage", {**common, "files": files})
        ):
            wanted.add(each.get("provisioner") or each.get("driver") or "")
            wanted.add(each.get("spec", {}).get("csi", {}).get("driver", ""))
            if each["kind"] == "VolumeSnapshotClass":
                assert EKS_SNAPSHOT_ADDON in installed
        drivers = wanted - {"", "kubernetes.io/no-provisioner"}
        assert "fsx.csi.aws.com" in drivers
        assert {EKS_STORAGE_ADDONS[driver] for driver in drivers} <= installed


def test_the_driver_of_lustre_deletes_only_what_it_made(cluster: Callable[..., Any]) -> None:
    done, _ = cluster()
    may = _statements(done, "fsx-csi")
    tag = "CSIVolumeName"
    assert may["DeleteOwn"]["Condition"] == {"Null": {f"aws:ResourceTag/{tag}": "false"}}
    assert may["MakeForClaims"]["Condition"] == {"Null": {f"aws:RequestTag/{tag}": "false"}}
    for sid in ("DeleteOwn", "MakeForClaims"):
        assert may[sid]["Resource"] == ["arn:aws:fsx:me-central-1:000000000000:file-system/*"]
    assert may["EncryptByFsx"]["Condition"]["StringEquals"] == {
        "kms:ViaService": "fsx.me-central-1.amazonaws.com"
    }
    assert _trusted(done, "fsx-csi")["StringEquals"] == {
        "aws:SourceAccount": "000000000000",
        "aws:RequestTag/kubernetes-namespace": "kube-system",
        "aws:RequestTag/kubernetes-service-account": "fsx-csi-controller-sa",
    }


def test_nodes_may_mount_homes_before_their_pods_come(cluster: Callable[..., Any]) -> None:
    """The add-on takes no association for the account of the nodes' pods."""
    done, _ = cluster()
    (given,) = [
        each
        for each in done.of_type(POD_IDENTITY)
        if each.inputs["serviceAccount"] == "efs-csi-node-sa"
    ]
    assert given.inputs["namespace"] == "kube-system"
    assert given.inputs["roleArn"].endswith(":role/acme-dev-main-efs-csi-node")
    (driver,) = [
        each for each in done.of_type(ADDON) if each.inputs["addonName"] == "aws-efs-csi-driver"
    ]
    assert done.resources.index(given) < done.resources.index(driver)
    mount = _statements(done, "efs-csi-node")["Mount"]
    assert mount["Action"] == [
        "elasticfilesystem:ClientMount",
        "elasticfilesystem:ClientRootAccess",
        "elasticfilesystem:ClientWrite",
    ]


def test_the_autoscaler_changes_its_own_clusters_groups_alone(
    cluster: Callable[..., Any],
) -> None:
    done, _ = cluster()
    may = _statements(done, "autoscaler")
    assert may["Scale"]["Condition"]["StringEquals"] == {
        "aws:ResourceTag/k8s.io/cluster-autoscaler/acme-dev-main": "owned"
    }
    assert may["LookAtPools"]["Resource"] == [
        "arn:aws:eks:me-central-1:000000000000:nodegroup/acme-dev-main/*"
    ]


def test_controllers_of_the_platform_have_their_roles(cluster: Callable[..., Any]) -> None:
    """The accounts that add-ons inside of the cluster run under are those that get the roles."""
    done, _ = cluster()
    given = {
        (each.inputs["namespace"], each.inputs["serviceAccount"])
        for each in done.of_type(POD_IDENTITY)
    }
    rendered = values(spec("eks"))
    (autoscaler,) = ADDONS["cluster-autoscaler"].releases
    account = rendered[autoscaler.name]["rbac"]["serviceAccount"]["name"]
    assert (autoscaler.namespace, account) in given
    (balancers,) = ADDONS["aws-load-balancer-controller"].releases
    account = rendered[balancers.name]["serviceAccount"]["name"]
    assert (balancers.namespace, account) in given


def test_the_balancers_controller_makes_private_nlbs_of_its_own_cluster(
    cluster: Callable[..., Any],
) -> None:
    done, _ = cluster()
    may = _statements(done, "balancers")
    tag = "elbv2.k8s.aws/cluster"
    name = "acme-dev-main"
    made = may["MakeBalancers"]
    assert made["Condition"]["StringEquals"] == {
        "elasticloadbalancing:Scheme": "internal",
        f"aws:RequestTag/{tag}": name,
    }
    assert all(":loadbalancer/net/" in each for each in made["Resource"])
    for sid in ("ChangeOwn", "DeleteGroups", "Name", "NameGroups"):
        assert may[sid]["Condition"]["StringEquals"] == {f"aws:ResourceTag/{tag}": name}
    (vpc,) = [each.id for each in done.of_type("aws:ec2/vpc:Vpc")]
    assert may["OpenGroupsOfTheNetwork"]["Condition"] == {
        "ArnEquals": {"ec2:Vpc": f"arn:aws:ec2:me-central-1:000000000000:vpc/{vpc}"}
    }
    services = {action.partition(":")[0] for each in may.values() for action in each["Action"]}
    assert services == {"ec2", "elasticloadbalancing", "iam"}


def test_the_boundary_leaves_pods_the_services_that_they_call(
    cluster: Callable[..., Any],
) -> None:
    done, _ = cluster()
    called = {
        action.partition(":")[0]
        for resource, _, document in done.documents()
        if resource.name.startswith("main-")
        for statement in document["Statement"]
        for action in statement["Action"]
    }
    assert called <= set(BOUNDARY_SERVICES)


def test_administrators_and_viewers_are_let_in(deploy: Any, foundation: Any) -> None:
    account = "arn:aws:iam::000000000000:role"

    def program(options: pulumi.ResourceOptions) -> Any:
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        for name in ("platform", "audit"):
            aws.iam.Role(name, name=name, assume_role_policy=_TRUST, opts=provider)
        people = {"administrators": [f"{account}/platform"], "viewers": [f"{account}/audit"]}
        return Cluster("main", {**foundation(options)["cluster"], **people}, options)

    done = deploy(program)
    kind = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
    given = {each.inputs["principalArn"]: each.inputs for each in done.of_type(kind)}
    assert given[f"{account}/platform"]["policyArn"] == ADMINISTRATOR_POLICY
    assert given[f"{account}/audit"]["policyArn"] == VIEWER_POLICY
    assert {each["accessScope"]["type"] for each in given.values()} == {"cluster"}


def test_roles_stay_within_the_boundary(deploy: Any, foundation: Any) -> None:
    def program(options: pulumi.ResourceOptions) -> Any:
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        document = json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
            }
        )
        boundary = aws.iam.Policy("boundary", policy=document, opts=provider)
        args = {**foundation(options)["cluster"], "boundary_id": boundary.arn}
        return Cluster("main", args, options)

    done = deploy(program)
    roles = [each for each in done.of_type("aws:iam/role:Role") if each.name.startswith("main-")]
    assert len(roles) == 7 + len(CONTROLLERS)
    assert all(":policy/" in each.inputs["permissionsBoundary"] for each in roles)


def test_the_cluster_comes_once_its_permissions_hold(cluster: Callable[..., Any]) -> None:
    hooked = {"main-control-plane", "main-control-plane-AmazonEKSClusterPolicy"}
    done, _ = cluster()
    for moment in ("after_create", "after_update"):
        found = {each.name for each in done.requests if getattr(each.hooks, moment)}
        assert found == hooked
