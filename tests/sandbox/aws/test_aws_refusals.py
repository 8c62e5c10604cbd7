"""What AWS refuses when it looks at one resource alone, with the path and the reason."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from falaj.sandbox.clouds.aws import MODEL
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.errors import SandboxError
from falaj.wire import UNKNOWN
from tests.sandbox.aws.plausible import REGION, build, cloud, inputs_of, token_of

LONG = "x" * 600
TRUST = json.dumps(
    {"Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:GetObject"}]}
)

# name of the plausible resource, path to change, what to put there, where the problem is, its text
WRONG: list[tuple[str, str, Any, str, str]] = [
    ("vpc", "cidrBlock", "10.0.0.0/8", "cidrBlock", "/16 to /28"),
    ("vpc", "cidrBlock", "10.0.0.1/16", "cidrBlock", "did you mean 10.0.0.0/16"),
    ("vpc", "cidrBlock", "fd00::/56", "cidrBlock", "no IPv4 network"),
    ("vpc", "instanceTenancy", "shared", "instanceTenancy", "allowed: dedicated"),
    ("a", "cidrBlock", "10.0.0.0/29", "cidrBlock", "/16 to /28"),
    ("a", "availabilityZoneId", "use1-az1", "availabilityZoneId", "mec1-az1, mec1-az2, mec1-az3"),
    ("a", "availabilityZone", "me-central-1a", "availabilityZone", "at most one"),
    ("a", "vpcId", "sg-0123456789abcdef0", "vpcId", "such ids begin with vpc-"),
    ("a", "vpcId", "vpc-main", "vpcId", "hexadecimal digits"),
    ("a", "region", "me-central-9", "region", "no AWS region"),
    ("group", "description", "café", "description", "255 of"),
    ("group", "name", "sg-mine", "name", "kept for ids"),
    ("group", "name", "default", "name", "own group"),
    ("ingress", "cidrIpv4", "0.0.0.0/0", "referencedSecurityGroupId", "exactly one"),
    ("ingress", "fromPort", 70000, "fromPort", "0 to 65535"),
    ("ingress", "fromPort", 500, "fromPort", "above toPort"),
    ("ingress", "ipProtocol", "tpc", "ipProtocol", "no protocol"),
    ("ingress", "toPort", None, "toPort", "is missing"),
    ("egress", "fromPort", 443, "fromPort", "all ports"),
    ("ecrApi", "vpcEndpointType", "interface", "vpcEndpointType", "did you mean 'Interface'"),
    ("ecrApi", "serviceName", "com.amazonaws.us-east-1.s3", "serviceName", "endpoint is in"),
    ("ecrApi", "routeTableIds", ["rtb-0123456789abcdef0"], "routeTableIds", "doesn't apply"),
    ("s3", "subnetIds", ["subnet-0123456789abcdef0"], "subnetIds", "doesn't apply"),
    ("s3", "policy", "{", "policy", "isn't JSON"),
    ("route", "natGatewayId", None, "carrierGatewayId", "exactly one"),
    ("acl", "ingress.0.action", "permit", "ingress[0].action", "allowed: allow, deny"),
    ("acl", "ingress.0.ruleNo", 0, "ingress[0].ruleNo", "1 to 32766"),
    ("flow", "trafficType", "EVERYTHING", "trafficType", "ACCEPT"),
    ("flow", "subnetId", "subnet-0123456789abcdef0", "vpcId", "exactly one"),
    ("key", "deletionWindowInDays", 3, "deletionWindowInDays", "7 to 30 days"),
    ("key", "keyUsage", "ENCRYPT", "keyUsage", "ENCRYPT_DECRYPT"),
    ("key", "customerMasterKeySpec", "RSA_4096", "enableKeyRotation", "can't rotate"),
    ("key", "policy", '{"Statement": []}', "policy", "Statement is missing"),
    ("alias", "name", "falaj", "name", "'alias/'"),
    ("alias", "name", "alias/aws/s3", "name", "kept for"),
    ("bucket", "bucket", "Falaj", "bucket", "3 to 63"),
    ("bucket", "bucket", "a..b", "bucket", "two dots"),
    ("bucket", "bucket", "10.0.0.1", "bucket", "IP address"),
    ("bucket", "bucket", "xn--falaj", "bucket", "kept by S3"),
    ("bucket", "bucket", "falaj--x-s3", "bucket", "S3 keeps"),
    ("versioning", "versioningConfiguration.status", "On", "versioningConfiguration.status",
     "Enabled"),
    ("encryption", "rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES512",
     "rules[0].applyServerSideEncryptionByDefault.sseAlgorithm", "did you mean 'AES256'"),
    ("ownership", "rule.objectOwnership", "Me", "rule.objectOwnership", "BucketOwnerEnforced"),
    ("lifecycle", "rules.0.noncurrentVersionExpiration", None, "rules[0]", "does nothing"),
    ("lock", "rule.defaultRetention.years", 1, "rule.defaultRetention.years", "at most one"),
    ("lock", "rule.defaultRetention.mode", "STRICT", "rule.defaultRetention.mode", "COMPLIANCE"),
    ("lustre", "storageCapacity", 1300, "storageCapacity", "1200 or multiples of 2400"),
    ("lustre", "perUnitStorageThroughput", 300, "perUnitStorageThroughput", "125, 250, 500, 1000"),
    ("lustre", "perUnitStorageThroughput", None, "perUnitStorageThroughput", "is missing"),
    ("lustre", "deploymentType", "PERSISTENT", "deploymentType", "PERSISTENT_1"),
    ("lustre", "deploymentType", "SCRATCH_2", "kmsKeyId", "no key of one's own"),
    ("homes", "throughputMode", "provisioned", "provisionedThroughputInMibps", "is missing"),
    ("homes", "encrypted", False, "kmsKeyId", "encrypted to be true"),
    ("point", "rootDirectory.path", "home", "rootDirectory.path", "at most four"),
    ("point", "rootDirectory.creationInfo.permissions", "999",
     "rootDirectory.creationInfo.permissions", "octal"),
    ("role", "name", LONG, "name", "1 to 64"),
    ("role", "name", "a b", "name", "letters, digits"),
    ("role", "assumeRolePolicy", TRUST, "assumeRolePolicy", "allowed: sts:"),
    ("role", "maxSessionDuration", 60, "maxSessionDuration", "3600 to 43200"),
    ("role", "permissionsBoundary", "Boundary", "permissionsBoundary", "ARN of a policy"),
    ("policy", "policy", TRUST, "policy", "Principal isn't allowed"),
    ("policy", "path", "falaj", "path", "begins and ends"),
    ("attachment", "policyArn", "arn:aws:iam::aws:role/x", "policyArn", "ARN of a policy"),
    ("oidc", "url", "oidc.example.ae", "url", "https://"),
    ("repository", "name", "Falaj", "name", "2 to 256"),
    ("repository", "imageTagMutability", "FIXED", "imageTagMutability", "IMMUTABLE"),
    ("repository", "encryptionConfigurations.0.encryptionType", "AES256",
     "encryptionConfigurations[0].kmsKey", "needs encryptionType"),
    ("untagged", "policy", '{"rules": [{"rulePriority": "1"}]}', "policy", "rulePriority"),
    ("through", "upstreamRegistryUrl", "https://quay.io", "upstreamRegistryUrl", "scheme"),
    ("through", "upstreamRegistryUrl", "ghcr.io", "credentialArn", "is missing"),
    ("logs", "retentionInDays", 42, "retentionInDays", "allowed: 0, 1, 3"),
    ("logs", "name", "a b", "name", "512"),
    ("logs", "kmsKeyId", "alias/logs", "kmsKeyId", "key's ARN"),
    ("trail", "name", "ab", "name", "3 to 128"),
    ("trail", "cloudWatchLogsRoleArn", None, "cloudWatchLogsGroupArn", "needs"),
    ("trail", "cloudWatchLogsGroupArn", "arn:aws:logs:me-central-1:0:log-group:x",
     "cloudWatchLogsGroupArn", "':*'"),
    ("feature", "status", "ON", "status", "ENABLED"),
    ("feature", "name", "S3_EVENTS", "name", "S3_DATA_EVENTS"),
    ("topic", "name", "a.b", "name", "256"),
    ("mail", "endpoint", "nobody", "endpoint", "no e-mail address"),
    ("queue", "messageRetentionSeconds", 1, "messageRetentionSeconds", "60 to 1209600"),
    ("alarm", "comparisonOperator", ">", "comparisonOperator", "GreaterThanThreshold"),
    ("event", "eventPattern", "x", "eventPattern", "isn't JSON"),
    ("event", "eventPattern", None, "eventPattern", "is missing"),
    ("cluster", "name", "-x", "name", "up to 100"),
    ("cluster", "version", "latest", "version", "such as 1.34"),
    ("cluster", "enabledClusterLogTypes.0", "audits", "enabledClusterLogTypes[0]", "'audit'"),
    ("cluster", "accessConfig.authenticationMode", "IAM", "accessConfig.authenticationMode",
     "API_AND_CONFIG_MAP"),
    ("cluster", "vpcConfig.endpointPrivateAccess", False, "vpcConfig.endpointPublicAccess",
     "nobody could reach"),
    ("cluster", "kubernetesNetworkConfig", {"serviceIpv4Cidr": "10.0.0.0/8"},
     "kubernetesNetworkConfig.serviceIpv4Cidr", "/12 to /24"),
    ("pool", "nodeGroupName", LONG, "nodeGroupName", "63"),
    ("pool", "amiType", "AL2023", "amiType", "AL2023_x86_64_NVIDIA"),
    ("pool", "capacityType", "ONDEMAND", "capacityType", "did you mean 'ON_DEMAND'"),
    ("pool", "scalingConfig.minSize", 5, "scalingConfig.minSize", "is more than"),
    ("pool", "scalingConfig.maxSize", 0, "scalingConfig.maxSize", "1 to 450"),
    ("pool", "taints.0.effect", "NoSchedule", "taints[0].effect", "NO_SCHEDULE"),
    ("pool", "diskSize", 100, "diskSize", "can't go with launchTemplate"),
    ("pool", "instanceTypes", ["p4d.24xlarge"], "instanceTypes[0]", "isn't sold in me-central-1"),
    ("pool", "clusterName", None, "", ""),
    ("view", "accessScope.type", "all", "accessScope.type", "cluster, namespace"),
    ("view", "accessScope.type", "namespace", "accessScope.namespaces", "is missing"),
    ("addon", "configurationValues", "{", "configurationValues", "isn't JSON"),
    ("addon", "addonName", "amazon-fsx-csi-driver", "addonName", "mean 'aws-fsx-csi-driver'"),
    ("template", "instanceType", "p5.48xlarge", "instanceType", "isn't sold"),
    ("template", "metadataOptions.httpTokens", "yes", "metadataOptions.httpTokens", "required"),
    ("template", "metadataOptions.httpPutResponseHopLimit", 65,
     "metadataOptions.httpPutResponseHopLimit", "1 to 64"),
    ("template", "userData", "#!/bin/sh", "userData", "base64"),
    ("template", "blockDeviceMappings.0.ebs.volumeType", "gp4",
     "blockDeviceMappings[0].ebs.volumeType", "gp3"),
    ("template", "blockDeviceMappings.0.ebs.encrypted", "false",
     "blockDeviceMappings[0].ebs.kmsKeyId", "encrypted to be true"),
    ("placement", "partitionCount", 3, "partitionCount", "applies only"),
    ("reservation", "availabilityZone", "me-central-1b", "instanceType", "mec1-az1, mec1-az3"),
    ("balancer", "name", "x" * 33, "name", "up to 32"),
    ("balancer", "name", "internal-x", "name", "may not begin"),
    ("balancer", "loadBalancerType", "alb", "loadBalancerType", "application"),
    ("targets", "port", 0, "port", "1 to 65535"),
    ("targets", "vpcId", None, "vpcId", "is missing"),
    ("targets", "targetType", "pods", "targetType", "instance"),
    ("targets", "healthCheck.timeout", 20, "healthCheck.timeout", "less than the interval"),
    ("listener", "certificateArn", None, "certificateArn", "is missing"),
    ("listener", "sslPolicy", "TLS13", "sslPolicy", "ELBSecurityPolicy-"),
    ("listener", "protocol", "HTTP", "certificateArn", "doesn't apply"),
    ("listener", "defaultActions.0.type", "proxy", "defaultActions[0].type", "forward"),
    ("listener", "defaultActions.0.type", "redirect", "defaultActions[0].redirect", "is missing"),
    ("listenerRule", "priority", 60000, "priority", "1 to 50000"),
    ("authority", "certificateAuthorityConfiguration.keyAlgorithm", "EC",
     "certificateAuthorityConfiguration.keyAlgorithm", "EC_prime256v1"),
    ("root", "validity.type", "DECADES", "validity.type", "YEARS"),
    ("certificate", "domainName", "not a name", "domainName", "a domain name"),
    ("certificate", "validationMethod", "DNS", "validationMethod", "at most one"),
    ("scaling", "minSize", 9, "minSize", "is more than"),
    ("scaling", "launchTemplate", None, "launchTemplate", "exactly one"),
    ("scaling", "healthCheckType", "HTTP", "healthCheckType", "ELB"),
    ("hook", "heartbeatTimeout", 5, "heartbeatTimeout", "30 to 7200"),
    ("task", "memory", "1000", "memory", "isn't sold with 1024"),
    ("task", "networkMode", "bridge", "networkMode", "awsvpc"),
    ("task", "containerDefinitions", "[]", "containerDefinitions", "at least one"),
    ("task", "containerDefinitions", '[{"name": "x"}]', "containerDefinitions", "image is"),
    ("scalable", "minCapacity", 9, "minCapacity", "is more than"),
    ("budget", "timeUnit", "WEEKLY", "timeUnit", "MONTHLY"),
    ("budget", "limitAmount", "a lot", "limitAmount", "no amount"),
    ("budget", "notifications.0.subscriberSnsTopicArns", None, "notifications[0]", "nobody"),
    ("vault", "name", "a b", "name", "2 to 50"),
    ("plan", "rules.0.schedule", "daily", "rules[0].schedule", "cron"),
    ("plan", "rules.0.lifecycle", {"coldStorageAfter": 30, "deleteAfter": 60},
     "rules[0].lifecycle.deleteAfter", "90 days"),
    ("parameter", "type", "Secret", "type", "SecureString"),
    ("parameter", "name", "/aws/x", "name", "may not begin"),
    ("zone", "name", "a b", "name", "domain name"),
    ("record", "ttl", None, "ttl", "is missing"),
    ("queries", "name", "1234", "name", "up to 64"),
    ("domains", "ruleGroup.rulesSource.rulesSourceList.generatedRulesType", "ALLOW",
     "ruleGroup.rulesSource.rulesSourceList.generatedRulesType", "ALLOWLIST"),
    ("domains", "ruleGroup.rulesSource.rulesSourceList.targets.0", "*.example.ae",
     "ruleGroup.rulesSource.rulesSourceList.targets[0]", ".example.com"),
    ("domains", "capacity", 0, "capacity", "1 to 30000"),
    ("firewallPolicy", "firewallPolicy.statefulDefaultActions.0", "aws:drop",
     "firewallPolicy.statefulDefaultActions", "aws:drop_strict"),
    ("firewallPolicy", "firewallPolicy.statefulEngineOptions", None,
     "firewallPolicy.statefulDefaultActions", "STRICT_ORDER"),
    ("firewallPolicy", "firewallPolicy.statelessDefaultActions.0", "aws:forward",
     "firewallPolicy.statelessDefaultActions", "aws:forward_to_sfe"),
    ("waf", "scope", "GLOBAL", "scope", "REGIONAL"),
    ("waf", "scope", "CLOUDFRONT", "scope", "us-east-1"),
    ("waf", "defaultAction", {"allow": {}, "block": {}}, "defaultAction.block", "exactly one"),
]  # fmt: skip
WRONG = [row for row in WRONG if row[3] or row[4]]


def changed(inputs: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The inputs with the value at the path; without it where the value is None."""
    result = copy.deepcopy(inputs)
    node: Any = result
    *steps, last = path.split(".")
    for step in steps:
        node = node[int(step)] if step.isdigit() else node.setdefault(step, {})
    if last.isdigit():
        node[int(last)] = value
    elif value is None:
        node.pop(last, None)
    else:
        node[last] = value
    return result


