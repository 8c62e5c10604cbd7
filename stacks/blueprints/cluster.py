"""A Kubernetes cluster with pools of GPU and CPU machines, and a fast file system."""

from __future__ import annotations

from falaj.components.specification.cluster import ClusterArgs
from falaj.components.specification.network import NetworkArgs
from falaj.stacks.blueprints import foundation
from falaj.stacks.blueprints.cloud import Cloud, first
from falaj.stacks.settings import ClusterSettings
from falaj.stacks.settings.derived import arguments


def declare(settings: ClusterSettings, cloud: Cloud) -> None:
    """Register the resources of a cluster stack and export what others need."""
    parts, options = cloud.components, cloud.options
    base = foundation.of(settings, settings.foundation, cloud)
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
    cloud.export("clusterId", cluster.cluster_id)
    cloud.export("clusterName", cluster.cluster_name)
    cloud.export("clusterEndpoint", cluster.endpoint)
    cloud.export("certificateAuthority", cluster.certificate_authority)
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
