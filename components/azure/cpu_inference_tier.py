"""The CPU tier that serves one model: machines of a scale set, or container apps."""

from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import monitor

from falaj.components.azure._component import component_options, resource_group
from falaj.components.azure._tier_access import (
    Access,
    give_access,
    give_name,
    guard_machines,
    make_gateway,
    serving_settings,
)
from falaj.components.azure._tier_servers import make_containers, make_machines, scale_on_cpu
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    check,
)
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.property_names import engine_inputs

__all__ = ["CpuInferenceTier", "CpuInferenceTierArgs"]

_HTTPS = 443


class CpuInferenceTier(pulumi.ComponentResource):
    """Serves one signed model package on CPUs, inside the network.

    With ``mode: instances`` a scale set of machines with VNNI, AMX or i8mm stands behind an
    internal load balancer, which passes TLS through to the servers: they speak TLS 1.3 and nothing
    older. Machines have Trusted Launch, disks under the disk encryption set and encrypted hosts,
    no public address and no login; they are replaced one by one, repaired when unhealthy, and
    added when busy. With ``mode: serverless`` the same image runs as a container app in an
    internal environment, its TLS just as untouched.

    The server's image and its package come from the registry by digest, key ring and certificate
    from Key Vault, all by the tier's own identity over private endpoints; keys stay in memory, and
    no secret is in the machines' configuration.

    Example::

        tier = CpuInferenceTier("churn", {
            "region": "uaenorth", "tenant": "acme", "owner": "platform@acme.ae",
            "data_class": "confidential", "cost_center": "4711",
            "network_id": network.network_id,
            "serving_subnet_ids": network.serving_subnet_ids,
            "security_group_id": network.security_group_ids["serving"],
            "disk_encryption_id": keys.disk_encryption_id,
            "data_key_id": keys.key_ids["data"], "log_key_id": keys.key_ids["logs"],
            "registry_id": registry.registry_id, "log_destination_id": audit.log_destination_id,
            "image": "acme.azurecr.io/inference@sha256:…",
            "package_repository": registry.repository_urls["models/churn"],
            "model": "churn", "version": 3,
            "package_digest": "sha256:…", "keys_digest": "sha256:…",
            "keyring_secret_id": "/subscriptions/…/vaults/acme/secrets/churn-keyring",
            "certificate_id": "/subscriptions/…/vaults/acme/secrets/inference",
        })

    Makes: a resource group, an identity with three role assignments, and a private DNS zone with
    the service's name; with ``instances`` also a load balancer with a diagnostic setting, rules on
    the machines' interfaces, the scale set and its autoscaling; with ``serverless`` the
    environment, its diagnostic setting and the app, in the network's ``containers`` subnet.

    ``data_key_id`` and ``log_key_id`` change nothing on Azure, where the store and the workspace
    have their keys, and ``security_group_id`` is the subnet's. ``machine_image`` is an image's id
    or ``publisher:offer:sku:version``; it needs systemd and Python 3.12. Before the first machines
    in a subscription, the feature ``EncryptionAtHost`` of ``Microsoft.Compute`` has to be
    registered.
    """

    endpoint: pulumi.Output[str]
    """Base URL of the service, for callers in the network."""
    identity_id: pulumi.Output[str]
    """Client id of the identity that the tier acts as."""
    keyring_secret_id: pulumi.Output[str]
    """Resource id of the secret that holds the key ring, as given."""
    machine: str | None
    """VM size; None for ``serverless``."""
    cost_at_minimum: str
    """What the machines cost at the floor."""
    cost_at_maximum: str
    """What the machines cost at the ceiling."""

    def __init__(
        self, name: str, args: CpuInferenceTierArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:CpuInferenceTier",
            name,
            engine_inputs(args),
            component_options(opts),
        )
        for note in spec.notes:
            pulumi.log.warn(note, self)
        pulumi.log.info(spec.summary, self)
        child = pulumi.ResourceOptions(parent=self)
        tags = spec.placed.tags(name)
        group = resource_group(name, spec.placed, child)
        access = give_access(name, args, group, tags, child)
        settings = serving_settings(
            args,
            spec,
            access.identity.client_id,
            workers=max(1, (spec.machine.vcpu or spec.vcpu) if spec.machine else spec.vcpu),
        )
        if spec.machine is None:
            address = make_containers(
                name, args, spec, settings=settings, access=access, group=group, parent=self
            ).address
        else:
            address = self._machines(name, args, spec, access, settings=settings, group=group)
        give_name(name, args, spec.host_name, address, group=group, tags=tags, opts=child)

        port = "" if spec.port == _HTTPS else f":{spec.port}"
        self.endpoint = pulumi.Output.from_input(f"https://{spec.host_name}{port}")
        self.identity_id = access.identity.client_id
        self.keyring_secret_id = pulumi.Output.from_input(args.get("keyring_secret_id", ""))
        self.machine = spec.machine.name if spec.machine else None
        self.cost_at_minimum = spec.cost_at_minimum
        self.cost_at_maximum = spec.cost_at_maximum
        self.register_outputs(
            {
                "endpoint": self.endpoint,
                "identityId": self.identity_id,
                "keyringSecretId": self.keyring_secret_id,
                "machine": self.machine,
                "costAtMinimum": self.cost_at_minimum,
                "costAtMaximum": self.cost_at_maximum,
            }
        )

    def _machines(
        self,
        name: str,
        args: CpuInferenceTierArgs,
        spec: CpuInferenceTierSpec,
        access: Access,
        *,
        settings: pulumi.Output[dict[str, Any]],
        group: azure_native.resources.ResourceGroup,
    ) -> pulumi.Output[str]:
        """The gateway and what stands behind it; the gateway's private address."""
        child = pulumi.ResourceOptions(parent=self)
        tags = spec.placed.tags(name)
        subnet = pulumi.Output.from_input(args["serving_subnet_ids"]).apply(
            lambda subnets: subnets_of(
                subnets,
                spec.zones,
                where=f"serving_subnet_ids of CpuInferenceTier {name!r}",
                all_needed=spec.zones_named,
            )[0]
        )
        gateway = make_gateway(name, spec, subnet, group=group, tags=tags, opts=child)
        monitor.DiagnosticSetting(
            f"{name}-logs",
            name="logs",
            resource_uri=gateway.balancer.id,
            workspace_id=args.get("log_destination_id"),
            logs=[monitor.DiagnosticsLogSettingsArgs(category_group="allLogs", enabled=True)],
            metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
            opts=child,
        )
        rules = guard_machines(name, spec, group, tags, child)
        machines = make_machines(
            name,
            args,
            spec,
            subnet=subnet,
            rules=rules.id,
            settings=settings,
            access=access,
            gateway=gateway,
            group=group,
            parent=self,
        )
        scale_on_cpu(name, spec, machines, group=group, tags=tags, opts=child)
        return gateway.address
