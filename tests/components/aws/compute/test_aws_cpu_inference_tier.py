"""The inference tier on AWS: what stands in front, what may be read, how it is replaced."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
import yaml

from falaj.components.aws import CpuInferenceTier
from falaj.components.aws._tier_access import TLS_POLICY, by_digest
from falaj.components.aws._tier_servers import _IMAGES
from falaj.sandbox.clouds.aws.queries import image_id

BALANCER = "aws:lb/loadBalancer:LoadBalancer"
LISTENER = "aws:lb/listener:Listener"
TARGETS = "aws:lb/targetGroup:TargetGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
SECRET = "aws:secretsmanager/secret:Secret"
AUTHORITY = "aws:acmpca/certificateAuthority:CertificateAuthority"
SERVICE = "aws:ecs/service:Service"
TASK = "aws:ecs/taskDefinition:TaskDefinition"
DOCUMENT = "aws:ssm/document:Document"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


#: What was deployed, by its changes: deployments are only looked at.
_DEPLOYED: dict[str, Any] = {}


@pytest.fixture
def tier(deploy: Any, foundation: Any) -> Callable[..., Any]:
    """Deploys a tier; the same one only once."""

    def make(**changes: Any) -> Any:
        return _DEPLOYED.get(repr(sorted(changes.items()))) or fresh(changes)

    def fresh(changes: dict[str, Any]) -> Any:
        def program(options: pulumi.ResourceOptions) -> Any:
            args = {**foundation(options)["tier"], **changes}
            given = {key: value for key, value in args.items() if value is not None}
            return CpuInferenceTier("tier", given, options)

        done = _DEPLOYED[repr(sorted(changes.items()))] = deploy(program)
        return done

    return make


def only(done: Any, kind: str) -> Any:
    """Inputs of the one resource of a type."""
    [found] = done.of_type(kind)
    return found.inputs


def test_a_tag_is_refused_even_if_it_was_an_output() -> None:
    with pytest.raises(ValueError, match="a tag can be moved to another image"):
        by_digest("host/inference:latest")


def test_the_balancer_is_internal_and_speaks_tls_13_only(tier: Callable[..., Any]) -> None:
    done = tier()
    balancer = only(done, BALANCER)
    assert balancer["internal"] is True
    assert balancer["loadBalancerType"] == "network"
    assert len(balancer["securityGroups"]) == 2
    listener = only(done, LISTENER)
    assert (listener["protocol"], listener["port"]) == ("TLS", 443)
    assert listener["sslPolicy"] == TLS_POLICY == "ELBSecurityPolicy-TLS13-1-3-2021-06"
    targets = only(done, TARGETS)
    assert (targets["protocol"], targets["port"]) == ("TLS", 8443)
    assert targets["targetType"] == "instance"
    assert targets["deregistrationDelay"] == 30
    assert targets["healthCheck"]["protocol"] == "TCP"
    assert done.returned["endpoint"] == "https://inference.acme.internal"


def test_machines(tier: Callable[..., Any]) -> None:
    done = tier()
    template = only(done, TEMPLATE)
    assert template["instanceType"] == "c7i.large"
    # Resolved now: machines of one template have one image.
    assert template["imageId"] == image_id("me-central-1", _IMAGES["x86_64"])
    assert template["metadataOptions"]["httpTokens"] == "required"
    assert template["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert template["blockDeviceMappings"][0]["ebs"]["encrypted"] == "true"
    assert "keyName" not in template
    assert "networkInterfaces" not in template
    group = only(done, GROUP)
    assert (group["minSize"], group["maxSize"]) == (1, 3)
    assert group["healthCheckType"] == "ELB"
    preferences = group["instanceRefresh"]["preferences"]
    assert preferences["minHealthyPercentage"] == 100
    assert preferences["maxHealthyPercentage"] == 200
    assert "autoRollback" not in preferences
    assert group["launchTemplate"]["version"] == "1"
    policy = only(done, "aws:autoscaling/policy:Policy")
    assert policy["targetTrackingConfiguration"]["targetValue"] == 60


def test_user_data_starts_this_package(tier: Callable[..., Any]) -> None:
    template = only(tier(host_name="churn.acme.internal"), TEMPLATE)
    text = gzip.decompress(base64.b64decode(template["userData"])).decode()
    document = yaml.safe_load(text)
    files = {each["path"]: each["content"] for each in document["write_files"]}
    settings = json.loads(files["/opt/falaj/serving.json"])
    assert settings["repository"].endswith(".amazonaws.com/acme/models/churn")
    assert settings["package_digest"] == "sha256:" + "b" * 64
    assert settings["keys_digest"] == "sha256:" + "c" * 64
    assert (settings["model"], settings["version"]) == ("churn", 3)
    assert settings["keyring"].startswith("arn:aws:secretsmanager:me-central-1:")
    assert settings["host_name"] == "churn.acme.internal"
    unit = files["/etc/systemd/system/falaj-inference.service"]
    assert "/acme/inference@sha256:" + "a" * 64 in unit
    assert "awslogs-group=/falaj/acme/dev/tier/server" in unit


def test_the_role_pulls_from_two_repositories_and_reads_the_key_ring(
    tier: Callable[..., Any],
) -> None:
    done = tier()
    [document] = [
        json.loads(each.inputs["policy"])
        for each in done.of_type("aws:iam/rolePolicy:RolePolicy")
        if each.name == "tier-server"
    ]
    statements = {each["Sid"]: each for each in document["Statement"]}
    [packages] = statements["PullPackage"]["Resource"]
    assert packages.endswith(":repository/acme/models/churn")
    assert not [each for each in statements.values() if "s3:" in str(each["Action"])]
    assert statements["Decrypt"]["Action"] == ["kms:Decrypt"]
    assert statements["ReadKeyRing"]["Resource"][0].startswith("arn:aws:secretsmanager:")
    assert statements["PullImage"]["Resource"][0].endswith(":repository/acme/inference")
    assert statements["WriteLog"]["Resource"][0].endswith("/falaj/acme/dev/tier/server:*")
    wide = [each["Action"] for each in statements.values() if each["Resource"] == ["*"]]
    assert wide == [["ecr:GetAuthorizationToken"]]
    assert done.returned["identity_id"].endswith(":role/acme-dev-tier-server")


def test_nobody_has_a_shell_unless_it_is_asked_for(tier: Callable[..., Any]) -> None:
    done = tier()
    assert not done.of_type(DOCUMENT)
    [statements] = policies(done)
    assert not [each for each in statements if each in ("HaveSessions", "FindLogGroup")]
    assert "amazon-ssm-agent.service" in commands(done)[0]


def test_sessions_are_encrypted_and_logged(tier: Callable[..., Any]) -> None:
    done = tier(session_manager=True)
    document = only(done, DOCUMENT)
    assert document["documentType"] == "Session"
    inputs = json.loads(document["content"])["inputs"]
    assert inputs["cloudWatchLogGroupName"] == "/falaj/acme/dev/tier/server"
    assert inputs["cloudWatchEncryptionEnabled"] is True
    [key] = [each for each in done.of_type("aws:kms/key:Key") if each.name == "tier-session"]
    assert inputs["kmsKeyId"] == key.outputs["arn"]
    [statements] = policies(done)
    assert statements["DecryptSessions"]["Resource"] == [key.outputs["arn"]]
    # Agent and people call KMS themselves, and not through a service.
    assert "kms:ViaService" not in key.inputs["policy"]
    services = {each.partition(":")[0] for each in statements["HaveSessions"]["Action"]}
    assert services == {"ssm", "ssmmessages"}
    assert statements["FindLogGroup"]["Action"] == ["logs:DescribeLogGroups"]
    assert commands(done)[:2] == [
        ["systemctl", "mask", "--now", "sshd.service", "ecs.service"],
        ["systemctl", "enable", "--now", "--no-block", "amazon-ssm-agent.service"],
    ]


def policies(done: Any) -> list[dict[str, Any]]:
    """Statements of the machines' policy by their ids."""
    return [
        {one["Sid"]: one for one in json.loads(each.inputs["policy"])["Statement"]}
        for each in done.of_type("aws:iam/rolePolicy:RolePolicy")
        if each.name == "tier-server"
    ]


