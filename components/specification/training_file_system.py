"""Arguments of `TrainingFileSystem`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, ByCloud, OneOf
from falaj.components.specification.placed import (
    Placed,
    PlacedArgs,
    check_placed,
    chosen_zones,
    region_zones,
)

LUSTRE = "lustre"
NETAPP = "netapp"
SERVICES = ByCloud.of({"aws": (LUSTRE,), "azure": (NETAPP, LUSTRE)})
#: What the catalogue calls them.
_AZURE_SERVICES = {NETAPP: "Azure NetApp Files", LUSTRE: "Azure Managed Lustre"}
PERSISTENT_1 = "persistent-1"
PERSISTENT_2 = "persistent-2"
DEPLOYMENT_TYPES = OneOf((PERSISTENT_1, PERSISTENT_2))
#: MB/s for each TiB of SSD: https://docs.aws.amazon.com/fsx/latest/LustreGuide/performance.html;
#: https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-portal
_FSX_THROUGHPUTS = {PERSISTENT_1: (50, 100, 200), PERSISTENT_2: (125, 250, 500, 1000)}
NEWER_FSX_THROUGHPUTS = OneOf(_FSX_THROUGHPUTS[PERSISTENT_2])
THROUGHPUTS = ByCloud.of(
    {
        "aws": sorted(each for found in _FSX_THROUGHPUTS.values() for each in found),
        "azure": (125, 250, 500),
    }
)
DEFAULT_THROUGHPUT = Default(250)
#: Where nobody says: what the older type has next to the newer's default.
_PERSISTENT_1_THROUGHPUT = 200
#: The smallest that a service has, and a pebibyte.
CAPACITY_GIB = Between(1024, 1_048_576)
#: What FSx for Lustre takes, and the least that a capacity pool of NetApp makes sense with.
_FSX_GIB = Between(1200, 1_000_800)
_NETAPP_GIB = 2048
#: Premium Azure Files: https://learn.microsoft.com/azure/storage/files/storage-files-scale-targets
HOMES_GIB = Between(100, 102_400)
#: Azure Managed Lustre grows in steps, in GiB, by throughput (the same page).
_AZURE_STEP = {125: 16384, 250: 8192, 500: 4096}


@described
class TrainingFileSystemArgs(PlacedArgs):
    """Arguments of `TrainingFileSystem`."""

    data_key_id: pulumi.Input[str]
    """Key of the data: ``KeyRing.key_ids["data"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    storage_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.storage_subnet_ids``."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the private endpoint of shared homes. Needed on Azure."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["storage"]``."""
    zone: NotRequired[str]
    """Zone of the fast file system; put it where the GPUs are. Default: the first zone of the
    subnets."""
    zones: NotRequired[list[str]]
    """Zones of ``storage_subnet_ids``, as plain values. Default: every zone of the region that is
    not reported as impaired."""
    service: NotRequired[Annotated[str, SERVICES]]
    """Which fast file system it is. Default: ``lustre`` on AWS, ``netapp`` on Azure."""
    capacity_gib: NotRequired[Annotated[int, CAPACITY_GIB]]
    """Size of the fast file system in GiB. Default: the smallest: 1200 (FSx for Lustre), 2048
    (NetApp), and on Azure Managed Lustre 16384, 8192 or 4096 by throughput."""
    deployment_type: NotRequired[Annotated[str, DEPLOYMENT_TYPES, Default(PERSISTENT_2)]]
    """Generation of FSx for Lustre. AWS sells ``persistent-2`` in some regions only and lists
    ``me-central-1`` nowhere that could be read: ask before, and take ``persistent-1`` where it
    isn't sold, which is wherever FSx for Lustre is. A change makes a new, empty file system. AWS
    only."""
    throughput_mbs_per_tib: NotRequired[Annotated[int, THROUGHPUTS, DEFAULT_THROUGHPUT]]
    """Throughput in MB/s for each TiB: 125, 250, 500 or, on AWS, 1000; with ``persistent-1`` 50,
    100 or 200, which is the default there. Lustre only."""
    homes: NotRequired[Annotated[bool, Default(value=True)]]
    """Shared homes beside the fast file system (EFS; Azure Files premium)."""
    homes_gib: NotRequired[Annotated[int, HOMES_GIB, Default(256)]]
    """Size of the homes in GiB where it has to be said. Azure only."""


@dataclass(frozen=True, kw_only=True)
class TrainingFileSystemSpec:
    """The plain arguments of `TrainingFileSystem`, checked."""

    placed: Placed
    zone: str
    zones: tuple[str, ...]
    service: str
    deployment_type: str
    """Of FSx; not used on Azure."""
    capacity_gib: int
    throughput_mbs_per_tib: int
    """Of Lustre; not used by NetApp."""
    homes: bool
    homes_gib: int


def check(cloud: str, name: str, args: TrainingFileSystemArgs) -> TrainingFileSystemSpec:
    """Check what is plain in the arguments of `TrainingFileSystem`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"TrainingFileSystem {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, TrainingFileSystemArgs, cloud)
    placed = check_placed(cloud, given, errors)
    zones = chosen_zones(placed, given, errors) if placed else ()
    zone = _zone(placed, given.get("zone"), zones, errors) if placed else ""
    service: str = checked["service"] or (LUSTRE if cloud == "aws" else NETAPP)
    if placed and cloud == "azure" and service in _AZURE_SERVICES:
        _offered(placed, service, errors)
    kind: str = checked["deployment_type"]
    throughput: int = checked["throughput_mbs_per_tib"]
    if cloud == "aws":
        throughput = _fsx_throughput(kind, throughput, given, errors)
    elif given.get("deployment_type") is not None:
        errors.say(
            "deployment_type",
            f"given {kind!r}; only FSx for Lustre has it: leave it out on Azure",
        )
    if service == NETAPP and given.get("throughput_mbs_per_tib") is not None:
        errors.say(
            "throughput_mbs_per_tib",
            f"given {throughput!r}; only Lustre has it: leave it out, or choose service 'lustre'",
        )
    capacity = _capacity(cloud, service, throughput, checked["capacity_gib"], errors)
    homes: bool = checked["homes"]
    _check_homes_gib(cloud, homes, given.get("homes_gib"), errors)
    if cloud == "azure":
        needed = ("key_identity_id", "key_ring_id", "endpoint_subnet_id")
        errors.needed(given, needed, "on Azure")
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return TrainingFileSystemSpec(
        placed=placed,
        zone=zone,
        zones=zones,
        service=service,
        deployment_type=kind,
        capacity_gib=capacity,
        throughput_mbs_per_tib=throughput,
        homes=homes,
        homes_gib=checked["homes_gib"],
    )


def _offered(placed: Placed, service: str, errors: ArgumentErrors) -> None:
    """Refuse what the region isn't known to sell."""
    found = placed.place.service(_AZURE_SERVICES[service])
    if found.available is not True:
        other = [each for each in _AZURE_SERVICES if each != service]
        errors.add(
            "service",
            service,
            "a service that the catalogue says is sold in the region",
            f"{found.name} in {placed.region}: {found}; take {other[0]!r}, or ask Microsoft and "
            "have the catalogue changed",
        )


def _fsx_throughput(
    kind: str, throughput: int, given: Mapping[str, Any], errors: ArgumentErrors
) -> int:
    """The throughput, which each deployment type has its own of."""
    allowed = _FSX_THROUGHPUTS.get(kind, ())
    if given.get("throughput_mbs_per_tib") is None:
        return _PERSISTENT_1_THROUGHPUT if kind == PERSISTENT_1 else throughput
    # What neither has was refused already.
    if throughput in THROUGHPUTS.on("aws").values and throughput not in allowed:
        errors.add(
            "throughput_mbs_per_tib", throughput, OneOf(allowed), f"on deployment_type {kind!r}"
        )
    return throughput


def _zone(placed: Placed, value: object, zones: tuple[str, ...], errors: ArgumentErrors) -> str:
    if value is None:
        return zones[0] if zones else ""
    if value not in zones:
        hint = "name it in zones, too" if value in region_zones(placed.place) else ""
        errors.add("zone", value, OneOf(zones), hint)
    return str(value)


def _capacity(
    cloud: str, service: str, throughput: int, value: int | None, errors: ArgumentErrors
) -> int:
    if service == NETAPP:
        # A capacity pool has 1 TiB at least and 1 PiB at most: https://learn.microsoft.com/azure/
        # azure-netapp-files/azure-netapp-files-resource-limits
        size = _NETAPP_GIB if value is None else value
        if size % 1024:
            near = -(-size // 1024) * 1024
            words = "whole TiB: 1024, 2048, 3072 …"
            errors.add("capacity_gib", value, words, limit=OneOf((near,)))
        return size
    if cloud == "azure":
        step = _AZURE_STEP.get(throughput, max(_AZURE_STEP.values()))
        rule = Between(step, CAPACITY_GIB.high)
        size = errors.within("capacity_gib", step if value is None else value, rule)
        if size % step:
            errors.add(
                "capacity_gib", value, f"multiples of {step} at {throughput} MB/s/TiB",
                limit=OneOf((-(-size // step) * step,)),
            )  # fmt: skip
        return size
    size = errors.within("capacity_gib", _FSX_GIB.low if value is None else value, _FSX_GIB)
    if size != _FSX_GIB.low and size % 2400:
        # https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystem.html
        near = -(-size // 2400) * 2400
        errors.add(
            "capacity_gib", value, "1200, 2400 and multiples of 2400", f"such as {near}",
            limit=OneOf((near,)),
        )  # fmt: skip
    return size


def _check_homes_gib(cloud: str, homes: bool, value: object, errors: ArgumentErrors) -> None:
    if value is None:
        return
    if cloud == "aws":
        errors.say("homes_gib", f"given {value!r}; EFS grows by itself: leave it out on AWS")
    elif not homes:
        errors.say("homes_gib", f"given {value!r} without homes: leave it out, or set homes")
