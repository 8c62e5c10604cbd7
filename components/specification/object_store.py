"""Arguments of `ObjectStore`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed
from falaj.components.specification.refusals import Refusals

BUCKETS = ("datasets", "models", "checkpoints", "audit", "state")
REDUNDANCIES = ("local", "zone", "geo")
#: A hundred years: what S3 Object Lock takes at most, https://docs.aws.amazon.com/AmazonS3/
#: latest/userguide/object-lock.html
AUDIT_RETENTION_DAYS = Between(1, 36_500)
OLD_VERSION_DAYS = Between(1, 365)


@described
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


@dataclass(frozen=True)
class ObjectStoreSpec:
    """The plain arguments of `ObjectStore`, checked."""

    placed: Placed
    buckets: tuple[str, ...]
    audit_retention_days: int
    old_version_days: int
    redundancy: str
    allowed_regions: tuple[str, ...]


def check(cloud: str, name: str, args: ObjectStoreArgs) -> ObjectStoreSpec:
    """Check what is plain in the arguments of `ObjectStore`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"ObjectStore {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, ObjectStoreArgs)
    placed = check_placed(cloud, given, refusals)
    buckets = refusals.texts("buckets", given.get("buckets", BUCKETS))
    for position, bucket in enumerate(buckets):
        refusals.choice(f"buckets[{position}]", bucket, BUCKETS)
    if not buckets:
        refusals.add("buckets", [], f"at least one of {', '.join(BUCKETS)}")
    audit = refusals.within(
        "audit_retention_days", given.get("audit_retention_days", 365), AUDIT_RETENTION_DAYS
    )
    old = refusals.within("old_version_days", given.get("old_version_days", 30), OLD_VERSION_DAYS)
    if cloud == "azure":
        needed = ("key_identity_id", "network_id", "endpoint_subnet_id")
        refusals.needed(given, needed, "on Azure")
    regions: tuple[str, ...] = ()
    redundancy = "zone"
    if placed:
        regions = _regions(placed, given.get("allowed_regions"), refusals)
        redundancy = _redundancy(placed, given.get("redundancy"), regions, refusals)
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    ordered = tuple(each for each in BUCKETS if each in buckets)
    return ObjectStoreSpec(placed, ordered, audit, old, redundancy, regions)


def _regions(placed: Placed, value: object, refusals: Refusals) -> tuple[str, ...]:
    if value is None:
        return (placed.region,)
    found = refusals.texts("allowed_regions", value)
    for position, region in enumerate(found):
        try:
            catalogue.place(placed.place.cloud, region)
        except catalogue.CatalogueError as error:
            refusals.say(f"allowed_regions[{position}]", str(error))
    if placed.region not in found:
        refusals.add("allowed_regions", list(found), f"regions with {placed.region} among them")
    return found


def _redundancy(
    placed: Placed, value: object, regions: tuple[str, ...], refusals: Refusals
) -> str:
    has_zones = bool(placed.place.zones)
    if value is None:
        return "zone" if has_zones else "local"
    refusals.choice("redundancy", value, REDUNDANCIES)
    if placed.place.cloud == "aws" and value != "zone":
        refusals.add(
            "redundancy",
            value,
            "zone",
            "S3 keeps data in several zones of the one region that AWS has in the country",
        )
    elif value == "zone" and not has_zones:
        refusals.add("redundancy", value, "local, geo", f"{placed.region} has no zones")
    elif value == "geo":
        pair = placed.place.pair
        if pair is None:
            refusals.add("redundancy", value, "local, zone", f"{placed.region} has no pair")
        elif pair not in regions:
            refusals.add(
                "redundancy",
                value,
                "local, zone",
                f"data would be copied to {pair}: name it in allowed_regions if it may be",
            )
    return str(value)
