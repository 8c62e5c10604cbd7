"""The blueprints in a cloud: a foundation, a cluster, a small business's tier."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pulumi
from pydantic import BaseModel

from falaj.components import catalogue
from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.components.specification.cluster import ClusterArgs
from falaj.components.specification.network import NetworkArgs
from falaj.components.specification.placed import PlacedArgs
from falaj.components.specification.property_names import camel
from falaj.components.specification.registry import REPOSITORIES
from falaj.components.specification.resolver import domain_of
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, ClusterSettings, SmbSettings
from falaj.stacks.settings.cloud import OwnFoundation
from falaj.stacks.settings.derived import arguments

_Plain = TypeVar("_Plain")


@dataclass(frozen=True)
class Cloud:
    """The chosen place: its components (the same names in every cloud) and what they all take."""

    place: catalogue.Place
    components: Any
    """The cloud's package, or what only checks arguments in its place."""
    common: PlacedArgs
    options: pulumi.ResourceOptions
    first_key: bool = False
    """Whether Azure's registry is made with a key of its own first (`RegistryArgs.first_key`)."""
    unknown: Any = None
    """Where a stack is only validated: what stands for outputs. None: it is really declared."""

    def args(self, section: BaseModel | None = None, /, **inputs: Any) -> dict[str, Any]:
        """Arguments of a component: the common ones, a settings section's, and ``inputs``.

        Keys that the stack leaves out, and inputs that are None, take the component's default.
        """
        given: dict[str, Any] = section.model_dump(exclude_none=True) if section else {}
        return {
            **self.common,
            **given,
            **{name: value for name, value in inputs.items() if value is not None},
        }

    def export(self, name: str, value: object) -> None:
        """Make ``value`` an output of the stack."""
        if self.unknown is None:
            pulumi.export(name, value)

    def output(self, value: _Plain) -> pulumi.Output[_Plain]:
        """A plain value as an output; nothing runs that could make one of it in a validation."""
        return self.unknown if self.unknown is not None else pulumi.Output.from_input(value)

    def on(self, cloud: str, value: pulumi.Output[Any]) -> pulumi.Output[Any] | None:
        """``value`` where only that cloud knows it, None elsewhere."""
        return value if self.place.cloud == cloud else None


def open_cloud(
    settings: CloudSettings, place: catalogue.Place, *, first_key: bool = False
) -> Cloud:
    """Load the components of the place's cloud and make its pinned provider.

    Args:
        settings: the stack's settings.
        place: where it goes.
        first_key: as of `Cloud`. Default: False.

    Raises:
        StackError: the cloud's SDK is not installed.
    """
    try:
        components = importlib.import_module(f"falaj.components.{place.cloud}")
        region_provider = components.RegionProvider  # the first that needs the SDK
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("falaj."):
            raise
        raise StackError(
            f"stacks on {place.cloud} need its SDK ({error.name} is missing); install it with: "
            f"python3 engine/environment.py --extra {place.cloud}"
        ) from None
    provider = region_provider(place.cloud, {"region": place.region})
    options = pulumi.ResourceOptions(providers=[provider])
    return Cloud(place, components, common_arguments(settings, place), options, first_key)


def common_arguments(settings: CloudSettings, place: catalogue.Place) -> PlacedArgs:
    """What every component of the stack takes."""
    common: PlacedArgs = {
        "region": place.region,
        "tenant": settings.tenant,
        "owner": settings.owner,
        "data_class": settings.data_class,
        "cost_center": settings.cost_center,
        "environment": settings.environment,
    }
    accepted = settings.acknowledged.get(place.region)
    if accepted is not None:
        common["acknowledge_degraded"] = accepted
    return common


def first(values: pulumi.Output[Mapping[str, str]]) -> pulumi.Output[str]:
    """The entry of the first zone: where one subnet is enough."""
    return values.apply(lambda found: found[min(found)])


# The foundation, what all else stands on: keys, network, storage, registry, audit, identities.

_OPTIONAL = ("key_identity_id", "boundary_id", "egress_domains")


