"""The servers of an inference tier on AWS: machines of a scaling group, or an ECS service."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws import _launch_template as fragments
from falaj.components.aws._component import child, named
from falaj.components.aws._tier_access import Tier, by_digest, subnet_ids
from falaj.components.aws.serving.cloud_init import FOLDER, PORT, Serving, program, user_data
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierSpec

_DISK_GIB = 30
#: Booting, pulling, verifying and warming up; after that the load balancer's verdict counts.
_GRACE_S = 300
#: Amazon Linux 2023 with Docker: nothing has to be installed where only private endpoints are
#: reached. docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html
_IMAGES = {
    "x86_64": "/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id",
    "arm64": "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id",
}


_AMI = re.compile(r"ami-[0-9a-f]{8,17}")


def machine_image(tier: Tier) -> pulumi.Output[str]:
    """The AMI's id: the one that was named, or what an SSM parameter holds now.

    AWS publishes mended images under its parameters. A machine that asked at its own start would
    take one that nobody looked at, and a refresh of such a template can't tell old machines from
    new ones; here a preview shows the change, and the deployment replaces the machines.

    Raises:
        pulumi.RunError: (in an output) the parameter holds no AMI's id.
    """
    spec = tier.spec
    named_image: str | None = spec.args["machine_image"]
    if named_image and named_image.startswith("ami-"):
        return pulumi.Output.from_input(named_image)
    parameter = named_image or _IMAGES[spec.machine.arch if spec.machine else "x86_64"]
    # Its plain value, which a parameter that is a secret hasn't got: an AMI's id is none.
    found = aws.ssm.get_parameter_output(
        name=parameter,
        with_decryption=False,
        opts=pulumi.InvokeOutputOptions(parent=tier.component),
    )
    return found.insecure_value.apply(lambda value: _image_id(parameter, value or ""))


def _image_id(parameter: str, value: str) -> str:
    if _AMI.fullmatch(value):
        return value
    raise pulumi.RunError(
        f"machine_image: the SSM parameter {parameter!r} holds {value!r}; allowed: an AMI's id, "
        "such as ami-0123456789abcdef0, in a parameter of the type String"
    )


def scaling_group(
    tier: Tier, role: aws.iam.Role, granted: pulumi.Resource
) -> aws.autoscaling.Group:
    """Make the launch template, the scaling group and its policy.

    A new template replaces machines without an interruption, after the deployment: it starts the
    refresh and doesn't wait for its end, so it is said where that is seen.

    Args:
        tier: the tier.
        role: of the machines.
        granted: the role's policy, without which a machine can't start the server.
    """
    spec, parent = tier.spec, tier.component
    template = _launch_template(tier, role)
    group = aws.autoscaling.Group(
        spec.name,
        min_size=spec.min_instances,
        max_size=spec.max_instances,
        vpc_zone_identifiers=subnet_ids(spec, tier.args),
        launch_template=aws.autoscaling.GroupLaunchTemplateArgs(
            id=template.id, version=template.latest_version.apply(str)
        ),
        target_group_arns=[tier.balancer.targets.arn],
        health_check_type="ELB",
        health_check_grace_period=_GRACE_S,
        default_instance_warmup=_GRACE_S,
        # A new template replaces machines one by one, each before the old one goes. A refresh
        # that fails isn't rolled back: the provider has put the new template into the group
        # before, and a rollback would return to just that. Old machines that are left go on
        # serving. https://github.com/hashicorp/terraform-provider-aws/issues/34189
        instance_refresh=aws.autoscaling.GroupInstanceRefreshArgs(
            strategy="Rolling",
            preferences=aws.autoscaling.GroupInstanceRefreshPreferencesArgs(
                min_healthy_percentage=100,
                max_healthy_percentage=200,
                skip_matching=True,
            ),
        ),
        tags=[
            aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=False)
            for key, value in tier.tags.items()
        ],
        # The listener ties the target group to the balancer, without which no check can pass.
        opts=child(parent, depends_on=[granted, tier.balancer.listener]),
    )
    aws.autoscaling.Policy(
        f"{spec.name}-cpu",
        autoscaling_group_name=group.name,
        policy_type="TargetTrackingScaling",
        estimated_instance_warmup=_GRACE_S,
        target_tracking_configuration=aws.autoscaling.PolicyTargetTrackingConfigurationArgs(
            predefined_metric_specification=(
                aws.autoscaling.PolicyTargetTrackingConfigurationPredefinedMetricSpecificationArgs(
                    predefined_metric_type="ASGAverageCPUUtilization"
                )
            ),
            target_value=float(spec.args["cpu_target_percent"]),
        ),
        opts=child(parent),
    )
    group.name.apply(lambda name: _say_where_a_refresh_is_seen(tier, name))
    return group


def _say_where_a_refresh_is_seen(tier: Tier, group: str) -> None:
    pulumi.log.info(
        "machines are replaced after the deployment, which doesn't wait for them; how far they "
        "are, and why they may have stopped: aws autoscaling describe-instance-refreshes "
        f"--auto-scaling-group-name {group} --region {tier.spec.placed.region}",
        tier.component,
    )


def _launch_template(tier: Tier, role: aws.iam.Role) -> aws.ec2.LaunchTemplate:
    spec, parent, args = tier.spec, tier.component, tier.args
    if spec.machine is None:
        raise AssertionError("mode 'instances' has a machine")
    profile = aws.iam.InstanceProfile(
        spec.name,
        name=named(spec.placed, spec.name, limit=128),
        role=role.name,
        tags=tier.tags,
        opts=child(parent),
    )
    sessions: bool = spec.args["session_manager"]
    boot = pulumi.Output.all(args["image"], tier.log_group.name, tier.serving).apply(
        lambda known: user_data(
            by_digest(str(known[0])), str(known[1]), known[2], sessions=sessions
        )
    )
    return aws.ec2.LaunchTemplate(
        spec.name,
        description=f"{spec.machine} of inference tier {spec.name}",
        image_id=machine_image(tier),
        instance_type=spec.machine.name,
        update_default_version=True,
        iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=profile.arn),
        block_device_mappings=[fragments.encrypted_disk(_DISK_GIB, args["disk_encryption_id"])],
        # One hop: the server's container can't ask for the machine's credentials.
        metadata_options=fragments.session_metadata(),
        monitoring=aws.ec2.LaunchTemplateMonitoringArgs(enabled=True),
        vpc_security_group_ids=[args["security_group_id"]],
        user_data=boot,
        tag_specifications=fragments.tag_specifications(tier.tags),
        tags=tier.tags,
        opts=child(parent),
    )


#: Fargate has no memory file systems but this one.
_SECRETS = "/dev/shm/falaj"  # noqa: S108 - memory, not a shared disk
_PROGRAMS = ("FALAJ_FETCH", "FALAJ_START")
#: Both programs run in one interpreter, one after the other; the second becomes the server.
_RUN = (
    "import os\n"
    f"for name in {_PROGRAMS!r}:\n"
    "    exec(compile(os.environ.pop(name), name, 'exec'), {'__name__': '__main__'})\n"
)
_PLATFORM = "1.4.0"


@dataclass(frozen=True)
class TaskRoles:
    """Roles of a task."""

    server: aws.iam.Role
    """What the container may do."""
    agent: aws.iam.Role
    """What ECS does for it: pull the image, write the log."""
    granted: tuple[pulumi.Resource, ...]


def service(tier: Tier, roles: TaskRoles) -> aws.ecs.Service:
    """Make the service on Fargate: its cluster, its task definition, its scaling."""
    spec, parent, tags = tier.spec, tier.component, tier.tags
    cluster = aws.ecs.Cluster(
        spec.name,
        name=named(spec.placed, spec.name, limit=255),
        settings=[aws.ecs.ClusterSettingArgs(name="containerInsights", value="enabled")],
        tags=tags,
        opts=child(parent),
    )

    def definitions(known: list[Any]) -> str:
        return json.dumps([container(spec, by_digest(known[0]), known[1], known[2])])

    containers = pulumi.Output.all(tier.args["image"], tier.log_group.name, tier.serving)
    task = aws.ecs.TaskDefinition(
        spec.name,
        family=named(spec.placed, spec.name, limit=255),
        requires_compatibilities=["FARGATE"],
        network_mode="awsvpc",
        cpu=str(spec.vcpu * 1024),
        memory=str(spec.memory_gib * 1024),
        runtime_platform=aws.ecs.TaskDefinitionRuntimePlatformArgs(
            operating_system_family="LINUX", cpu_architecture="X86_64"
        ),
        execution_role_arn=roles.agent.arn,
        task_role_arn=roles.server.arn,
        volumes=[aws.ecs.TaskDefinitionVolumeArgs(name=name) for name in ("data", "scratch")],
        container_definitions=containers.apply(definitions),
        tags=tags,
        opts=child(parent),
    )
    made = aws.ecs.Service(
        spec.name,
        name=named(spec.placed, spec.name, limit=255),
        cluster=cluster.arn,
        task_definition=task.arn,
        launch_type="FARGATE",
        platform_version=_PLATFORM,
        desired_count=spec.min_instances,
        # A new task serves before the old one goes; one that doesn't start is taken back.
        deployment_minimum_healthy_percent=100,
        deployment_maximum_percent=200,
        deployment_circuit_breaker=aws.ecs.ServiceDeploymentCircuitBreakerArgs(
            enable=True, rollback=True
        ),
        enable_execute_command=False,
        health_check_grace_period_seconds=120,
        network_configuration=aws.ecs.ServiceNetworkConfigurationArgs(
            subnets=subnet_ids(spec, tier.args),
            security_groups=[tier.args["security_group_id"]],
            assign_public_ip=False,
        ),
        load_balancers=[
            aws.ecs.ServiceLoadBalancerArgs(
                target_group_arn=tier.balancer.targets.arn,
                container_name="server",
                container_port=PORT,
            )
        ],
        propagate_tags="SERVICE",
        tags=tags,
        opts=child(
            parent,
            depends_on=[*roles.granted, tier.balancer.listener],
            # The scaling policy's from then on.
            ignore_changes=["desiredCount"],
        ),
    )
    _scale(tier, cluster, made)
    return made


def container(
    spec: CpuInferenceTierSpec, image: str, log_group: str, serving: Serving
) -> dict[str, Any]:
    """The container's definition; it holds no secrets."""
    environment = {
        "FALAJ_SERVING": json.dumps(serving.settings(secrets=_SECRETS, user=None)),
        "FALAJ_FETCH": program("fetch.py"),
        "FALAJ_START": program("start_server.py"),
    }
    return {
        "name": "server",
        "image": image,
        "essential": True,
        "entryPoint": ["python", "-c"],
        "command": [_RUN],
        "environment": [{"name": key, "value": text} for key, text in environment.items()],
        # Volumes of Fargate belong to root. Root of a machine of its own, which no other task
        # shares, without capabilities and on a file system that it can't write.
        "user": "0:0",
        "readonlyRootFilesystem": True,
        "linuxParameters": {"capabilities": {"drop": ["ALL"]}, "initProcessEnabled": True},
        "mountPoints": [
            {"sourceVolume": "data", "containerPath": FOLDER, "readOnly": False},
            {"sourceVolume": "scratch", "containerPath": "/tmp", "readOnly": False},  # noqa: S108
        ],
        "portMappings": [{"containerPort": PORT, "hostPort": PORT, "protocol": "tcp"}],
        "stopTimeout": 60,
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": log_group,
                "awslogs-region": spec.placed.region,
                "awslogs-stream-prefix": spec.name,
                "mode": "non-blocking",
            },
        },
    }


