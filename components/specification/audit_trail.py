"""Arguments of `AuditTrail`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi
from annotated_types import Len

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import EMAIL, MOST_EMAILS, TextRule
from falaj.components.specification.placed import (
    LOG_DAYS,
    Placed,
    PlacedArgs,
    check_placed,
    log_days,
)

#: https://docs.aws.amazon.com/guardduty/latest/APIReference/API_GetDetector.html
DETECTOR = TextRule(
    r"^[0-9a-f]{32}$",
    "a detector's id of 32 hexadecimal digits, as `aws guardduty list-detectors --region REGION` "
    "tells it",
    "0123456789abcdef" * 2,
)


@described
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
    data_store_id: NotRequired[pulumi.Input[str]]
    """``ObjectStore.store_ids["datasets"]``: a store whose reads and writes are recorded. Default:
    none on Azure; on AWS those of all of the stack's buckets are."""
    network_id: NotRequired[pulumi.Input[str]]
    """``Network.network_id``: logs are searched from there. Needed on Azure; not used on AWS."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the private endpoint of the logs. Needed on Azure; not used on AWS."""
    dedicated_logs: NotRequired[bool]
    """Searchable logs in a cluster of one's own, under ``log_key_id``: at least 100 GB a day are
    paid, and Azure may refuse the key (see ``AuditTrail``). Default: for restricted data; else
    they are under the platform's key, and the archive under ours. Azure only: on AWS they always
    have the key."""
    retention_days: NotRequired[Annotated[int, LOG_DAYS, Default(365)]]
    """Days that logs can be searched."""
    threat_detection: NotRequired[Annotated[bool, Default(value=True)]]
    """GuardDuty, or Defender for Cloud plans."""
    detector_id: NotRequired[Annotated[str, DETECTOR]]
    """GuardDuty detector of the region that exists already, made by another stack or for the whole
    organisation: it is used as it is. An account has one in each region, and AWS refuses a second
    (``a detector already exists``); ``aws guardduty list-detectors`` tells its id. Default: one is
    made. AWS only: Defender's plans are the subscription's, whoever sets them."""
    alert_emails: NotRequired[Annotated[list[Annotated[str, EMAIL]], Len(0, MOST_EMAILS)]]
    """Who is told of findings. Default: nobody."""


@dataclass(frozen=True, kw_only=True)
class AuditTrailSpec:
    """The plain arguments of `AuditTrail`, checked."""

    placed: Placed
    retention_days: int
    threat_detection: bool
    detector_id: str | None
    """AWS only. None where a detector is to be made."""
    alert_emails: tuple[str, ...]
    dedicated_logs: bool
    """Azure only."""


def check(cloud: str, name: str, args: AuditTrailArgs) -> AuditTrailSpec:
    """Check what is plain in the arguments of `AuditTrail`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"AuditTrail {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, AuditTrailArgs, cloud)
    placed = check_placed(cloud, given, errors)
    days = log_days(cloud, "retention_days", checked["retention_days"], errors)
    detection: bool = checked["threat_detection"]
    emails: tuple[str, ...] = checked["alert_emails"] or ()
    if emails and not detection:
        errors.say(
            "alert_emails",
            "given without threat_detection: there would be no findings to tell; leave it out, or "
            "set threat_detection",
        )
    _check_detector(cloud, given.get("detector_id"), detection, errors)
    restricted = placed is not None and placed.data_class == "restricted"
    dedicated: bool | None = checked["dedicated_logs"]
    if dedicated is not None and cloud == "aws":
        errors.say(
            "dedicated_logs",
            f"given {dedicated!r}; CloudWatch's log groups have the key anyway: leave it out on "
            "AWS",
        )
    if cloud == "azure":
        needed = ("key_identity_id", "key_ring_id", "network_id", "endpoint_subnet_id")
        errors.needed(given, needed, "on Azure")
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return AuditTrailSpec(
        placed=placed,
        retention_days=days,
        threat_detection=detection,
        detector_id=checked["detector_id"],
        alert_emails=emails,
        dedicated_logs=restricted and cloud == "azure" if dedicated is None else dedicated,
    )


def _check_detector(cloud: str, value: object, detection: bool, errors: ArgumentErrors) -> None:
    if value is not None and cloud == "azure":
        errors.say(
            "detector_id",
            f"given {value!r}; Azure has no detectors, and several stacks may set the plans of "
            "one subscription: leave it out on Azure",
        )
    elif value is not None and not detection:
        errors.say(
            "detector_id",
            f"given {value!r} without threat_detection; leave it out, or set threat_detection",
        )