def commands(done: Any) -> list[list[str]]:
    """What machines run when they start."""
    text = gzip.decompress(base64.b64decode(only(done, TEMPLATE)["userData"])).decode()
    return yaml.safe_load(text)["runcmd"]


def test_by_default_the_network_may_call(tier: Callable[..., Any]) -> None:
    rules = [
        each.inputs for each in tier().of_type(INGRESS) if each.name.startswith("tier-callers")
    ]
    assert [(each["cidrIpv4"], each["fromPort"]) for each in rules] == [("10.64.0.0/16", 443)]


def test_callers_and_port(tier: Callable[..., Any]) -> None:
    done = tier(allowed_cidrs=["10.1.0.0/16", "192.168.0.0/24"], port=8444)
    rules = [each.inputs for each in done.of_type(INGRESS) if each.name.startswith("tier-callers")]
    ranges = {(each["cidrIpv4"], each["fromPort"], each["toPort"]) for each in rules}
    assert ranges == {("10.1.0.0/16", 8444, 8444), ("192.168.0.0/24", 8444, 8444)}
    assert only(done, LISTENER)["port"] == 8444
    assert done.returned["endpoint"] == "https://inference.acme.internal:8444"


def test_the_name_is_private(tier: Callable[..., Any]) -> None:
    done = tier()
    zone = only(done, "aws:route53/zone:Zone")
    assert zone["name"] == "inference.acme.internal"
    assert zone["vpcs"][0]["vpcRegion"] == "me-central-1"
    record = only(done, "aws:route53/record:Record")
    assert ".elb.me-central-1.amazonaws.com" in record["aliases"][0]["name"]


