"""Arguments of `ObjectStore`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class ObjectStoreArgs(PlacedArgs):
    """Arguments of `ObjectStore`."""

    data_key_id: pulumi.Input[str]
    """Key of datasets, models and checkpoints: ``KeyRing.key_ids["data"]``."""
    log_key_id: pulumi.Input[str]
    """Key of the audit logs: ``KeyRing.key_ids["logs"]``."""
    state_key_id: pulumi.Input[str]
    """Key of the infrastructure's state: ``KeyRing.key_ids["state"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure; AWS has none."""
    network_id: NotRequired[pulumi.Input[str]]
    """Network from which the store is reached: ``Network.network_id``. Needed on Azure for name
    resolution."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the store's private endpoint. Needed on Azure; on AWS the network's gateway
    endpoint serves."""
    buckets: NotRequired[list[str]]
    """Which of ``datasets``, ``models``, ``checkpoints``, ``audit``, ``state``. Default: all."""
    audit_retention_days: NotRequired[int]
    """Days for which nobody can change or delete an audit object. Default: 365."""
    old_version_days: NotRequired[int]
    """Days that replaced and deleted objects can be had back. Default: 30."""
    redundancy: NotRequired[str]
    """``local`` (one place), ``zone`` (several zones) or ``geo`` (both regions of the country).
    Default: ``zone`` where the region has zones, else ``local``. AWS: ``zone`` only."""
    allowed_regions: NotRequired[list[str]]
    """Regions where data may be. Default: ``region`` alone; ``geo`` needs both of the pair
    here."""