@dataclass(frozen=True)
class Foundation:
    """What other blueprints need of a foundation, made in this stack or in another."""

    key_ring_id: pulumi.Output[str]
    key_ids: pulumi.Output[dict[str, str]]
    key_identity_id: pulumi.Output[str | None]
    disk_encryption_id: pulumi.Output[str]
    network_id: pulumi.Output[str]
    node_subnet_ids: pulumi.Output[dict[str, str]]
    endpoint_subnet_ids: pulumi.Output[dict[str, str]]
    storage_subnet_ids: pulumi.Output[dict[str, str]]
    serving_subnet_ids: pulumi.Output[dict[str, str]]
    security_group_ids: pulumi.Output[dict[str, str]]
    bucket_names: pulumi.Output[dict[str, str]]
    bucket_ids: pulumi.Output[dict[str, str]]
    store_ids: pulumi.Output[dict[str, str]]
    registry_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]
    repository_urls: pulumi.Output[dict[str, str]]
    repository_ids: pulumi.Output[dict[str, str]]
    log_destination_id: pulumi.Output[str]
    boundary_id: pulumi.Output[str | None]
    egress_domains: pulumi.Output[list[str] | None]
    """Where the network has a way out to; a foundation that was made before tells none."""

    def export(self, cloud: Cloud) -> None:
        """Make everything an output of the stack, for stacks that refer to it."""
        for field in fields(self):
            cloud.export(camel(field.name), getattr(self, field.name))


def repositories_of(settings: OwnFoundation) -> list[str] | None:
    """Repositories of a stack's own registry: what it says, and that of a model that it serves.

    None: the component's default.
    """
    given: list[str] | None = settings.registry.model_dump()["repositories"]
    if not isinstance(settings, SmbSettings):
        return given
    wanted = [*(REPOSITORIES if given is None else given), packages_of(settings)]
    return list(dict.fromkeys(wanted))


def packages_of(settings: SmbSettings) -> str:
    """The repository of the packages of the model that a tier serves."""
    return f"{MODEL_REPOSITORIES}/{settings.inference.model_dump()['model']}"


def _has_sessions(settings: OwnFoundation) -> bool:
    """Whether a tier of the stack has sessions, whose endpoints are the network's."""
    return isinstance(settings, SmbSettings) and bool(
        settings.inference.model_dump().get("session_manager")
    )


def make_foundation(settings: OwnFoundation, cloud: Cloud) -> Foundation:
    """Make a foundation in this stack."""
    parts, options = cloud.components, cloud.options
    keys = parts.KeyRing("keys", cloud.args(settings.keys), options)
    network = parts.Network(
        "network",
        cloud.args(
            settings.network,
            log_key_id=keys.key_ids["logs"],
            key_identity_id=keys.key_identity_id,
            key_ring_id=keys.key_ring_id,
            session_manager=_has_sessions(settings) or None,
        ),
        options,
    )
    reached_from = {
        "network_id": network.network_id,
        "endpoint_subnet_id": first(network.endpoint_subnet_ids),
    }
    store = parts.ObjectStore(
        "store",
        cloud.args(
            settings.storage,
            data_key_id=keys.key_ids["data"],
            log_key_id=keys.key_ids["logs"],
            state_key_id=keys.key_ids["state"],
            key_identity_id=keys.key_identity_id,
            **reached_from,
        ),
        options,
    )
    trail = parts.AuditTrail(
        "audit",
        cloud.args(
            settings.audit,
            log_key_id=keys.key_ids["logs"],
            key_identity_id=keys.key_identity_id,
            key_ring_id=keys.key_ring_id,
            audit_bucket_name=store.bucket_names["audit"],
            audit_store_id=store.store_ids["audit"],
            data_store_id=cloud.on("azure", store.store_ids["datasets"]),
            **reached_from,
        ),
        options,
    )
    registry = parts.Registry(
        "registry",
        cloud.args(
            settings.registry,
            repositories=repositories_of(settings),
            registry_key_id=keys.key_ids["registry"],
            key_identity_id=keys.key_identity_id,
            key_ring_id=cloud.on("azure", keys.key_ring_id),
            first_key=cloud.first_key or None,
            log_destination_id=trail.log_destination_id,
            **reached_from,
        ),
        options,
    )
    identity = parts.Identity(
        "identity",
        cloud.args(
            settings.identity,
            bucket_ids=store.bucket_ids,
            repository_ids=registry.repository_ids,
            key_ids=keys.key_ids,
            key_ring_id=cloud.on("azure", keys.key_ring_id),
        ),
        options,
    )
    if settings.budget is not None:
        budget = {"emails": [settings.owner], **cloud.args(settings.budget)}
        parts.Budget("budget", budget, options)
    return Foundation(
        key_ring_id=keys.key_ring_id,
        key_ids=keys.key_ids,
        key_identity_id=keys.key_identity_id,
        disk_encryption_id=keys.disk_encryption_id,
        network_id=network.network_id,
        node_subnet_ids=network.node_subnet_ids,
        endpoint_subnet_ids=network.endpoint_subnet_ids,
        storage_subnet_ids=network.storage_subnet_ids,
        serving_subnet_ids=network.serving_subnet_ids,
        security_group_ids=network.security_group_ids,
        bucket_names=store.bucket_names,
        bucket_ids=store.bucket_ids,
        store_ids=store.store_ids,
        registry_id=registry.registry_id,
        registry_host=registry.registry_host,
        repository_urls=registry.repository_urls,
        repository_ids=registry.repository_ids,
        log_destination_id=trail.log_destination_id,
        boundary_id=identity.boundary_id,
        egress_domains=cloud.output(
            arguments(settings.network, NetworkArgs).get("egress_domains")
        ),
    )


