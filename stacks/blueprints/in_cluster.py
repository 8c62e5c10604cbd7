"""The blueprints inside a cluster: its platform for AI work, and a team's workloads."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi
from pydantic import BaseModel

from falaj.components import kubernetes
from falaj.components.kubernetes import InClusterArgs
from falaj.components.specification.limits import DIGEST
from falaj.components.specification.resolver import domain_of
from falaj.stacks.errors import StackError
from falaj.stacks.settings.cloud import DEFAULT_REGIONS, InClusterSettings
from falaj.stacks.settings.in_cluster import PlatformSettings, WorkloadsSettings, asked_addons

_SDK: Final = "pulumi_kubernetes"


@dataclass(frozen=True)
class InClusterParts:
    """The components, and what they all take."""

    components: Any
    """`falaj.components.kubernetes`, or what only checks arguments in its place."""
    common: InClusterArgs
    images: Mapping[str, str]
    """Digests by the images' short names, beside those of the bill of materials."""
    options: pulumi.ResourceOptions
    cluster: pulumi.StackReference | None = None
    """The stack that made the cluster. None: it exists, or the stack is only validated."""
    unknown: Any = None
    """Where a stack is only validated: what stands for outputs. None: it is really declared."""

    def args(
        self, section: BaseModel | None = None, /, *, images: bool = False, **inputs: Any
    ) -> dict[str, Any]:
        """Arguments of a component: the common ones, a settings section's, and ``inputs``.

        Keys that the stack leaves out, and inputs that are None, take the component's default.

        Args:
            section: of the stack's settings.
            images: whether the component runs images.
            inputs: what the blueprint gives, above the section's.
        """
        given: dict[str, Any] = section.model_dump(exclude_none=True) if section else {}
        if images and self.images:
            given = {"images": dict(self.images), **given}
        return {
            **self.common,
            **given,
            **{name: value for name, value in inputs.items() if value is not None},
        }

    def of_cluster(self, output: str) -> Any:
        """An output of the stack that made the cluster."""
        if self.cluster is None:
            return self.unknown
        return self.cluster.require_output(output)

    def export(self, name: str, value: object) -> None:
        """Make ``value`` an output of the stack."""
        if self.unknown is None:
            pulumi.export(name, value)


def common_arguments(settings: InClusterSettings) -> InClusterArgs:
    """What every component in the cluster takes."""
    region = settings.region or DEFAULT_REGIONS.get(str(settings.platform), "")
    common: InClusterArgs = {
        "distribution": settings.distribution,
        "region": region,
        "registry": settings.registry,
        "tenant": settings.tenant,
        "owner": settings.owner,
        "data_class": settings.data_class,
        "cost_center": settings.cost_center,
        "environment": settings.environment,
    }
    if settings.zones is not None:
        common["zones"] = settings.zones
    accepted = settings.acknowledged.get(region)
    if accepted is not None:
        common["acknowledge_degraded"] = accepted
    return common


def open_cluster(settings: InClusterSettings, images: Mapping[str, str]) -> InClusterParts:
    """Load the components and make the provider of the stack's cluster.

    Raises:
        StackError: the SDK is not installed.
    """
    if importlib.util.find_spec(_SDK) is None:
        raise StackError(
            f"stacks in a cluster need its SDK ({_SDK} is missing); install it with: "
            "python3 engine/environment.py --extra kubernetes"
        )
    common = common_arguments(settings)
    access: kubernetes.ClusterProviderArgs = {
        "distribution": common["distribution"],
        "region": common["region"],
    }
    if settings.context is not None:
        access["context"] = settings.context
        if settings.kubeconfig is not None:
            access["kubeconfig"] = settings.kubeconfig
    other = None
    if settings.cluster is not None:
        other = _cluster_stack(settings)
        access["cluster_name"] = other.require_output("clusterName")
        access["endpoint"] = other.require_output("clusterEndpoint")
        access["certificate_authority"] = other.require_output("certificateAuthority")
    provider = kubernetes.ClusterProvider("cluster", access)
    options = pulumi.ResourceOptions(providers=[provider])
    return InClusterParts(kubernetes, common, images, options, cluster=other)


def _cluster_stack(settings: InClusterSettings) -> pulumi.StackReference:
    """The stack of this project that made the cluster."""
    organization, project = pulumi.get_organization(), pulumi.get_project()
    return pulumi.StackReference(f"{organization}/{project}/{settings.cluster}")


# The platform: add-ons, storage, queues, tenants, admission.


def declare_platform(settings: PlatformSettings, parts: InClusterParts) -> None:
    """Register the resources of a platform stack and export what workloads need."""
    components, options = parts.components, parts.options
    addons = asked_addons(settings.installation)
    platform = components.Platform(
        "platform",
        {
            **_of_cluster(settings, parts),
            **parts.args(
                settings.installation,
                images=True,
                addons=addons,
                allowed_domains=_allowed_domains(settings, parts),
            ),
        },
        options,
    )
    # Queues, tenants and the gateway are objects of kinds that the add-ons define.
    after = pulumi.ResourceOptions.merge(options, _after(parts, platform))
    made = [platform]
    if settings.storage is not None:
        made.append(components.StorageClasses("storage", _storage(settings, parts), after))
    if settings.gateway is not None:
        made.append(components.Gateway("falaj", parts.args(settings.gateway, images=True), after))
    tenants = {
        name: components.Tenant(name, parts.args(section, tenant=name), after)
        for name, section in settings.tenants.items()
    }
    if settings.queues is not None:
        # Queues of jobs that other clusters run are in the tenants' namespaces.
        later = pulumi.ResourceOptions.merge(after, _after(parts, *tenants.values()))
        made.append(components.GpuQueues("queues", _queues(settings, parts), later))
    # Last, and so first to go: what the cluster refuses never stands in the way of its own
    # platform's making or ending.
    components.Residency(
        "residency",
        _residency(settings, parts),
        pulumi.ResourceOptions.merge(options, _after(parts, *made, *tenants.values())),
    )
    parts.export("region", parts.common["region"])
    parts.export("distribution", parts.common["distribution"])
    parts.export("tenants", {name: made.namespaces for name, made in tenants.items()})


