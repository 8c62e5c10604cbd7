"""Mistakes of meaning: each value is well formed, and a real account wouldn't take it, or would
take it and fail later.

Written before the rules that refuse them, from AWS's documentation and from reports of what
failed; none of them is a wrong type or a misspelt property, which the SDK's types find.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from falaj.sandbox.errors import SandboxError
from tests.sandbox.aws.plausible import CHAIN, Made, cloud, resolved
from tests.sandbox.aws.test_aws_refusals import changed

ACCOUNT = "000000000000"
ROOT = f"arn:aws:iam::{ACCOUNT}:root"


def trust(*services: str) -> str:
    return document(
        {"Principal": {"Service": list(services)}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    )


def allow(*actions: str) -> str:
    return document({"Action": list(actions), "Resource": "*"})


def document(*statements: dict[str, Any]) -> str:
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", **each} for each in statements],
        }
    )


def key_policy(*actions: str, **conditions: Any) -> str:
    return document(
        {
            "Principal": {"AWS": ROOT},
            "Action": list(actions),
            "Resource": "*",
            **({"Condition": conditions} if conditions else {}),
        }
    )


# what is meant; the resource of the chain; changes of it and of resources before; words
Change = tuple[str, str, Any]
MISTAKES: dict[str, tuple[tuple[Change, ...], str]] = {
    # Names that look right
    "a managed policy that there isn't": (
        (("managed", "policyArn", "arn:aws:iam::aws:policy/AmazonEKSWorkerNodesPolicy"),),
        "AmazonEKSWorkerNodePolicy",
    ),
    "a managed policy without its path": (
        (("managed", "policyArn", "arn:aws:iam::aws:policy/AmazonEBSCSIDriverPolicy"),),
        "service-role/AmazonEBSCSIDriverPolicy",
    ),
    "a service that there isn't, in a trust policy": (
        (("tasks", "assumeRolePolicy", trust("ecs-task.amazonaws.com")),),
        "ecs-tasks.amazonaws.com",
    ),
    "a service of another partition": (
        (("nodes", "assumeRolePolicy", trust("ec2.amazonaws.com.cn")),),
        "ec2.amazonaws.com",
    ),
    "an action that there isn't": (
        (("policy", "policy", allow("s3:GetObjects")),),
        "s3:GetObject",
    ),
    "an action of a service that there isn't": (
        (("inline", "policy", allow("elasticfilesytem:ClientMount")),),
        "elasticfilesystem",
    ),
    "an action named as the API's call": (
        (("inline", "policy", allow("s3:ListObjectsV2")),),
        "s3:ListBucket",
    ),
    "an action of a key misspelt in its policy": (
        (("key", "policy", key_policy("kms:*", "kms:Encypt")),),
        "kms:Encrypt",
    ),
    "a pattern of actions that nothing matches": (
        (("policy", "policy", allow("s3:Fetch*")),),
        "matches no action",
    ),
    "an add-on that there isn't": (
        (("addon", "addonName", "aws-ebs-csi"),),
        "aws-ebs-csi-driver",
    ),
    "an access policy that there isn't": (
        (
            (
                "view",
                "policyArn",
                "arn:aws:eks::aws:cluster-access-policy/AmazonEKSAdministratorPolicy",
            ),
        ),
        "AmazonEKSClusterAdminPolicy|AmazonEKSAdminPolicy",
    ),
    "a policy of TLS that there isn't": (
        (("listener", "sslPolicy", "ELBSecurityPolicy-TLS13-1-4-2021-06"),),
        "ELBSecurityPolicy-TLS13-1-3-2021-06",
    ),
    "a size of machine that there isn't": (
        (("small", "instanceType", "m7i.3xlarge"),),
        "m7i",
    ),
    "an endpoint of a service that the region hasn't": (
        (("ecrApi", "serviceName", "com.amazonaws.me-central-1.apprunner"),),
        "me-central-1",
    ),
    "an endpoint of a service that there isn't": (
        (("ecrApi", "serviceName", "com.amazonaws.me-central-1.ecr"),),
        "ecr.api",
    ),
    "a Kubernetes version that EKS no longer takes": (
        (("cluster", "version", "1.22"),),
        "1\\.",
    ),
    "a Kubernetes version that EKS hasn't yet": (
        (("cluster", "version", "1.49"),),
        "1\\.",
    ),
    # Machines
    "an image for another instruction set": (
        (("pool", "amiType", "AL2023_ARM_64_STANDARD"),),
        "x86_64",
    ),
    "machines of another instruction set than the image": (
        (("template", "instanceType", "m7g.large"), ("template", "placement", None),
         ("template", "networkInterfaces", None), ("pool", "amiType", "AL2023_x86_64_STANDARD")),
        "arm64",
    ),
    "an image with GPU drivers for another instruction set": (
        (("pool", "amiType", "AL2023_ARM_64_NVIDIA"),),
        "x86_64",
    ),
    "EFA on a machine without it": (
        (("small", "networkInterfaces",
          [{"deviceIndex": 0, "interfaceType": "efa", "networkCardIndex": 0}]),),
        "EFA|efa",
    ),
    "more network cards than the machine has": (
        (("small", "networkInterfaces",
          [{"deviceIndex": 0, "networkCardIndex": 0},
           {"deviceIndex": 1, "networkCardIndex": 3}]),),
        "card",
    ),
    "a cluster placement over two zones": (
        (("pool", "subnetIds", ["{a}", "{b}"]),),
        "one zone",
    ),
    "more nodes at once than the pool may lack": (
        (("pool", "updateConfig", {"maxUnavailable": 1, "maxUnavailablePercentage": 33}),),
        "at most one|exactly one|conflicts",
    ),
    "user data that is too long": (
        (("small", "userData", "eHh4" * 6000),),
        "16",
    ),
    # Disks
    "more operations than the disk can": (
        (("template", "blockDeviceMappings.0.ebs.iops", 200000),),
        "80000|16000",
    ),
    "more operations than the disk's size allows": (
        (("template", "blockDeviceMappings.0.ebs.iops", 79000),
         ("template", "blockDeviceMappings.0.ebs.volumeSize", 50)),
        "500",
    ),
    "more throughput than the disk can": (
        (("template", "blockDeviceMappings.0.ebs.throughput", 4000),),
        "125 to 2000|125 to 1000",
    ),
    "more throughput than the disk's operations carry": (
        (("template", "blockDeviceMappings.0.ebs.throughput", 1000),
         ("template", "blockDeviceMappings.0.ebs.iops", 3000)),
        "0.25",
    ),
    "throughput of a disk without such a setting": (
        (("template", "blockDeviceMappings.0.ebs.volumeType", "gp2"),
         ("template", "blockDeviceMappings.0.ebs.throughput", 250)),
        "gp3",
    ),
    "a disk that is too large": (
        (("template", "blockDeviceMappings.0.ebs.volumeSize", 70000),),
        "65536|16384",
    ),
    "operations of a disk that needs them": (
        (("template", "blockDeviceMappings.0.ebs.volumeType", "io2"),),
        "iops",
    ),
    # Networks
    "services' addresses within the network": (
        (("cluster", "kubernetesNetworkConfig", {"serviceIpv4Cidr": "10.0.128.0/20"}),),
        "10.0.0.0/16",
    ),
    "services' addresses that aren't private": (
        (("cluster", "kubernetesNetworkConfig", {"serviceIpv4Cidr": "20.0.0.0/16"}),),
        "10.0.0.0/8",
    ),
    "private names in a network without names": (
        (("vpc", "enableDnsHostnames", False), ("ecrApi", "privateDnsEnabled", True)),
        "enableDnsHostnames",
    ),
    "a private zone of a network without names": (
        (("vpc", "enableDnsSupport", False), ("vpc", "enableDnsHostnames", False),
         ("ecrApi", "privateDnsEnabled", False), ("zone", "name", "other.internal")),
        "enableDnsSupport",
    ),
    "a file system whose groups let nothing in": (
        (("lustreTraffic", "toPort", 989), ("lustreTraffic", "fromPort", 989),
         ("lustre", "securityGroupIds", ["{group}"])),
        "988",
    ),
    "an alias at the top of a zone": (
        (("record", "name", "falaj.internal"),),
        "apex|top",
    ),
    # Rights between services
    "a key that nobody may manage": (
        (("key", "policy", key_policy("kms:Encrypt", "kms:Decrypt")),),
        "PutKeyPolicy|lock",
    ),
    "a key that EKS may not grant": (
        (("key", "policy", document(
            {"Principal": {"AWS": ROOT}, "Resource": "*",
             "Action": ["kms:PutKeyPolicy", "kms:DescribeKey", "kms:Encrypt", "kms:Decrypt",
                        "kms:ListGrants", "kms:GenerateDataKey*"]},
            {"Principal": {"AWS": ROOT}, "Resource": "*", "Action": "kms:CreateGrant",
             "Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}}},
        )), ("trail", "kmsKeyId", None), ("cluster", "version", "1.34")),
        "kms:CreateGrant",
    ),
    "a key that the logs may not use": (
        (("key", "policy", key_policy("kms:*")), ("logs", "kmsKeyId", "{key.arn}")),
        "logs.me-central-1.amazonaws.com",
    ),
    "a key that the trail may not use": (
        (("key", "policy", key_policy("kms:*")), ("trail", "kmsKeyId", "{key.arn}")),
        "cloudtrail.amazonaws.com",
    ),
    "a trail's role that the service can't take": (
        (("writer", "assumeRolePolicy", trust("ec2.amazonaws.com")),
         ("trail", "name", "falaj-audit")),
        "cloudtrail.amazonaws.com",
    ),
    "a flow log's role that the service can't take": (
        (("flow", "iamRoleArn", "{tasks.arn}"),),
        "vpc-flow-logs.amazonaws.com",
    ),
    "a backup's role that the service can't take": (
        (("selection", "iamRoleArn", "{nodes.arn}"),),
        "backup.amazonaws.com",
    ),
    "tasks' role that the service can't take": (
        (("task", "executionRoleArn", "{nodes.arn}"),),
        "ecs-tasks.amazonaws.com",
    ),
    "a pod's role without the right to tag sessions": (
        (("pods", "assumeRolePolicy", document(
            {"Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
        )), ("podIdentity", "namespace", "training")),
        "sts:TagSession",
    ),
    "a bucket's policy about another bucket": (
        (("bucketPolicy", "policy", document(
            {"Principal": {"AWS": ROOT}, "Action": "s3:GetObject",
             "Resource": "arn:aws:s3:::another/*"})),),
        "another",
    ),
    "a repository's policy with a resource": (
        (("pullers", "policy", document(
            {"Principal": {"AWS": ROOT}, "Action": "ecr:BatchGetImage", "Resource": "*"})),),
        "Resource",
    ),
    "a bucket's policy with actions of another service": (
        (("bucketPolicy", "policy", document(
            {"Principal": {"AWS": ROOT}, "Action": "kms:Decrypt",
             "Resource": "*"})),),
        "s3",
    ),
    "a policy that is too long": (
        (("policy", "policy", document(*(
            {"Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{'b' * 40}-{number}/*"}
            for number in range(90)))),),
        "6144",
    ),
    # Balancers and scale
    "a listener's protocol of another kind of balancer": (
        (("listener", "protocol", "TLS"),),
        "HTTP",
    ),
    "targets of another protocol than the balancer": (
        (("targets", "protocol", "TCP"), ("targets", "healthCheck.protocol", "TCP"),
         ("targets", "healthCheck.path", None), ("listener", "port", 443)),
        "TCP",
    ),
    "targets by address for a scaling group": (
        (("targets", "targetType", "ip"), ("scaling", "minSize", 1)),
        "instance",
    ),
    "a roll-back of a group at its latest template": (
        (("scaling", "instanceRefresh",
          {"strategy": "Rolling", "preferences": {"autoRollback": True}}),),
        "\\$Latest",
    ),
    "requests a target without saying of which": (
        (("scalingPolicy", "targetTrackingConfiguration.predefinedMetricSpecification",
          {"predefinedMetricType": "ALBRequestCountPerTarget"}),),
        "resourceLabel",
    ),
    "a scaled service that there isn't": (
        (("scalable", "resourceId", "service/{tier.name}/nothing"),),
        "does not exist|doesn't exist",
    ),
    "a share of a CPU above the whole": (
        (("scalingPolicy", "targetTrackingConfiguration.targetValue", 160),),
        "100",
    ),
    # Storage and audit
    "rules of a life that end before they begin": (
        (("lifecycle", "rules.0", {"id": "x", "status": "Enabled",
          "expiration": {"days": 30},
          "transitions": [{"days": 90, "storageClass": "GLACIER"}]}),),
        "expir",
    ),
    "rare access before thirty days": (
        (("lifecycle", "rules.0", {"id": "x", "status": "Enabled",
          "transitions": [{"days": 7, "storageClass": "STANDARD_IA"}]}),),
        "30",
    ),
    "two rules of a life with one name": (
        (("lifecycle", "rules", [
            {"id": "x", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": 9}},
            {"id": "x", "status": "Enabled", "expiration": {"days": 9}}]),),
        "twice|unique",
    ),
    "rules of a firewall in another order than its policy": (
        (("domains", "ruleGroup.statefulRuleOptions", {"ruleOrder": "DEFAULT_ACTION_ORDER"}),
         ("firewallPolicy", "firewallPolicy.statefulEngineOptions.ruleOrder", "STRICT_ORDER")),
        "STRICT_ORDER",
    ),
    "more names than the rule group's capacity": (
        (("domains", "capacity", 1),),
        "capacity",
    ),
    "access of machines with groups": (
        (("entry", "type", "EC2_LINUX"), ("entry", "kubernetesGroups", ["admins"])),
        "kubernetesGroups",
    ),
    "a secret's key in another region": (
        (("secret", "kmsKeyId",
          f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/11111111-2222-4333-8444-555555555555"),),
        "eu-west-1",
    ),
    "a parameter in plain with a key": (
        (("parameter", "type", "String"),),
        "SecureString",
    ),
}  # fmt: skip


def outcome(changes: tuple[Change, ...]) -> SandboxError | None:
    """What refuses the chain with those changes; those before the last changed one must pass."""
    sandbox, made = cloud(), Made()
    last = changes[-1][0]
    for name, token, plain in CHAIN:
        inputs = plain
        for target, path, value in changes:
            if target == name:
                inputs = changed(inputs, path, value)
        try:
            made[name] = sandbox.create(token, name, resolved(inputs, made))
        except SandboxError as error:
            return error
        if name == last:
            return None
    raise AssertionError(f"{last} isn't in the chain")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_meaning_is_refused(mistake: str) -> None:
    changes, words = MISTAKES[mistake]
    error = outcome(changes)
    assert error is not None, "was taken"
    assert re.search(words, str(error)), str(error)
