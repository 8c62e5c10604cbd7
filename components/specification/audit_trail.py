"""Arguments of `AuditTrail`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

import pulumi

from components.specification.emails import checked_emails
from components.specification.placed import Placed, PlacedArgs, check_placed
from components.specification.refusals import Refusals
from components.specification.retention import log_days


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


@dataclass(frozen=True)
class AuditTrailSpec:
    """The plain arguments of `AuditTrail`, checked."""

    placed: Placed
    retention_days: int
    threat_detection: bool
    alert_emails: tuple[str, ...]


def check(cloud: str, name: str, args: AuditTrailArgs) -> AuditTrailSpec:
    """Check what is plain in the arguments of `AuditTrail`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"AuditTrail {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, AuditTrailArgs)
    placed = check_placed(cloud, given, refusals)
    days = log_days(cloud, "retention_days", given.get("retention_days", 365), refusals)
    detection = refusals.flag("threat_detection", given.get("threat_detection", True))
    emails = checked_emails("alert_emails", given.get("alert_emails", []), refusals)
    if emails and not detection:
        refusals.say(
            "alert_emails",
            "given without threat_detection: there would be no findings to tell; leave it out, or "
            "set threat_detection",
        )
    if cloud == "azure":
        refusals.needed(given, ("key_identity_id", "key_ring_id"), "on Azure")
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return AuditTrailSpec(placed, days, detection, emails)
