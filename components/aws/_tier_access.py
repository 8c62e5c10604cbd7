"""What an inference tier may reach on AWS, and how it is reached itself.

Its roles pull its image and its package, read its key ring and log. In front of it stands an
internal load balancer: TLS 1.3 to callers, TLS to the machines, with a private name and a
certificate that was given, or comes from an authority of the tier's own in the region.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import ROLE_LIMIT, child, named, stateful
from falaj.components.aws._iam import PULL_IMAGES, Statement, document, trust
from falaj.components.aws.serving.cloud_init import PORT, Serving
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    is_by_digest,
)
from falaj.components.specification.machine_choice import subnets_of


@dataclass(frozen=True)
class Needs:
    """ARNs of what the tier uses."""

    packages: pulumi.Input[str]
    images: pulumi.Input[str]
    data_key: pulumi.Input[str]
    keyring: pulumi.Output[str]
    log_group: pulumi.Output[str]

    def log_in(self) -> Statement:
        """Ask for a login to the account's registry; it names no resource, and lets nothing be
        pulled that another statement doesn't."""
        return Statement("RegistryLogin", ["ecr:GetAuthorizationToken"], ["*"])

    def read_package(self) -> list[Statement]:
        """Pull from the repository of the model's packages, and read the key ring."""
        return [
            Statement("PullPackage", PULL_IMAGES, [self.packages]),
            Statement("ReadKeyRing", ["secretsmanager:GetSecretValue"], [self.keyring]),
            Statement("Decrypt", ["kms:Decrypt"], [self.data_key]),
        ]

    def pull_and_log(self) -> list[Statement]:
        """Pull from the repository of the image and write to one log group."""
        return [
            Statement("PullImage", PULL_IMAGES, [self.images]),
            Statement(
                "WriteLog",
                ["logs:CreateLogStream", "logs:PutLogEvents"],
                [self.log_group.apply(lambda arn: f"{arn}:*")],
            ),
        ]


def keyring_secret(
    parent: pulumi.Resource, spec: CpuInferenceTierSpec, args: CpuInferenceTierArgs
) -> pulumi.Output[str]:
    """ARN of the key ring's secret: the one that was given, or an empty one made here."""
    given = args.get("keyring_secret_id")
    if given is not None:
        return pulumi.Output.from_input(given)
    secret = aws.secretsmanager.Secret(
        f"{spec.name}-keyring",
        name=named(spec.placed, spec.name, "keyring", limit=512),
        description=f"Key ring of {spec.args['model']}: a tar archive in base64",
        kms_key_id=args["data_key_id"],
        # Zero: a test's secret is gone at once, and its name free.
        recovery_window_in_days=30 if spec.placed.retained else 0,
        tags=spec.placed.tags(spec.name),
        opts=stateful(parent, spec.placed),
    )
    return secret.arn


def tier_role(
    parent: pulumi.Resource,
    spec: CpuInferenceTierSpec,
    duty: str,
    *statements: Statement,
    trusted: pulumi.Output[str],
    boundary: pulumi.Input[str] | None,
) -> tuple[aws.iam.Role, aws.iam.RolePolicy]:
    """A role of the tier with its one policy."""
    made = aws.iam.Role(
        f"{spec.name}-{duty}",
        name=named(spec.placed, spec.name, duty, limit=ROLE_LIMIT),
        description=f"{duty} of the inference tier {spec.name}",
        assume_role_policy=trusted,
        permissions_boundary=boundary,
        tags=spec.placed.tags(spec.name),
        opts=child(parent),
    )
    policy = aws.iam.RolePolicy(
        f"{spec.name}-{duty}",
        role=made.name,
        policy=document(*statements),
        opts=child(parent),
    )
    return made, policy


def machine_trust() -> pulumi.Output[str]:
    """Trust in machines. EC2 tells no account when it takes a role; there is none to compare."""
    return document(
        Statement("Machines", ["sts:AssumeRole"], principals={"Service": ["ec2.amazonaws.com"]})
    )


def task_trust(account: pulumi.Output[str]) -> pulumi.Output[str]:
    """Trust in this account's containers."""
    return account.apply(lambda number: trust("ecs-tasks.amazonaws.com", number))


#: TLS 1.3 and nothing older; it encrypts to targets with up to TLS 1.3, too:
#: docs.aws.amazon.com/elasticloadbalancing/latest/network/describe-ssl-policies.html
TLS_POLICY = "ELBSecurityPolicy-TLS13-1-3-2021-06"
_DRAIN_S = 30


