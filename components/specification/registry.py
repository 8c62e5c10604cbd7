"""Arguments of `Registry`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class RegistryArgs(PlacedArgs):
    """Arguments of `Registry`."""

    registry_key_id: pulumi.Input[str]
    """Key of the images: ``KeyRing.key_ids["registry"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    network_id: NotRequired[pulumi.Input[str]]
    """``Network.network_id``. Needed on Azure."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the registry's private endpoint. Needed on Azure; AWS reaches it through the
    network's endpoints."""
    repositories: NotRequired[list[str]]
    """Repositories to make. Default: ``training``, ``inference``, ``platform``."""
    upstreams: NotRequired[list[str]]
    """Registries that may be pulled through (``registry.k8s.io``, ``quay.io``, ``nvcr.io`` …).
    Default: none."""
    keep_images: NotRequired[int]
    """Newest images that are kept in each repository. Default: 100."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``, for the registry's own log. Azure only. Default: none."""
