"""Arguments of `Network`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class NetworkArgs(PlacedArgs):
    """Arguments of `Network`."""

    log_key_id: pulumi.Input[str]
    """Key of the flow logs: ``KeyRing.key_ids["logs"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """Identity that may use the keys: ``KeyRing.key_identity_id``. Needed on Azure; AWS has
    none."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``: gets its private endpoint in this network. Default: none; on AWS
    one endpoint serves all keys."""
    cidr: NotRequired[str]
    """Private range, from /16 to /22. Default: ``10.64.0.0/16``."""
    zones: NotRequired[list[str]]
    """Zone ids (``mec1-az1``; on Azure ``1``, ``2``, ``3``). Default: every zone of the region
    that is not reported as impaired."""
    egress_domains: NotRequired[list[str]]
    """Domains that may be reached, through a firewall; ``.example.ae`` stands for all below it.
    Default: none, and the network has no way out."""
    organization_id: NotRequired[str]
    """Organisation (``o-…``) whose resources private endpoints may reach. Default: only those of
    this account. Not used on Azure, where an endpoint leads to one resource."""
    flow_log_days: NotRequired[int]
    """Days that flow logs are kept. Default: 365."""