def problems(name: str, inputs: dict[str, Any]) -> list[Problem]:
    return MODEL.problems(token_of(name), inputs, {"region": REGION})


@pytest.mark.parametrize(
    ("name", "path", "value", "where", "text"),
    WRONG,
    ids=[f"{row[0]}-{row[1]}-{index}" for index, row in enumerate(WRONG)],
)
def test_a_wrong_value_is_refused_with_its_path(
    name: str, path: str, value: Any, where: str, text: str
) -> None:
    inputs = _known(inputs_of(name, {}))
    assert problems(name, inputs) == []
    found = problems(name, changed(inputs, path, value))
    assert any(problem.path == where and text in problem.reason for problem in found), found


@pytest.mark.parametrize(("name", "path"), sorted({(row[0], row[1]) for row in WRONG}))
def test_what_is_not_known_yet_is_let_through(name: str, path: str) -> None:
    inputs = changed(_known(inputs_of(name, {})), path, UNKNOWN)
    found = [problem for problem in problems(name, inputs) if _plain(problem.path) == path]
    # An unknown value counts as given where only some of several inputs may be.
    about_presence = ("one of", "doesn't apply", "can't go with", "needs", "applies only")
    assert [one for one in found if not any(text in one.reason for text in about_presence)] == []


def test_tags_are_limited() -> None:
    inputs = {"cidrBlock": "10.0.0.0/16"}
    many = {**inputs, "tags": {f"k{number}": "v" for number in range(51)}}
    assert "at most 50" in problems("vpc", many)[0].reason
    for tags, text in (
        ({"k" * 129: "v"}, "1 to 128"),
        ({"k": "v" * 257}, "at most 256"),
        ({"aws:k": "v"}, "kept for AWS"),
        ({"AWS:k": "v"}, "kept for AWS"),
    ):
        assert text in problems("vpc", {**inputs, "tags": tags})[0].reason
    assert problems("vpc", {**inputs, "tags": {"k": "a?b"}}) == []
    assert "isn't allowed" in problems("bucket", {"tags": {"k": "a?b"}})[0].reason