def _scale(tier: Tier, cluster: aws.ecs.Cluster, made: aws.ecs.Service) -> None:
    spec, parent = tier.spec, tier.component
    target = aws.appautoscaling.Target(
        spec.name,
        service_namespace="ecs",
        scalable_dimension="ecs:service:DesiredCount",
        resource_id=pulumi.Output.concat("service/", cluster.name, "/", made.name),
        min_capacity=spec.min_instances,
        max_capacity=spec.max_instances,
        tags=tier.tags,
        opts=child(parent),
    )
    aws.appautoscaling.Policy(
        f"{spec.name}-cpu",
        policy_type="TargetTrackingScaling",
        service_namespace=target.service_namespace,
        scalable_dimension=target.scalable_dimension,
        resource_id=target.resource_id,
        target_tracking_scaling_policy_configuration=(
            aws.appautoscaling.PolicyTargetTrackingScalingPolicyConfigurationArgs(
                predefined_metric_specification=(
                    aws.appautoscaling.PolicyTargetTrackingScalingPolicyConfigurationPredefinedMetricSpecificationArgs(
                        predefined_metric_type="ECSServiceAverageCPUUtilization"
                    )
                ),
                target_value=float(spec.args["cpu_target_percent"]),
                scale_in_cooldown=300,
                scale_out_cooldown=60,
            )
        ),
        opts=child(parent),
    )