def subnet_ids(spec: CpuInferenceTierSpec, args: CpuInferenceTierArgs) -> pulumi.Output[list[str]]:
    """Subnets of the tier's zones."""
    where = f"serving_subnet_ids of inference tier {spec.name!r}"

    def chosen(known: Mapping[str, str]) -> list[str]:
        return subnets_of(known, spec.zones, where=where, all_needed=spec.zones_named)

    return pulumi.Output.from_input(args["serving_subnet_ids"]).apply(chosen)


class Balancer:
    """Makes the load balancer, its listener and target group, and the private name."""

    def __init__(
        self,
        parent: pulumi.Resource,
        spec: CpuInferenceTierSpec,
        args: CpuInferenceTierArgs,
        certificate_arn: pulumi.Input[str],
    ) -> None:
        self._parent = parent
        self._spec = spec
        self._tags = spec.placed.tags(spec.name)
        # Names have 32 characters at most, of which the engine adds eight.
        self._short = spec.name[:24].rstrip("-")
        self.targets = self._target_group(args)
        callers = self._callers(args)
        self._balancer = aws.lb.LoadBalancer(
            self._short,
            internal=True,
            load_balancer_type="network",
            ip_address_type="ipv4",
            subnets=subnet_ids(spec, args),
            # The network's own group lets nodes in and lets it reach machines; the other lets
            # callers in.
            security_groups=[args["security_group_id"], callers.id],
            enable_cross_zone_load_balancing=True,
            enable_deletion_protection=spec.placed.retained,
            tags=self._tags,
            opts=child(parent),
        )
        self.listener = aws.lb.Listener(
            spec.name,
            load_balancer_arn=self._balancer.arn,
            port=spec.port,
            protocol="TLS",
            ssl_policy=TLS_POLICY,
            certificate_arn=certificate_arn,
            default_actions=[
                aws.lb.ListenerDefaultActionArgs(type="forward", target_group_arn=self.targets.arn)
            ],
            tags=self._tags,
            opts=child(parent),
        )
        self._name_it(args)

    def _target_group(self, args: CpuInferenceTierArgs) -> aws.lb.TargetGroup:
        return aws.lb.TargetGroup(
            self._short,
            vpc_id=args["network_id"],
            port=PORT,
            protocol="TLS",
            target_type="ip" if self._spec.args["mode"] == "serverless" else "instance",
            deregistration_delay=_DRAIN_S,
            connection_termination=True,
            # By TCP: checks by HTTPS speak TLS 1.2 at most, which the server refuses. Its
            # supervisor starts it again when it fails. docs.aws.amazon.com/elasticloadbalancing/
            # latest/network/target-group-health-checks.html
            health_check=aws.lb.TargetGroupHealthCheckArgs(
                protocol="TCP",
                port="traffic-port",
                interval=10,
                healthy_threshold=3,
                unhealthy_threshold=3,
            ),
            tags=self._tags,
            opts=child(self._parent),
        )

    def _callers(self, args: CpuInferenceTierArgs) -> aws.ec2.SecurityGroup:
        """A group that lets private ranges call: those given, or the network's own."""
        spec = self._spec
        group = aws.ec2.SecurityGroup(
            f"{spec.name}-callers",
            vpc_id=args["network_id"],
            description=f"Callers of the inference tier {spec.name}",
            revoke_rules_on_delete=True,
            tags={**self._tags, "Name": f"{spec.name}-callers"},
            opts=child(self._parent),
        )
        ranges: list[pulumi.Input[str]] = list(spec.allowed_cidrs)
        if not ranges:
            network = aws.ec2.get_vpc_output(
                id=args["network_id"], opts=pulumi.InvokeOutputOptions(parent=self._parent)
            )
            ranges = [network.cidr_block]
        for position, cidr in enumerate(ranges):
            aws.vpc.SecurityGroupIngressRule(
                f"{spec.name}-callers-{position}",
                security_group_id=group.id,
                cidr_ipv4=cidr,
                ip_protocol="tcp",
                from_port=spec.port,
                to_port=spec.port,
                description="Callers of the inference tier",
                tags=self._tags,
                opts=child(self._parent),
            )
        return group

    def _name_it(self, args: CpuInferenceTierArgs) -> None:
        """The private name: a zone of exactly that name, so that it covers no other."""
        spec = self._spec
        zone = aws.route53.Zone(
            spec.name,
            name=spec.host_name,
            comment=f"Inference tier {spec.name}",
            vpcs=[
                aws.route53.ZoneVpcArgs(vpc_id=args["network_id"], vpc_region=spec.placed.region)
            ],
            force_destroy=False,
            tags=self._tags,
            opts=child(self._parent),
        )
        aws.route53.Record(
            spec.name,
            zone_id=zone.zone_id,
            name=spec.host_name,
            type="A",
            aliases=[
                aws.route53.RecordAliasArgs(
                    name=self._balancer.dns_name,
                    zone_id=self._balancer.zone_id,
                    evaluate_target_health=True,
                )
            ],
            opts=child(self._parent),
        )


