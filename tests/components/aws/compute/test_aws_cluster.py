"""EKS clusters: private, logged, encrypted, and nobody inside who wasn't named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws import Cluster, _settling
from falaj.components.aws.cluster import (
    ADMINISTRATOR_POLICY,
    LOG_TYPES,
    VIEWER_POLICY,
    network_plugin_settings,
)
from falaj.components.catalogue.settling import SETTLING_VARIABLE

CLUSTER = "aws:eks/cluster:Cluster"
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
    assert set(addons) == {
        "vpc-cni",
        "kube-proxy",
        "coredns",
        "eks-pod-identity-agent",
        "aws-ebs-csi-driver",
        "eks-node-monitoring-agent",
    }
    [network] = addons["vpc-cni"]["podIdentityAssociations"]
    assert network["serviceAccount"] == "aws-node"
    [disks] = addons["aws-ebs-csi-driver"]["podIdentityAssociations"]
    assert disks["serviceAccount"] == "ebs-csi-controller-sa"
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
    }
    for resource, _, document in done.documents():
        for statement in document["Statement"]:
            if resource.name.startswith("main-") and "Resource" in statement:
                assert statement["Resource"] != ["*"]
                assert "kms:*" not in statement["Action"]


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
    assert len(roles) == 4
    assert all(":policy/" in each.inputs["permissionsBoundary"] for each in roles)


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 30.0), ("", 30.0), ("0", 0.0), ("2.5", 2.5)]
)
def test_how_long_permissions_settle(
    monkeypatch: pytest.MonkeyPatch, given: str | None, seconds: float
) -> None:
    monkeypatch.delenv(SETTLING_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(SETTLING_VARIABLE, given)
    assert _settling.seconds() == seconds


@pytest.mark.parametrize("given", ["soon", "-1", "inf", "nan"])
def test_what_is_no_number_of_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(SETTLING_VARIABLE, given)
    with pytest.raises(ValueError, match=rf"{SETTLING_VARIABLE}: given '{given}'; allowed: sec"):
        _settling.seconds()


@pytest.mark.parametrize("given", ["1", "0"])
def test_the_cluster_comes_once_its_permissions_hold(
    cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    hooked = {"main-control-plane", "main-control-plane-AmazonEKSClusterPolicy"}
    monkeypatch.setenv(SETTLING_VARIABLE, given)
    done, _ = cluster(log_days=30 * (1 + int(given)))
    for moment in ("after_create", "after_update"):
        found = {each.name for each in done.requests if getattr(each.hooks, moment)}
        assert found == (hooked if given == "1" else set())
