"""Arguments of `CpuInferenceTier`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class CpuInferenceTierArgs(PlacedArgs):
    """Arguments of `CpuInferenceTier`."""

    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    serving_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.serving_subnet_ids``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["serving"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    data_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["data"]``."""
    log_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["logs"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    model_bucket_id: pulumi.Input[str]
    """``ObjectStore.bucket_ids["models"]``."""
    registry_id: pulumi.Input[str]
    """``Registry.registry_id``."""
    repository_id: NotRequired[pulumi.Input[str]]
    """``Registry.repository_ids["inference"]``. Needed on AWS."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``. Needed on Azure."""
    image: pulumi.Input[str]
    """Inference image in the registry, by digest (``host/inference@sha256:…``)."""
    model_package: str
    """Key of the signed model package in the bucket, such as ``packages/churn/3``."""
    certificate_id: NotRequired[pulumi.Input[str]]
    """Certificate of the listener: ACM ARN, or id of a Key Vault secret. Default on AWS: a private
    certificate authority of the tier's own; on Azure needed for ``instances``."""
    host_name: NotRequired[str]
    """Private name of the service. Default: ``inference.<tenant>.internal``."""
    mode: NotRequired[str]
    """``instances`` or ``serverless``. Default: ``instances``."""
    vcpu: NotRequired[int]
    """Virtual CPUs of each machine. Default: 2."""
    memory_gib: NotRequired[int]
    """Least memory of each machine. Default: 4."""
    int8: NotRequired[str]
    """``amx``, ``vnni``, ``i8mm`` or ``any``. Default: ``vnni``: instances only."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    machine_image: NotRequired[str]
    """Machine image: AMI id or SSM parameter; Azure image id. Default: the cloud's minimal Linux
    of the machine's architecture."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone that sells the machine and is not reported as impaired."""
    min_instances: NotRequired[int]
    """Floor. Default: 1."""
    max_instances: NotRequired[int]
    """Ceiling. Default: 3."""
    cpu_target_percent: NotRequired[int]
    """Use of CPUs at which another is added. Default: 60."""
    port: NotRequired[int]
    """Port of the listener. Default: 443."""
    allowed_cidrs: NotRequired[list[str]]
    """Private ranges that may call. Default: the network's own."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""