#: docs.aws.amazon.com/privateca/latest/userguide/UsingTemplates.html
_ROOT_TEMPLATE = "arn:aws:acm-pca:::template/RootCACertificate/V1"
_SIGNATURE = "SHA384WITHECDSA"
_YEARS = 10


def private_certificate(parent: pulumi.Resource, spec: CpuInferenceTierSpec) -> pulumi.Output[str]:
    """ARN of a certificate for the tier's name, which ACM renews by itself.

    The authority is a general-purpose one: ACM can't issue from those for short-lived certificates
    (docs.aws.amazon.com/privateca/latest/userguide/short-lived-certificates.html). It issues for
    nobody else, so that there is nothing to revoke.
    """
    tags = spec.placed.tags(spec.name)
    authority = aws.acmpca.CertificateAuthority(
        f"{spec.name}-authority",
        type="ROOT",
        usage_mode="GENERAL_PURPOSE",
        key_storage_security_standard="FIPS_140_2_LEVEL_3_OR_HIGHER",
        certificate_authority_configuration=(
            aws.acmpca.CertificateAuthorityCertificateAuthorityConfigurationArgs(
                key_algorithm="EC_secp384r1",
                signing_algorithm=_SIGNATURE,
                subject=(
                    aws.acmpca.CertificateAuthorityCertificateAuthorityConfigurationSubjectArgs(
                        # X.520: a common name has at most 64 characters.
                        common_name=f"{spec.host_name} authority"[:64],
                        organization=spec.placed.tenant,
                        country="AE",
                    )
                ),
            )
        ),
        # The shortest that can be asked for: until then a deletion can be taken back.
        permanent_deletion_time_in_days=30 if spec.placed.retained else 7,
        tags=tags,
        opts=stateful(parent, spec.placed),
    )
    root = aws.acmpca.Certificate(
        f"{spec.name}-authority",
        certificate_authority_arn=authority.arn,
        certificate_signing_request=authority.certificate_signing_request,
        signing_algorithm=_SIGNATURE,
        template_arn=_ROOT_TEMPLATE,
        validity=aws.acmpca.CertificateValidityArgs(type="YEARS", value=str(_YEARS)),
        opts=child(parent),
    )
    installed = aws.acmpca.CertificateAuthorityCertificate(
        f"{spec.name}-authority",
        certificate_authority_arn=authority.arn,
        certificate=root.certificate,
        certificate_chain=root.certificate_chain,
        opts=child(parent),
    )
    renewal = aws.acmpca.Permission(
        f"{spec.name}-renewal",
        certificate_authority_arn=authority.arn,
        principal="acm.amazonaws.com",
        actions=["IssueCertificate", "GetCertificate", "ListPermissions"],
        opts=child(parent),
    )
    certificate = aws.acm.Certificate(
        spec.name,
        domain_name=spec.host_name,
        certificate_authority_arn=authority.arn,
        key_algorithm="EC_prime256v1",
        tags=tags,
        # An authority without a certificate of its own can't issue.
        opts=child(parent, depends_on=[installed, renewal]),
    )
    return certificate.arn


@dataclass(frozen=True)
class Tier:
    """One tier: its component, its arguments, and what stands in front of its machines."""

    component: pulumi.Resource
    spec: CpuInferenceTierSpec
    args: CpuInferenceTierArgs
    balancer: Balancer
    log_group: aws.cloudwatch.LogGroup
    serving: pulumi.Output[Serving]

    @property
    def name(self) -> str:
        """The component's name in the program."""
        return self.spec.name

    @property
    def tags(self) -> dict[str, str]:
        """Tags of all that the tier makes."""
        return self.spec.placed.tags(self.spec.name)


def by_digest(image: str) -> str:
    """The image, where it is named by its digest; it may have been an output.

    Raises:
        ValueError: it is named by a tag.
    """
    if is_by_digest(image):
        return image
    raise ValueError(
        f"image is {image!r}; allowed: an image of the registry by digest: host/name@sha256:…; "
        "a tag can be moved to another image"
    )