def test_tags_of_the_provider_count_too() -> None:
    config = {"region": REGION, "defaultTags": {"tags": {f"d{n}": "v" for n in range(30)}}}
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {f"k{n}": "v" for n in range(30)}}
    found = MODEL.problems(token_of("vpc"), inputs, config)
    assert [problem.path for problem in found] == ["tags"]


@pytest.mark.parametrize("region", ["me-central-2", "uaenorth", "", "ME-CENTRAL-1"])
def test_a_region_that_aws_does_not_have_is_refused(region: str) -> None:
    assert MODEL.check_configuration({"region": region})[0].path == "region"


def test_a_region_abroad_is_a_region_and_sells_what_is_not_known_here() -> None:
    config = {"region": "us-east-1"}
    assert MODEL.check_configuration(config) == []
    assert MODEL.problems(token_of("template"), {"instanceType": "p4d.24xlarge"}, config) == []
    assert MODEL.problems(token_of("a"), {"availabilityZoneId": "use1-az6"}, config) == []


def test_a_provider_without_a_region_is_refused() -> None:
    assert "is missing" in MODEL.check_configuration({})[0].reason
    assert MODEL.check_configuration({"region": UNKNOWN}) == []


def _known(value: Any) -> Any:
    """Inputs without references to others: those are for the tests of conflicts."""
    if isinstance(value, dict):
        return {key: known for key, item in value.items() if (known := _known(item)) is not None}
    if isinstance(value, list):
        return [known for item in value if (known := _known(item)) is not None]
    if isinstance(value, str) and value.startswith("{") and "}" in value and '"' not in value:
        return UNKNOWN if value != "{}" else value
    return value