def refer(stack: str, cloud: Cloud) -> Foundation:
    """Take the foundation of another stack of this project, which must be in the same place.

    Raises:
        pulumi.RunError: (in an output) the other stack is elsewhere.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    other = pulumi.StackReference(name)
    here = cloud.place.name
    elsewhere = other.require_output("place").apply(lambda there: _same_place(stack, there, here))

    def output(key: str) -> pulumi.Output[Any]:
        found = other.get_output(key) if key in optional else other.require_output(key)
        return pulumi.Output.all(found, elsewhere).apply(lambda both: both[0])

    optional = {camel(key) for key in _OPTIONAL}
    return Foundation(**{field.name: output(camel(field.name)) for field in fields(Foundation)})


def foundation_of(settings: OwnFoundation, stack: str | None, cloud: Cloud) -> Foundation:
    """The foundation that a stack stands on: another stack's where it names one, else its own."""
    if stack and cloud.unknown is not None:
        return Foundation(**{field.name: cloud.unknown for field in fields(Foundation)})
    return refer(stack, cloud) if stack else make_foundation(settings, cloud)


def declare_foundation(settings: OwnFoundation, cloud: Cloud) -> None:
    """Register the resources of a foundation stack and export what others need."""
    make_foundation(settings, cloud).export(cloud)


def _same_place(stack: str, there: str, here: str) -> str:
    if there != here:
        raise pulumi.RunError(
            f"falaj:foundation: stack {stack} is in {there}, this one in {here}; allowed: a "
            "foundation in the same place\n  choose another foundation, or the same region"
        )
    return there


# The cluster: Kubernetes with pools of GPU and CPU machines, and a fast file system.


def allowed_domains(settings: ClusterSettings, base: Foundation) -> pulumi.Output[list[str]]:
    """Domains that pods may reach: of the network's firewall, and hosts that the packs allow."""
    hosts = [domain_of(host) for host in settings.policies.allowed_hosts or ()]
    return base.egress_domains.apply(lambda found: [*(found or ()), *filter(None, hosts)])


def declare_cluster(settings: ClusterSettings, cloud: Cloud) -> None:
    """Register the resources of a cluster stack and export what others need."""
    parts, options = cloud.components, cloud.options
    base = foundation_of(settings, settings.foundation, cloud)
    cluster = parts.Cluster(
        "cluster",
        cloud.args(
            settings.cluster,
            network_id=base.network_id,
            node_subnet_ids=base.node_subnet_ids,
            security_group_id=base.security_group_ids["control-plane"],
            cluster_key_id=base.key_ids["cluster"],
            log_key_id=base.key_ids["logs"],
            disk_encryption_id=base.disk_encryption_id,
            key_identity_id=base.key_identity_id,
            key_ring_id=base.key_ring_id,
            registry_id=base.registry_id,
            log_destination_id=base.log_destination_id,
            allowed_domains=cloud.on("aws", allowed_domains(settings, base)),
            boundary_id=cloud.on("aws", base.boundary_id),
            zones=arguments(settings.network, NetworkArgs).get("zones"),
        ),
        options,
    )
    version = arguments(settings.cluster, ClusterArgs).get("kubernetes_version")
    machines = {
        "cluster_id": cluster.cluster_id,
        "node_subnet_ids": base.node_subnet_ids,
        "node_identity_id": cluster.node_identity_id,
        "security_group_id": base.security_group_ids["nodes"],
        "disk_encryption_id": base.disk_encryption_id,
        "kubernetes_version": version,
    }
    pools = {
        name: parts.CpuNodePool(name, cloud.args(pool, **machines), options)
        for name, pool in settings.cpu_pools.items()
    } | {
        name: parts.GpuNodePool(name, cloud.args(pool, **machines), options)
        for name, pool in settings.gpu_pools.items()
    }
    if settings.file_system is not None:
        files = parts.TrainingFileSystem(
            "files",
            cloud.args(
                settings.file_system,
                data_key_id=base.key_ids["data"],
                key_identity_id=base.key_identity_id,
                key_ring_id=base.key_ring_id,
                network_id=base.network_id,
                storage_subnet_ids=base.storage_subnet_ids,
                endpoint_subnet_id=first(base.endpoint_subnet_ids),
                security_group_id=base.security_group_ids["storage"],
                zones=arguments(settings.network, NetworkArgs).get("zones"),
            ),
            options,
        )
        cloud.export("fileSystemId", files.file_system_id)
        cloud.export("mountAddress", files.mount_address)
        cloud.export("homesAddress", files.homes_address)
    identities = {
        name: parts.WorkloadIdentity(
            name,
            cloud.args(
                workload,
                cluster_id=cluster.cluster_id,
                issuer_url=cluster.issuer_url,
                bucket_ids=base.bucket_ids,
                data_key_id=base.key_ids["data"],
                boundary_id=cloud.on("aws", base.boundary_id),
            ),
            options,
        )
        for name, workload in settings.workloads.items()
    }
    if settings.foundation is None:
        base.export(cloud)
    else:
        # Whoever makes storage classes in the cluster needs the key.
        cloud.export("diskEncryptionId", base.disk_encryption_id)
        # The resolver of the platform, too, answers what the network lets through.
        cloud.export("egressDomains", base.egress_domains)
        # Load balancers are made in it.
        cloud.export("networkId", base.network_id)
    cloud.export("clusterId", cluster.cluster_id)
    cloud.export("clusterName", cluster.cluster_name)
    cloud.export("clusterEndpoint", cluster.endpoint)
    cloud.export("certificateAuthority", cluster.certificate_authority)
    # What the platform can have in it depends on it.
    cloud.export("kubernetesVersion", cluster.kubernetes_version)
    cloud.export("issuerUrl", cluster.issuer_url)
    cloud.export(
        "pools",
        {
            name: {
                "name": pool.pool_name,
                "machine": pool.machine,
                "zones": pool.zones,
                "costAtMinimum": pool.cost_at_minimum,
                "costAtMaximum": pool.cost_at_maximum,
            }
            for name, pool in pools.items()
        },
    )
    cloud.export("workloadIdentities", {n: made.identity_id for n, made in identities.items()})


