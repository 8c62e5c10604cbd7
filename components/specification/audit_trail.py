"""Arguments of `AuditTrail`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class AuditTrailArgs(PlacedArgs):
    """Arguments of `AuditTrail`."""

    log_key_id: pulumi.Input[str]
    """Key of the logs: ``KeyRing.key_ids["logs"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    audit_bucket_name: pulumi.Input[str]
    """``ObjectStore.bucket_names["audit"]``."""
    audit_store_id: pulumi.Input[str]
    """``ObjectStore.store_ids["audit"]``."""
    retention_days: NotRequired[int]
    """Days that logs can be searched. Default: 365."""
    threat_detection: NotRequired[bool]
    """GuardDuty, or Defender for Cloud plans. Default: true."""
    alert_emails: NotRequired[list[str]]
    """Who is told of findings. Default: nobody."""
