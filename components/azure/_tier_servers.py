"""The servers of an inference tier on Azure: machines of a scale set, or a container app."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import app, compute, monitor

from falaj.components.azure._agent_pool import used_zones
from falaj.components.azure._component import titled
from falaj.components.azure._ids import CONTAINERS, subnet_id
from falaj.components.azure._tier_access import Access, Gateway, image_by_digest, registry_host
from falaj.components.azure.serving.cloud_init import FOLDER, custom_data, keyless_login, program
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
)
from falaj.components.specification.names import physical_name

#: Images of Ubuntu 24.04 by architecture: small, with Python and systemd, which is all that is
#: needed, and ready for Trusted Launch.
_OFFER = ("Canonical", "ubuntu-24_04-lts")
_SKUS = {"x86_64": "server", "arm64": "server-arm64"}
_URN = re.compile(r"^([^:/\s]+):([^:/\s]+):([^:/\s]+):([^:/\s]+)$")
_DISK_GIB = 64
_LOGIN = "unused"


def make_machines(
    name: str,
    args: CpuInferenceTierArgs,
    spec: CpuInferenceTierSpec,
    *,
    subnet: pulumi.Input[str],
    rules: pulumi.Input[str],
    settings: pulumi.Output[dict[str, Any]],
    access: Access,
    gateway: Gateway,
    group: azure_native.resources.ResourceGroup,
    parent: pulumi.Resource,
) -> compute.VirtualMachineScaleSet:
    """The scale set.

    A new image, package or system comes in by rolling replacement: new machines first, old ones
    when the new are healthy. A machine that stays unhealthy is replaced. Health is what the
    server's own ``/v2/health/ready`` says.
    """
    if spec.machine is None:
        raise AssertionError("instances have a machine")
    zones = list(used_zones(spec.machine, spec.zones, named=spec.zones_named))
    image = image_by_digest(args["image"])
    start = pulumi.Output.all(image, access.identity.client_id, settings).apply(
        lambda known: custom_data(known[0], known[1], known[2])
    )
    return compute.VirtualMachineScaleSet(
        name,
        resource_group_name=group.name,
        vm_scale_set_name=titled(spec.placed, name),
        location=spec.placed.region,
        zones=zones or None,
        zone_balance=True if len(zones) > 1 else None,
        platform_fault_domain_count=1,
        orchestration_mode=compute.OrchestrationMode.UNIFORM,
        sku=compute.SkuArgs(name=spec.machine.name, tier="Standard", capacity=spec.min_instances),
        identity=compute.VirtualMachineScaleSetIdentityArgs(
            type=compute.ResourceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[access.identity.id],
        ),
        overprovision=False,
        upgrade_policy=_replacement(spec),
        automatic_repairs_policy=compute.AutomaticRepairsPolicyArgs(
            enabled=True, grace_period="PT30M", repair_action=compute.RepairAction.REPLACE
        ),
        scale_in_policy=compute.ScaleInPolicyArgs(
            rules=[compute.VirtualMachineScaleSetScaleInRules.OLDEST_VM]
        ),
        virtual_machine_profile=compute.VirtualMachineScaleSetVMProfileArgs(
            security_profile=_trusted_launch(),
            storage_profile=_disk(args, spec),
            network_profile=_interface(subnet, rules, gateway),
            os_profile=_system(name, start),
            extension_profile=_health(spec.port),
        ),
        tags=spec.placed.tags(name),
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=[*access.grants, gateway.balancer],
            # The autoscaler decides.
            ignore_changes=["sku.capacity"],
        ),
    )


def machine_image(spec: CpuInferenceTierSpec) -> compute.ImageReferenceArgs:
    """The image named by id or as ``publisher:offer:sku:version``, else the newest Ubuntu."""
    named = spec.args["machine_image"]
    if named is None:
        sku = _SKUS[spec.machine.arch if spec.machine else "x86_64"]
        return compute.ImageReferenceArgs(
            publisher=_OFFER[0], offer=_OFFER[1], sku=sku, version="latest"
        )
    urn = _URN.match(named)
    if urn is None:
        return compute.ImageReferenceArgs(id=named)
    publisher, offer, sku, version = urn.groups()
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version=version)


def _replacement(spec: CpuInferenceTierSpec) -> compute.UpgradePolicyArgs:
    # Only images of a publisher have a newest version that Azure can follow.
    newest = spec.args["machine_image"] is None or spec.args["machine_image"].endswith(":latest")
    return compute.UpgradePolicyArgs(
        mode=compute.UpgradeMode.ROLLING,
        rolling_upgrade_policy=compute.RollingUpgradePolicyArgs(
            max_surge=True,
            max_batch_instance_percent=20,
            max_unhealthy_instance_percent=20,
            max_unhealthy_upgraded_instance_percent=20,
            pause_time_between_batches="PT1M",
            prioritize_unhealthy_instances=True,
            rollback_failed_instances_on_policy_breach=True,
        ),
        automatic_os_upgrade_policy=compute.AutomaticOSUpgradePolicyArgs(
            enable_automatic_os_upgrade=newest,
            disable_automatic_rollback=False,
            use_rolling_upgrade_policy=True,
        ),
    )


def _trusted_launch() -> compute.SecurityProfileArgs:
    return compute.SecurityProfileArgs(
        encryption_at_host=True,
        security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=True, v_tpm_enabled=True),
    )


def _disk(
    args: CpuInferenceTierArgs, spec: CpuInferenceTierSpec
) -> compute.VirtualMachineScaleSetStorageProfileArgs:
    return compute.VirtualMachineScaleSetStorageProfileArgs(
        image_reference=machine_image(spec),
        os_disk=compute.VirtualMachineScaleSetOSDiskArgs(
            create_option=compute.DiskCreateOptionTypes.FROM_IMAGE,
            caching=compute.CachingTypes.READ_WRITE,
            disk_size_gb=_DISK_GIB,
            managed_disk=compute.VirtualMachineScaleSetManagedDiskParametersArgs(
                storage_account_type=compute.StorageAccountTypes.PREMIUM_LRS,
                disk_encryption_set=compute.DiskEncryptionSetParametersArgs(
                    id=args["disk_encryption_id"]
                ),
            ),
        ),
    )


def _interface(
    subnet: pulumi.Input[str], rules: pulumi.Input[str], gateway: Gateway
) -> compute.VirtualMachineScaleSetNetworkProfileArgs:
    return compute.VirtualMachineScaleSetNetworkProfileArgs(
        network_interface_configurations=[
            compute.VirtualMachineScaleSetNetworkConfigurationArgs(
                name="serving",
                primary=True,
                enable_accelerated_networking=True,
                enable_ip_forwarding=False,
                network_security_group=compute.SubResourceArgs(id=rules),
                ip_configurations=[
                    compute.VirtualMachineScaleSetIPConfigurationArgs(
                        name="serving",
                        primary=True,
                        private_ip_address_version=compute.IPVersion.I_PV4,
                        subnet=compute.ApiEntityReferenceArgs(id=subnet),
                        load_balancer_backend_address_pools=[
                            compute.SubResourceArgs(id=gateway.pool_id)
                        ],
                    )
                ],
            )
        ]
    )


def _system(name: str, start: pulumi.Output[str]) -> compute.VirtualMachineScaleSetOSProfileArgs:
    return compute.VirtualMachineScaleSetOSProfileArgs(
        # The longest prefix that leaves room for the number of the machine.
        computer_name_prefix=f"{name[:40]}-",
        admin_username=_LOGIN,
        custom_data=start,
        linux_configuration=compute.LinuxConfigurationArgs(
            disable_password_authentication=True,
            provision_vm_agent=True,
            ssh=compute.SshConfigurationArgs(
                public_keys=[
                    compute.SshPublicKeyArgs(
                        path=f"/home/{_LOGIN}/.ssh/authorized_keys", key_data=keyless_login()
                    )
                ]
            ),
        ),
    )


def _health(port: int) -> compute.VirtualMachineScaleSetExtensionProfileArgs:
    """Version 1 takes the status of the answer; later ones want a body that servers of the
    protocol don't send: https://learn.microsoft.com/azure/virtual-machine-scale-sets/
    virtual-machine-scale-sets-health-extension"""
    return compute.VirtualMachineScaleSetExtensionProfileArgs(
        extensions=[
            compute.VirtualMachineScaleSetExtensionArgs(
                name="health",
                publisher="Microsoft.ManagedServices",
                type="ApplicationHealthLinux",
                type_handler_version="1.0",
                auto_upgrade_minor_version=True,
                enable_automatic_upgrade=True,
                settings={"protocol": "https", "port": port, "requestPath": "/v2/health/ready"},
            )
        ]
    )


def scale_on_cpu(
    name: str,
    spec: CpuInferenceTierSpec,
    machines: compute.VirtualMachineScaleSet,
    *,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> monitor.AutoscaleSetting:
    """One machine more above the target for five minutes, one less below half of it for ten:
    the gap keeps the number from swinging."""
    low = spec.args["cpu_target_percent"] / 2
    return monitor.AutoscaleSetting(
        name,
        resource_group_name=group.name,
        autoscale_setting_name=titled(spec.placed, name),
        location=spec.placed.region,
        enabled=True,
        target_resource_uri=machines.id,
        profiles=[
            monitor.AutoscaleProfileArgs(
                name="cpu",
                capacity=monitor.ScaleCapacityArgs(
                    minimum=str(spec.min_instances),
                    maximum=str(spec.max_instances),
                    default=str(spec.min_instances),
                ),
                rules=[
                    _rule(machines.id, spec.args["cpu_target_percent"], up=True),
                    _rule(machines.id, low, up=False),
                ],
            )
        ],
        tags=dict(tags),
        opts=opts,
    )


def _rule(machines: pulumi.Input[str], threshold: float, *, up: bool) -> monitor.ScaleRuleArgs:
    return monitor.ScaleRuleArgs(
        metric_trigger=monitor.MetricTriggerArgs(
            metric_name="Percentage CPU",
            metric_resource_uri=machines,
            operator=(
                monitor.ComparisonOperationType.GREATER_THAN
                if up
                else monitor.ComparisonOperationType.LESS_THAN
            ),
            statistic=monitor.MetricStatisticType.AVERAGE,
            threshold=threshold,
            time_aggregation=monitor.TimeAggregationType.AVERAGE,
            time_grain="PT1M",
            time_window="PT5M" if up else "PT10M",
        ),
        scale_action=monitor.ScaleActionArgs(
            cooldown="PT5M" if up else "PT10M",
            direction=monitor.ScaleDirection.INCREASE if up else monitor.ScaleDirection.DECREASE,
            type=monitor.ScaleType.CHANGE_COUNT,
            value="1",
        ),
    )


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
        configuration={
            "active_revisions_mode": app.ActiveRevisionsMode.SINGLE,
            "max_inactive_revisions": 3,
            "ingress": _ingress(spec),
            "registries": [{"server": registry_host(args), "identity": access.identity.id}],
        },
        template=_template(args, spec, settings),
        tags=tags,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=access.grants),
    )
    return Containers(environment, container)


def _ingress(spec: CpuInferenceTierSpec) -> app.IngressArgsDict:
    """A dictionary, because the class says ``allow_insecure`` where nobody does: whether HTTP may
    be plain can't be said of TCP, by https://github.com/microsoft/azure-container-apps/issues/375
    not even that it may not."""
    found: app.IngressArgsDict = {
        # "External" to the environment, which itself has an address in the network only.
        "external": True,
        "transport": app.IngressTransportMethod.TCP,
        "target_port": spec.port,
        "exposed_port": spec.port,
    }
    if spec.allowed_cidrs:
        found["ip_security_restrictions"] = [
            {
                "name": f"callers-{position}",
                "action": app.Action.ALLOW,
                "ip_address_range": cidr,
            }
            for position, cidr in enumerate(spec.allowed_cidrs)
        ]
    return found


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