# The small business's tier: a model package served from CPU machines or containers.

_REPOSITORY = "inference"


def repository(found: pulumi.Output[Mapping[str, str]], name: str) -> pulumi.Output[str]:
    """Address or id of one of the registry's repositories.

    Raises:
        pulumi.RunError: (in an output) the registry has no such repository.
    """

    def chosen(known: Mapping[str, str]) -> str:
        if name not in known:
            raise pulumi.RunError(
                f"the registry has no repository {name!r}; it has: {', '.join(sorted(known))}\n"
                "  add it to falaj:registry.repositories of the stack that makes it, and "
                "bring that up first"
            )
        return known[name]

    return found.apply(chosen)


def declare_smb(settings: SmbSettings, cloud: Cloud, made_up: Mapping[str, Any]) -> None:
    """Register the resources of an inference tier and export its endpoint.

    Args:
        settings: the stack's settings.
        cloud: where it is made.
        made_up: what the sandbox stands in with for things that only a real account has.
    """
    base = foundation_of(settings, settings.foundation, cloud)
    given = {**settings.inference.model_dump(exclude_none=True), **made_up}
    digest = given.pop("image_digest")
    packages = packages_of(settings)
    tier = cloud.components.CpuInferenceTier(
        "inference",
        cloud.args(
            **given,
            network_id=base.network_id,
            serving_subnet_ids=base.serving_subnet_ids,
            security_group_id=base.security_group_ids["serving"],
            disk_encryption_id=base.disk_encryption_id,
            data_key_id=base.key_ids["data"],
            log_key_id=base.key_ids["logs"],
            key_identity_id=base.key_identity_id,
            registry_id=base.registry_id,
            repository_id=repository(base.repository_ids, _REPOSITORY),
            package_repository=repository(base.repository_urls, packages),
            package_repository_id=repository(base.repository_ids, packages),
            log_destination_id=base.log_destination_id,
            boundary_id=cloud.on("aws", base.boundary_id),
            image=repository(base.repository_urls, _REPOSITORY).apply(
                lambda url: f"{url}@{digest}"
            ),
        ),
        cloud.options,
    )
    if settings.foundation is None:
        base.export(cloud)
    cloud.export("endpoint", tier.endpoint)
    cloud.export("identityId", tier.identity_id)
    # A person fills it.
    cloud.export("keyringSecretId", tier.keyring_secret_id)
    cloud.export("machine", tier.machine)
    cloud.export("costAtMinimum", tier.cost_at_minimum)
    cloud.export("costAtMaximum", tier.cost_at_maximum)
