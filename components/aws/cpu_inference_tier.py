"""The inference tier of a small business on AWS: CPU machines or serverless containers."""

from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws import _tier_access as access
from falaj.components.aws._component import account_of, token
from falaj.components.aws._logs import log_group
from falaj.components.aws._tier_servers import TaskRoles, scaling_group, service
from falaj.components.aws._tier_sessions import may_have_sessions, session_document, session_key
from falaj.components.aws.serving.cloud_init import Serving
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    check,
)
from falaj.components.specification.property_names import engine_inputs

__all__ = ["CpuInferenceTier", "CpuInferenceTierArgs"]


class CpuInferenceTier(pulumi.ComponentResource):
    """Serves a model on CPUs behind an internal load balancer that speaks TLS 1.3 only.

    ::

        tier = CpuInferenceTier("churn", {
            "region": "me-central-1", "tenant": "acme", "owner": "ml@acme.example",
            "data_class": "confidential", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "network_id": network.network_id,
            "serving_subnet_ids": network.serving_subnet_ids,
            "security_group_id": network.security_group_ids["serving"],
            "disk_encryption_id": keys.disk_encryption_id,
            "data_key_id": keys.key_ids["data"], "log_key_id": keys.key_ids["logs"],
            "registry_id": registry.registry_id,
            "repository_id": registry.repository_ids["inference"],
            "image": "…/inference@sha256:…",
            "package_repository": registry.repository_urls["models/churn"],
            "package_repository_id": registry.repository_ids["models/churn"],
            "model": "churn", "version": 3,
            "package_digest": "sha256:…", "keys_digest": "sha256:…",
            "certificate_id": "arn:aws:acm:me-central-1:…:certificate/…",
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes an internal `lb.LoadBalancer` with a TLS listener, its `lb.TargetGroup`, a security group
    for callers, a `route53.Zone` of the private name with its record, a log group with the logs'
    key, and a role that may pull the image and the model's packages, read its key ring and log.
    The listener shows the certificate ``certificate_id``, whose authority callers have to trust;
    with ``private_authority`` it is an `acm.Certificate` that an `acmpca.CertificateAuthority`
    made here issues (which is billed by the month). Without ``keyring_secret_id`` also an empty
    `secretsmanager.Secret`, which a deployer fills before a server can start::

        tar -c -C KEYRING keyring.json kek-*.key signing.pub.pem tokens.jwks.json | base64

    ``instances``: an `ec2.LaunchTemplate` (IMDSv2 one hop away, encrypted disk, no login, no
    public address) and an `autoscaling.Group` that a new template replaces machine by machine,
    tracking the use of CPUs. Its machines run the image by digest without privileges. With
    ``session_manager`` also an `ssm.Document` of sessions and their key, whose tag
    ``falaj:purpose`` lets the duty ``provisioner`` make it.
    ``serverless``: an ECS service on Fargate with the same programs, a read-only root and the same
    scaling.

    Tokens of callers have the issuer ``falaj`` and the name of the host as their audience. In
    production the key ring's secret, the authority and the log are protected and retained, and the
    balancer can't be deleted until its protection is lifted. Nothing else holds data.
    """

    endpoint: pulumi.Output[str]
    """URL of the service, reached from inside the network only."""
    identity_id: pulumi.Output[str]
    """ARN of the server's role."""
    keyring_secret_id: pulumi.Output[str]
    """ARN of the secret that holds the key ring."""
    machine: str | None
    """Instance type that was chosen; none for serverless containers."""
    cost_at_minimum: str
    """What the floor costs, or that it is unknown."""
    cost_at_maximum: str
    """What the ceiling costs, or that it is unknown."""

    def __init__(
        self, name: str, args: CpuInferenceTierArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("CpuInferenceTier"), name, engine_inputs(args), opts)
        pulumi.log.info(spec.summary, self)
        for note in spec.notes:
            pulumi.log.warn(note, self)
        keyring = access.keyring_secret(self, spec, args)
        log = log_group(
            self,
            name,
            spec.placed,
            part="server",
            days=spec.args["log_days"],
            key_id=args["log_key_id"],
        )
        needs = access.Needs(
            args.get("package_repository_id", ""),
            args.get("repository_id", ""),
            args["data_key_id"],
            keyring,
            log.arn,
        )
        certificate = args.get("certificate_id")
        balancer = access.Balancer(
            self,
            spec,
            args,
            access.private_certificate(self, spec) if certificate is None else certificate,
        )
        serving = pulumi.Output.all(args["package_repository"], keyring).apply(
            lambda known: _serving(spec, str(known[0]), str(known[1]))
        )
        tier = access.Tier(self, spec, args, balancer, log, serving)
        role = (
            self._containers(tier, needs) if spec.machine is None else self._machines(tier, needs)
        )
        port = "" if spec.port == 443 else f":{spec.port}"
        self.endpoint = balancer.listener.arn.apply(lambda _: f"https://{spec.host_name}{port}")
        self.identity_id = role.arn
        self.keyring_secret_id = keyring
        self.machine = spec.machine.name if spec.machine else None
        self.cost_at_minimum = spec.cost_at_minimum
        self.cost_at_maximum = spec.cost_at_maximum
        outputs: dict[str, Any] = {
            "endpoint": self.endpoint,
            "identityId": self.identity_id,
            "keyringSecretId": self.keyring_secret_id,
            "machine": self.machine,
            "costAtMinimum": self.cost_at_minimum,
            "costAtMaximum": self.cost_at_maximum,
        }
        self.register_outputs(outputs)

    def _machines(self, tier: access.Tier, needs: access.Needs) -> aws.iam.Role:
        key = session_key(self, tier.spec).arn if tier.spec.args["session_manager"] else None
        role, granted = access.tier_role(
            self,
            tier.spec,
            "server",
            needs.log_in(),
            *needs.read_package(),
            *needs.pull_and_log(),
            *(may_have_sessions(tier.log_group.arn, key) if key else ()),
            trusted=access.machine_trust(),
            boundary=tier.args.get("boundary_id"),
        )
        scaling_group(tier, role, granted)
        if key:
            session_document(tier, key)
        return role

    def _containers(self, tier: access.Tier, needs: access.Needs) -> aws.iam.Role:
        boundary = tier.args.get("boundary_id")
        trusted = access.task_trust(account_of(self))
        server, reads = access.tier_role(
            self,
            tier.spec,
            "server",
            needs.log_in(),
            *needs.read_package(),
            trusted=trusted,
            boundary=boundary,
        )
        agent, pulls = access.tier_role(
            self,
            tier.spec,
            "agent",
            needs.log_in(),
            *needs.pull_and_log(),
            trusted=trusted,
            boundary=boundary,
        )
        service(tier, TaskRoles(server, agent, (reads, pulls)))
        return server


def _serving(spec: CpuInferenceTierSpec, repository: str, keyring: str) -> Serving:
    return Serving(
        region=spec.placed.region,
        repository=repository,
        package_digest=spec.args["package_digest"],
        keys_digest=spec.args["keys_digest"],
        model=spec.args["model"],
        version=spec.args["version"],
        keyring=keyring,
        host_name=spec.host_name,
        workers=spec.vcpu if spec.machine is None else spec.machine.vcpu or spec.vcpu,
    )