def _of_cluster(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """What add-ons that manage machines of EKS are told by the stack of the cluster."""
    if settings.cluster is None or settings.distribution != "eks":
        return {}
    return {
        "cluster_name": parts.of_cluster("clusterName"),
        "network_id": parts.of_cluster("networkId"),
    }


def _queues(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """Arguments of the queues, with the version of the stack of the cluster."""
    given = parts.args(settings.queues, images=True)
    if parts.cluster is not None and "kubernetes_version" not in given:
        # A cluster of before tells none.
        given["kubernetes_version"] = parts.cluster.get_output("kubernetesVersion")
    return given


def _allowed_domains(settings: PlatformSettings, parts: InClusterParts) -> Any:
    """Domains that pods may reach anyway: hosts of the packs, the firewall's of the cluster."""
    hosts = [*filter(None, map(domain_of, settings.policies.allowed_hosts or ()))]
    if parts.cluster is None:
        return hosts
    # A cluster of before tells none.
    firewall = parts.cluster.get_output("egressDomains")
    return firewall.apply(lambda found: [*(found or ()), *hosts])


def _residency(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """Arguments of the admission: what the stack makes and its packs allow, the cluster takes."""
    packs, storage = settings.policies, settings.storage
    classes: Mapping[str, Any] = {}
    if storage is not None:
        classes = storage.model_dump(exclude_none=True).get("classes") or {}
    allowed = {
        "allowed_registries": packs.allowed_registries,
        "allowed_hosts": packs.allowed_hosts,
        "storage_classes": sorted(classes) or None,
    }
    given = {key: each for key, each in allowed.items() if each is not None}
    return {**given, **parts.args(settings.residency)}


def _after(parts: InClusterParts, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of what waits for ``resources``; a validation has nothing to wait for."""
    waits = list(resources) if parts.unknown is None else []
    return pulumi.ResourceOptions(depends_on=waits)


def _storage(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """Arguments of the classes, with the key and the file system of the stack of the cluster."""
    given = parts.args(settings.storage)
    if settings.cluster is None:
        return given
    if "disk_encryption_id" not in given:
        given["disk_encryption_id"] = parts.of_cluster("diskEncryptionId")
    files = given.get("files")
    if files and "subnet_id" not in files and "file_system_id" not in files:
        given["files"] = {
            **files,
            "file_system_id": parts.of_cluster("fileSystemId"),
            "mount_address": parts.of_cluster("mountAddress"),
        }
    return given


# A team's workloads: training jobs, sweeps, federated training, batch inference, pipelines,
# inference services, workspaces.


_FIRST_VERSION: Final = {
    "version": 1, "weight": 100, "package_digest": DIGEST.example, "keys_digest": DIGEST.example,
}  # fmt: skip
"""Stands in a validation for the version that a training is yet to publish: the rest of the
service's arguments is checked before the training begins."""


def _services(
    settings: WorkloadsSettings, parts: InClusterParts
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Services by name, with their arguments; without those whose first version is awaited."""
    awaited = settings.awaited
    for name, section in settings.inference_services.items():
        if name not in awaited:
            yield name, parts.args(section, images=True)
        elif parts.unknown is not None:
            yield name, parts.args(section, images=True, versions=[_FIRST_VERSION])


def declare_workloads(settings: WorkloadsSettings, parts: InClusterParts) -> None:
    """Register the resources of a workloads stack and export how they are reached."""
    components, options = parts.components, parts.options
    for name, job in settings.training_jobs.items():
        components.TrainingJob(name, parts.args(job, images=True), options)
    for name, sweep in settings.sweeps.items():
        components.Sweep(name, parts.args(sweep, images=True), options)
    for name, part in settings.federated_trainings.items():
        components.FederatedTraining(name, parts.args(part, images=True), options)
    batches = {
        name: components.BatchInference(name, parts.args(section, images=True), options)
        for name, section in settings.batch_inferences.items()
    }
    for name, pipeline in settings.pipelines.items():
        components.Pipeline(name, parts.args(pipeline, images=True), options)
    services = {
        name: components.InferenceService(name, given, options)
        for name, given in _services(settings, parts)
    }
    workspaces = {
        name: components.Workspace(name, parts.args(section, images=True), options)
        for name, section in settings.workspaces.items()
    }
    parts.export("inferenceServices", {name: made.url for name, made in services.items()})
    parts.export("trainingJobs", sorted(settings.training_jobs))
    parts.export("sweeps", sorted(settings.sweeps))
    parts.export("federatedTrainings", sorted(settings.federated_trainings))
    parts.export("batchInferences", {name: made.results_folder for name, made in batches.items()})
    parts.export("pipelines", sorted(settings.pipelines))
    parts.export(
        "workspaces",
        {name: {"command": made.command, "url": made.url} for name, made in workspaces.items()},
    )