def test_no_authority_is_made_unless_it_is_asked_for(tier: Callable[..., Any]) -> None:
    done = tier()
    assert not [each.type for each in done.resources if each.type.startswith("aws:acm")]
    assert only(done, LISTENER)["certificateArn"].startswith("arn:aws:acm:me-central-1:1111")


def test_an_authority_of_its_own(tier: Callable[..., Any]) -> None:
    done = tier(private_authority=True, certificate_id=None)
    authority = only(done, AUTHORITY)
    assert authority["usageMode"] == "GENERAL_PURPOSE"
    assert authority["certificateAuthorityConfiguration"]["subject"]["country"] == "AE"
    certificate = only(done, "aws:acm/certificate:Certificate")
    assert certificate["domainName"] == "inference.acme.internal"
    assert only(done, LISTENER)["certificateArn"].startswith("arn:aws:acm:me-central-1:0000")


def test_given_certificate_and_key_ring_are_used(deploy: Any, foundation: Any) -> None:
    def program(options: pulumi.ResourceOptions) -> Any:
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        own = aws.acm.Certificate(
            "own", domain_name="a.acme.internal", validation_method="DNS", opts=provider
        )
        ring = aws.secretsmanager.Secret("ring", name="ring", opts=provider)
        given = {"certificate_id": own.arn, "keyring_secret_id": ring.arn}
        return CpuInferenceTier("tier", {**foundation(options)["tier"], **given}, options)

    done = deploy(program)
    assert not done.of_type(AUTHORITY)
    assert [each.name for each in done.of_type(SECRET)] == ["ring"]
    assert only(done, LISTENER)["certificateArn"] == only_id(
        done, "aws:acm/certificate:Certificate"
    )


def only_id(done: Any, kind: str) -> str:
    """ARN of the one resource of a type."""
    [found] = done.of_type(kind)
    return found.outputs["arn"]


def test_the_key_rings_secret_is_empty_and_encrypted(tier: Callable[..., Any]) -> None:
    done = tier()
    secret = only(done, SECRET)
    assert secret["kmsKeyId"].startswith("arn:aws:kms:me-central-1:")
    assert secret["recoveryWindowInDays"] == 0
    assert not done.of_type("aws:secretsmanager/secretVersion:SecretVersion")


def test_production_protects_the_balancer_and_keeps_keys(tier: Callable[..., Any]) -> None:
    done = tier(environment="production", private_authority=True, certificate_id=None)
    assert only(done, BALANCER)["enableDeletionProtection"] is True
    assert only(done, SECRET)["recoveryWindowInDays"] == 30
    assert only(done, AUTHORITY)["permanentDeletionTimeInDays"] == 30


def test_graviton_and_its_image(tier: Callable[..., Any]) -> None:
    template = only(tier(int8="i8mm"), TEMPLATE)
    assert template["instanceType"].startswith("c8gn.")
    assert template["imageId"] == image_id("me-central-1", _IMAGES["arm64"])


