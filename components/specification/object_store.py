"""Arguments of `ObjectStore`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi
from annotated_types import Len

from falaj.components import catalogue
from falaj.components.catalogue import REGIONS
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed

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
    buckets: NotRequired[Annotated[list[Annotated[str, OneOf(BUCKETS)]], Len(1), Default(BUCKETS)]]
    """Which buckets are made."""
    audit_retention_days: NotRequired[Annotated[int, AUDIT_RETENTION_DAYS, Default(365)]]
    """Days for which nobody can change or delete an audit object."""
    old_version_days: NotRequired[Annotated[int, OLD_VERSION_DAYS, Default(30)]]
    """Days that replaced and deleted objects can be had back."""
    redundancy: NotRequired[Annotated[str, OneOf(REDUNDANCIES)]]
    """Where copies are: in one place, in several zones, or in both regions of the country.
    Default: ``zone`` where the region has zones, else ``local``. AWS: ``zone`` only."""
    allowed_regions: NotRequired[list[Annotated[str, OneOf(REGIONS)]]]
    """Regions where data may be. Default: ``region`` alone; ``geo`` needs both of the pair
    here."""


@dataclass(frozen=True, kw_only=True)
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
    errors = ArgumentErrors(f"ObjectStore {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, ObjectStoreArgs, cloud)
    placed = check_placed(cloud, given, errors)
    if cloud == "azure":
        needed = ("key_identity_id", "network_id", "endpoint_subnet_id")
        errors.needed(given, needed, "on Azure")
    regions: tuple[str, ...] = ()
    redundancy = "zone"
    if placed:
        regions = _regions(placed, given.get("allowed_regions"), errors)
        redundancy = _redundancy(placed, checked["redundancy"], regions, errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return ObjectStoreSpec(
        placed=placed,
        buckets=tuple(each for each in BUCKETS if each in checked["buckets"]),
        audit_retention_days=checked["audit_retention_days"],
        old_version_days=checked["old_version_days"],
        redundancy=redundancy,
        allowed_regions=regions,
    )


def _regions(placed: Placed, value: object, errors: ArgumentErrors) -> tuple[str, ...]:
    if value is None:
        return (placed.region,)
    found = errors.texts("allowed_regions", value)
    for position, region in enumerate(found):
        try:
            catalogue.place(placed.place.cloud, region)
        except catalogue.CatalogueError as error:
            errors.say(f"allowed_regions[{position}]", str(error))
    if placed.region not in found:
        errors.add("allowed_regions", list(found), f"regions with {placed.region} among them")
    return found


def _redundancy(
    placed: Placed, value: str | None, regions: tuple[str, ...], errors: ArgumentErrors
) -> str:
    has_zones = bool(placed.place.zones)
    if value is None:
        return "zone" if has_zones else "local"
    if placed.place.cloud == "aws" and value != "zone":
        errors.add(
            "redundancy",
            value,
            "zone",
            "S3 keeps data in several zones of the one region that AWS has in the country",
        )
    elif value == "zone" and not has_zones:
        errors.add("redundancy", value, "local, geo", f"{placed.region} has no zones")
    elif value == "geo":
        pair = placed.place.pair
        if pair is None:
            errors.add("redundancy", value, "local, zone", f"{placed.region} has no pair")
        elif pair not in regions:
            errors.add(
                "redundancy",
                value,
                "local, zone",
                f"data would be copied to {pair}: name it in allowed_regions if it may be",
            )
    return value
