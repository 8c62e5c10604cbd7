"""An inference tier without machines: a container app in an environment of the network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import app, monitor

from falaj.components.azure._names import titled
from falaj.components.azure._subnets import CONTAINERS, subnet_id
from falaj.components.azure._tier_access import Access, image_by_digest, registry_host
from falaj.components.azure.serving.cloud_init import FOLDER, program
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
)
from falaj.components.specification.names import physical_name

#: Longest name of a container app: learn.microsoft.com/azure/azure-resource-manager/management/
#: resource-name-rules
_APP_NAME = 32
_PROFILE = "Consumption"


@dataclass(frozen=True)
class Containers:
    """What was made, and where callers come to."""

    environment: app.ManagedEnvironment
    app: app.ContainerApp

    @property
    def address(self) -> pulumi.Output[str]:
        """Private address of the environment's gateway."""
        return self.environment.static_ip


def make_containers(
    name: str,
    args: CpuInferenceTierArgs,
    spec: CpuInferenceTierSpec,
    *,
    settings: pulumi.Output[dict[str, Any]],
    access: Access,
    group: azure_native.resources.ResourceGroup,
    parent: pulumi.Resource,
) -> Containers:
    """The environment, its logs, and the app.

    The gateway passes TCP through, so that the server itself ends TLS: with HTTP it would be ended
    on the way, at 1.2 where a caller asks for it.
    """
    opts = pulumi.ResourceOptions(parent=parent)
    tags = spec.placed.tags(name)
    environment = app.ManagedEnvironment(
        name,
        resource_group_name=group.name,
        environment_name=titled(spec.placed, name),
        location=spec.placed.region,
        app_logs_configuration=app.AppLogsConfigurationArgs(destination="azure-monitor"),
        public_network_access=app.PublicNetworkAccess.DISABLED,
        vnet_configuration=app.VnetConfigurationArgs(
            internal=True,
            infrastructure_subnet_id=subnet_id(args["network_id"], CONTAINERS),
        ),
        workload_profiles=[app.WorkloadProfileArgs(name=_PROFILE, workload_profile_type=_PROFILE)],
        zone_redundant=bool(spec.placed.place.zones),
        tags=tags,
        opts=opts,
    )
    monitor.DiagnosticSetting(
        f"{name}-logs",
        name="logs",
        resource_uri=environment.id,
        workspace_id=args.get("log_destination_id"),
        logs=[
            monitor.DiagnosticsLogSettingsArgs(category_group="allLogs", enabled=True),
        ],
        opts=opts,
    )
    container = app.ContainerApp(
        name,
        resource_group_name=group.name,
        container_app_name=physical_name(
            spec.placed.tenant, pulumi.get_stack(), name, limit=_APP_NAME
        ),
        location=spec.placed.region,
        environment_id=environment.id,
        workload_profile_name=_PROFILE,
        identity=app.ManagedServiceIdentityArgs(
            type=app.ManagedServiceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[access.identity.id],
        ),
        configuration=app.ConfigurationArgs(
            active_revisions_mode=app.ActiveRevisionsMode.SINGLE,
            max_inactive_revisions=3,
            ingress=_ingress(spec),
            registries=[
                app.RegistryCredentialsArgs(
                    server=registry_host(args), identity=access.identity.id
                )
            ],
        ),
        template=_template(args, spec, settings),
        tags=tags,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=access.grants),
    )
    return Containers(environment, container)


def _ingress(spec: CpuInferenceTierSpec) -> app.IngressArgs:
    return app.IngressArgs(
        # "External" to the environment, which itself has an address in the network only.
        external=True,
        allow_insecure=False,
        transport=app.IngressTransportMethod.TCP,
        target_port=spec.port,
        exposed_port=spec.port,
        ip_security_restrictions=[
            app.IpSecurityRestrictionRuleArgs(
                name=f"callers-{position}", action=app.Action.ALLOW, ip_address_range=cidr
            )
            for position, cidr in enumerate(spec.allowed_cidrs)
        ]
        or None,
    )


def _template(
    args: CpuInferenceTierArgs,
    spec: CpuInferenceTierSpec,
    settings: pulumi.Output[dict[str, Any]],
) -> app.TemplateArgs:
    scratch = app.VolumeArgs(name="scratch", storage_type=app.StorageType.EMPTY_DIR)
    probes = [
        # Fetching and verifying a package may take minutes; the server listens after it.
        _probe(spec, app.Type.STARTUP, failures=10, period_s=60),
        _probe(spec, app.Type.READINESS, failures=3, period_s=5),
        _probe(spec, app.Type.LIVENESS, failures=3, period_s=10),
    ]
    return app.TemplateArgs(
        containers=[
            app.ContainerArgs(
                name="inference",
                image=image_by_digest(args["image"]),
                command=["python", "-c", program("start_server.py")],
                env=[
                    app.EnvironmentVarArgs(name="FALAJ_SERVING", value=settings.apply(json.dumps))
                ],
                resources=app.ContainerResourcesArgs(cpu=spec.vcpu, memory=f"{spec.memory_gib}Gi"),
                volume_mounts=[app.VolumeMountArgs(volume_name="scratch", mount_path=FOLDER)],
                probes=probes,
            )
        ],
        volumes=[scratch],
        scale=app.ScaleArgs(
            min_replicas=spec.min_instances,
            max_replicas=spec.max_instances,
            rules=[
                app.ScaleRuleArgs(
                    name="cpu",
                    custom=app.CustomScaleRuleArgs(
                        type="cpu",
                        metadata={
                            "type": "Utilization",
                            "value": str(spec.args["cpu_target_percent"]),
                        },
                    ),
                )
            ],
        ),
        termination_grace_period_seconds=60,
    )


def _probe(
    spec: CpuInferenceTierSpec, kind: app.Type, *, failures: int, period_s: int
) -> app.ContainerAppProbeArgs:
    return app.ContainerAppProbeArgs(
        type=kind,
        tcp_socket=app.ContainerAppProbeTcpSocketArgs(port=spec.port),
        failure_threshold=failures,
        period_seconds=period_s,
    )
