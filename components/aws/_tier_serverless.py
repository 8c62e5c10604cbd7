"""The inference tier in serverless containers: an ECS service on Fargate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, named
from falaj.components.aws._tier_balancer import Tier, by_digest, subnet_ids
from falaj.components.aws.serving.boot import FOLDER, PORT, Serving, program
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierSpec

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
    """Make the cluster, the task definition, the service and its scaling."""
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
        "FALAJ_SERVING": json.dumps(serving.settings(secrets=_SECRETS, user=None, login=None)),
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