def test_a_pinned_image_is_asked_of_nobody(tier: Callable[..., Any]) -> None:
    pinned = "ami-0123456789abcdef0"
    assert only(tier(machine_image=pinned), TEMPLATE)["imageId"] == pinned


def of_parameter(kind: str, value: str) -> Callable[..., Any]:
    """A program that takes its image from a parameter of one's own."""

    def program(options: pulumi.ResourceOptions, foundation: Any) -> Any:
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        name = "/acme/images/serving"
        own = aws.ssm.Parameter("image", name=name, type=kind, value=value, opts=provider)
        args = {**foundation(options)["tier"], "machine_image": name}
        return own.arn.apply(lambda _: CpuInferenceTier("tier", args, options))

    return program


def test_an_image_of_ones_own_parameter(deploy: Any, foundation: Any) -> None:
    program = of_parameter("String", "ami-0123456789abcdef1")
    done = deploy(lambda opts: program(opts, foundation))
    assert only(done, TEMPLATE)["imageId"] == "ami-0123456789abcdef1"


@pytest.mark.parametrize(
    ("kind", "value", "seen"),
    [("String", "al2023", "al2023"), ("SecureString", "ami-0123456789abcdef1", "")],
)
def test_a_parameter_without_an_image_is_refused(
    kind: str, value: str, seen: str, deploy: Any, foundation: Any
) -> None:
    program = of_parameter(kind, value)
    with pytest.raises(
        Exception, match=rf"'/acme/images/serving' holds '{seen}'; allowed: an AMI"
    ):
        deploy(lambda opts: program(opts, foundation))


def test_serverless(tier: Callable[..., Any]) -> None:
    done = tier(mode="serverless", vcpu=4, memory_gib=8, min_instances=2, cpu_target_percent=50)
    assert not done.of_type(TEMPLATE)
    assert not done.of_type(GROUP)
    assert only(done, TARGETS)["targetType"] == "ip"
    service = only(done, SERVICE)
    assert service["launchType"] == "FARGATE"
    assert service["desiredCount"] == 2
    assert service["networkConfiguration"]["assignPublicIp"] is False
    assert service["enableExecuteCommand"] is False
    assert service["deploymentCircuitBreaker"] == {"enable": True, "rollback": True}
    task = only(done, TASK)
    assert (task["cpu"], task["memory"], task["networkMode"]) == ("4096", "8192", "awsvpc")
    assert task["taskRoleArn"] != task["executionRoleArn"]
    [container] = json.loads(task["containerDefinitions"])
    assert container["readonlyRootFilesystem"] is True
    assert container["linuxParameters"]["capabilities"] == {"drop": ["ALL"]}
    assert container["logConfiguration"]["options"]["awslogs-group"] == (
        "/falaj/acme/dev/tier/server"
    )
    environment = {each["name"]: each["value"] for each in container["environment"]}
    assert json.loads(environment["FALAJ_SERVING"])["login"] == "/dev/shm/falaj/login"
    statements = {
        each.name: {one["Sid"] for one in json.loads(each.inputs["policy"])["Statement"]}
        for each in done.of_type("aws:iam/rolePolicy:RolePolicy")
        if each.name.startswith("tier-")
    }
    server = {"RegistryLogin", "PullPackage", "ReadKeyRing", "Decrypt"}
    assert statements["tier-server"] == server
    assert statements["tier-agent"] == {"RegistryLogin", "PullImage", "WriteLog"}
    compile(container["command"][0], "command", "exec")
    scaling = only(done, "aws:appautoscaling/policy:Policy")
    tracking = scaling["targetTrackingScalingPolicyConfiguration"]
    assert tracking["targetValue"] == 50


def test_a_container_runs_both_programs_in_order(tmp_path: Any) -> None:
    import subprocess
    import sys

    from falaj.components.aws._tier_servers import _RUN

    log = tmp_path / "log"
    environment = {
        "FALAJ_FETCH": f"open({str(log)!r}, 'a').write('fetch ' + __name__ + ' ')",
        "FALAJ_START": f"open({str(log)!r}, 'a').write('start')",
    }
    subprocess.run([sys.executable, "-c", _RUN], env=environment, check=True)
    assert log.read_text() == "fetch __main__ start"
