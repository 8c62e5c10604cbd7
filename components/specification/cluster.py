"""Arguments of `Cluster`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class ClusterArgs(PlacedArgs):
    """Arguments of `Cluster`."""

    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    node_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.node_subnet_ids``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["control-plane"]``."""
    cluster_key_id: pulumi.Input[str]
    """Key of the cluster's secrets: ``KeyRing.key_ids["cluster"]``."""
    log_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["logs"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    registry_id: NotRequired[pulumi.Input[str]]
    """``Registry.registry_id``: nodes may pull from it. Needed on Azure."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``. Needed on Azure; on AWS the cluster has a log group of
    its own."""
    zones: NotRequired[list[str]]
    """Zones of ``node_subnet_ids``, as plain values. Default: every zone of the region that is not
    reported as impaired."""
    administrators: NotRequired[list[str]]
    """Principals that administer the cluster: role ARNs, or object ids of Entra groups. Default:
    nobody beside the provisioner who makes it (AWS), nobody (Azure)."""
    viewers: NotRequired[list[str]]
    """Principals that may read, secrets excepted. Default: nobody."""
    kubernetes_version: NotRequired[str]
    """Minor version. Default: ``1.35``."""
    service_cidr: NotRequired[str]
    """Range of service addresses, outside of the network's. Default: ``172.20.0.0/16``."""
    log_days: NotRequired[int]
    """Days that control-plane logs are kept. Default: 365."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""
