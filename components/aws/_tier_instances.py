"""The inference tier on machines: a scaling group that is replaced without an interruption."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from falaj.components.aws import _launch_template as fragments
from falaj.components.aws._component import child, named
from falaj.components.aws._tier_balancer import Tier, by_digest, subnet_ids
from falaj.components.aws.serving.boot import user_data
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


def machine_image(spec: CpuInferenceTierSpec) -> str:
    """The AMI's id, or a reference that EC2 resolves at each start of a machine."""
    if spec.args["machine_image"] and spec.args["machine_image"].startswith("ami-"):
        return spec.args["machine_image"]
    parameter = (
        spec.args["machine_image"] or _IMAGES[spec.machine.arch if spec.machine else "x86_64"]
    )
    return f"resolve:ssm:{parameter}"


def scaling_group(
    tier: Tier, role: aws.iam.Role, granted: pulumi.Resource
) -> aws.autoscaling.Group:
    """Make the launch template, the scaling group and its policy.

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
        # A new template replaces machines one by one, each before the old one goes.
        instance_refresh=aws.autoscaling.GroupInstanceRefreshArgs(
            strategy="Rolling",
            preferences=aws.autoscaling.GroupInstanceRefreshPreferencesArgs(
                min_healthy_percentage=100,
                max_healthy_percentage=200,
                auto_rollback=True,
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
    return group


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
    boot = pulumi.Output.all(args["image"], tier.log_group.name, tier.serving).apply(
        lambda known: user_data(by_digest(str(known[0])), str(known[1]), known[2])
    )
    return aws.ec2.LaunchTemplate(
        spec.name,
        description=f"{spec.machine} of inference tier {spec.name}",
        image_id=machine_image(spec),
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