def _plain(path: str) -> str:
    return path.replace("[", ".").replace("]", "")


def test_only_the_newer_lustre_has_a_metadata_mode() -> None:
    sandbox = cloud()
    made = build(sandbox, "key", "vpc", "a", "group", "lustreTraffic")
    inputs = {**inputs_of("lustre", made), "metadataConfiguration": {"mode": "AUTOMATIC"}}
    sandbox.create(token_of("lustre"), "newer", inputs)
    older = {**inputs, "deploymentType": "PERSISTENT_1", "perUnitStorageThroughput": 200}
    with pytest.raises(SandboxError, match="metadataConfiguration: only PERSISTENT_2 takes it"):
        sandbox.create(token_of("lustre"), "older", older)
    del older["metadataConfiguration"]
    sandbox.create(token_of("lustre"), "older", older)


@pytest.mark.parametrize("machine", ["t3.micro", "t4g.large", "c7i-flex.large", "r8i-flex.large"])
def test_what_may_be_sold_for_all_that_is_known_is_taken(machine: str) -> None:
    sandbox = cloud()
    image = "ami-0123456789abcdef0"
    sandbox.create("aws:ec2/instance:Instance", "m", {"ami": image, "instanceType": machine})
    with pytest.raises(SandboxError, match="doesn't know whether me-central-1 sells"):
        sandbox.invoke("aws:ec2/getInstanceType:getInstanceType", {"instanceType": machine})
