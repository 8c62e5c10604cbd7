"""Arguments of `WorkloadIdentity`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class WorkloadIdentityArgs(PlacedArgs):
    """Arguments of `WorkloadIdentity`: what the pods of one service account may do."""

    cluster_id: pulumi.Input[str]
    """``Cluster.cluster_id``."""
    issuer_url: pulumi.Input[str]
    """``Cluster.issuer_url``."""
    namespace: str
    """Namespace of the service account."""
    service_account: str
    """Name of the service account."""
    duty: str
    """``trainer`` or ``deployer``: decides which buckets are read and written."""
    bucket_ids: pulumi.Input[dict[str, str]]
    """``ObjectStore.bucket_ids``."""
    data_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["data"]``."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""
