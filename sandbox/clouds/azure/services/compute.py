"""Microsoft.Compute: disk encryption sets, and scale sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    invented,
    keys,
    known,
    machines,
    naming,
    subnets,
)
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.azure.services import capacity
from falaj.sandbox.clouds.model import Problem

ENCRYPTION_SET: Final = "azure-native:compute:DiskEncryptionSet"
SCALE_SET: Final = "azure-native:compute:VirtualMachineScaleSet"
_PROFILE: Final = "virtualMachineProfile"
_DISK_SET: Final = "Microsoft.Compute/diskEncryptionSets"
_MINUTES: Final = re.compile(r"PT(\d+)M|PT(\d+)H(?:(\d+)M)?")
_TIME: Final = re.compile(r"PT(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?")
# Source: virtual-machines/capacity-reservation-overview: not for confidential, isolated or spot.
_SPOT: Final = ("Spot", "Low")


def _set_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "activeKey.keyUrl", "name the key that encrypts the disks")
    rotates = ask.flag("rotationToLatestKeyVersionEnabled")
    yield from keys.address(
        "activeKey.keyUrl", ask.text("activeKey.keyUrl"), versioned=None if rotates else True
    )
    yield from checks.resource_id(
        "activeKey.sourceVault.id",
        ask.text("activeKey.sourceVault.id"),
        "Microsoft.KeyVault/vaults",
    )
    yield from checks.needs(ask, "identity.type", "the set reads its key by a managed identity")
    yield from checks.guid("federatedClientId", ask.text("federatedClientId"))


def _set_conflicts(ask: Ask) -> Iterator[Problem]:
    # Source: virtual-machines/disk-encryption (restrictions): same region, purge protection.
    yield from keys.usable(
        ask, "activeKey.keyUrl", ask.text("activeKey.keyUrl"), region=location(ask)
    )
    source, uri = ask.text("activeKey.sourceVault.id"), ask.text("activeKey.keyUrl")
    found = keys.parse(uri) if uri else None
    if source and found and source.rpartition("/")[2].lower() != found.vault.lower():
        yield Problem(
            "activeKey.sourceVault.id",
            f"the key is in the vault {found.vault!r}, this "
            f"names {source.rpartition('/')[2]!r}; name the key's vault",
        )


def _set_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"previousKeys": [], "lastKeyRotationTimestamp": invented.MOMENT}


def _scale_set_problems(ask: Ask) -> Iterator[Problem]:
    size = ask.text("sku.name")
    yield from checks.needs(ask, "sku.name", "name a size, such as Standard_D8s_v6")
    yield from machines.sold("sku.name", ask.region, size)
    yield from checks.between(ask, "sku.capacity", 0, 1000)
    if ask.flag("singlePlacementGroup"):
        yield from checks.between(ask, "sku.capacity", 0, 100)
    yield from _priority(ask)
    yield from _disks(ask, size)
    yield from _upgrade(ask)
    prefix = ask.text(f"{_PROFILE}.osProfile.computerNamePrefix")
    is_windows = ask.is_given(f"{_PROFILE}.osProfile.windowsConfiguration")
    longest = 9 if is_windows else 58
    if prefix and not re.fullmatch(r"[A-Za-z0-9-]+", prefix):
        yield Problem(
            f"{_PROFILE}.osProfile.computerNamePrefix",
            f"{prefix!r} isn't allowed; allowed are letters, digits and hyphens",
        )
    if prefix and len(prefix) > longest:
        yield Problem(
            f"{_PROFILE}.osProfile.computerNamePrefix",
            f"has {len(prefix)} characters; at most {longest} are allowed",
        )
    security = f"{_PROFILE}.securityProfile"
    if ask.is_given(f"{security}.uefiSettings") and ask.is_absent(f"{security}.securityType"):
        yield Problem(
            f"{security}.securityType",
            "is missing: uefiSettings need TrustedLaunch or ConfidentialVM",
        )
    linux = f"{_PROFILE}.osProfile.linuxConfiguration"
    if ask.flag(f"{linux}.disablePasswordAuthentication") and ask.is_absent(
        f"{linux}.ssh.publicKeys[0]"
    ):
        yield Problem(
            f"{linux}.ssh.publicKeys",
            "is missing: without a password a machine needs a public key",
        )


def _priority(ask: Ask) -> Iterator[Problem]:
    priority = ask.text(f"{_PROFILE}.priority")
    spot_only = ("evictionPolicy", "billingProfile")
    if priority == "Spot" and ask.is_absent(f"{_PROFILE}.evictionPolicy"):
        yield Problem(
            f"{_PROFILE}.evictionPolicy",
            "is missing: spot machines are stopped "
            "(Deallocate) or deleted (Delete) when taken away",
        )
    for name in spot_only:
        if (
            priority in (None, "Regular")
            and ask.is_given(f"{_PROFILE}.{name}")
            and not (priority is None and ask.is_given(f"{_PROFILE}.priority"))
        ):
            yield Problem(f"{_PROFILE}.{name}", "goes with the priority Spot only")
    if priority in _SPOT and ask.is_given(f"{_PROFILE}.capacityReservation"):
        yield Problem(f"{_PROFILE}.capacityReservation", "doesn't go with the priority Spot")


def _disks(ask: Ask, size: str | None) -> Iterator[Problem]:
    os_disk = f"{_PROFILE}.storageProfile.osDisk"
    disks = [os_disk, *(path for path, _ in ask.items(f"{_PROFILE}.storageProfile.dataDisks"))]
    for path in disks:
        kind = ask.text(f"{path}.managedDisk.storageAccountType")
        if kind and kind.startswith("Premium") and size and not machines.has_premium_storage(size):
            yield Problem(
                f"{path}.managedDisk.storageAccountType",
                f"{kind} needs a size with premium storage (an s in its name); given is {size}",
            )
        yield from checks.resource_id(
            f"{path}.managedDisk.diskEncryptionSet.id",
            ask.text(f"{path}.managedDisk.diskEncryptionSet.id"),
            _DISK_SET,
        )
    yield from checks.between(ask, f"{os_disk}.diskSizeGB", 1, 4095, "GiB")
    if ask.is_given(f"{os_disk}.diffDiskSettings") and ask.text(f"{os_disk}.caching") not in (
        "ReadOnly",
        None,
    ):
        yield Problem(f"{os_disk}.caching", "an ephemeral disk needs ReadOnly")
    if (
        ask.is_given(f"{_PROFILE}.storageProfile")
        and ask.is_absent(f"{_PROFILE}.storageProfile.imageReference")
        and ask.text("orchestrationMode") != "Flexible"
    ):
        yield Problem(f"{_PROFILE}.storageProfile.imageReference", "is missing: name an image")


def _upgrade(ask: Ask) -> Iterator[Problem]:
    mode = ask.text("upgradePolicy.mode")
    is_flexible = ask.text("orchestrationMode") == "Flexible"
    if not is_flexible and ask.is_absent("upgradePolicy.mode") and ask.is_given(_PROFILE):
        yield Problem(
            "upgradePolicy.mode", "is missing: a uniform set needs Automatic, Manual or Rolling"
        )
    lacks_health = ask.is_absent(f"{_PROFILE}.networkProfile.healthProbe") and ask.is_absent(
        f"{_PROFILE}.extensionProfile"
    )
    if mode == "Rolling" and lacks_health:
        yield Problem(
            "upgradePolicy.mode",
            "Rolling needs to know the machines' health: give a "
            f"{_PROFILE}.networkProfile.healthProbe or the health extension",
        )
    if ask.flag("automaticRepairsPolicy.enabled") and lacks_health:
        yield Problem(
            "automaticRepairsPolicy",
            "needs to know the machines' health: give a "
            f"{_PROFILE}.networkProfile.healthProbe or the health extension",
        )
    for name in ("maxBatchInstancePercent", "maxUnhealthyInstancePercent"):
        yield from checks.between(ask, f"upgradePolicy.rollingUpgradePolicy.{name}", 5, 100, "%")
    yield from checks.between(
        ask, "upgradePolicy.rollingUpgradePolicy.maxUnhealthyUpgradedInstancePercent", 0, 100, "%"
    )
    pause = ask.text("upgradePolicy.rollingUpgradePolicy.pauseTimeBetweenBatches")
    if pause and not _TIME.fullmatch(pause):
        yield Problem(
            "upgradePolicy.rollingUpgradePolicy.pauseTimeBetweenBatches",
            f"{pause!r} isn't a duration such as PT30S",
        )
    grace = ask.text("automaticRepairsPolicy.gracePeriod")
    minutes = _minutes(grace) if grace else None
    if grace and (minutes is None or not 10 <= minutes <= 90):
        yield Problem(
            "automaticRepairsPolicy.gracePeriod",
            f"{grace!r} isn't allowed; allowed are PT10M to PT90M",
        )


def _minutes(duration: str) -> int | None:
    matched = _MINUTES.fullmatch(duration)
    if matched is None:
        return None
    return int(matched[1]) if matched[1] else int(matched[2]) * 60 + int(matched[3] or 0)


def _scale_set_conflicts(ask: Ask) -> Iterator[Problem]:
    where = location(ask)
    base = f"{_PROFILE}.networkProfile.networkInterfaceConfigurations"
    for interface, _ in ask.items(base):
        for path, _ in ask.items(f"{interface}.ipConfigurations"):
            yield from subnets.fits(ask, f"{path}.subnet.id", where=where)
    yield from same_region(
        ask, f"{_PROFILE}.storageProfile.osDisk.managedDisk.diskEncryptionSet.id", where
    )
    group = ask.text(f"{_PROFILE}.capacityReservation.capacityReservationGroup.id")
    if group:
        yield from capacity.reserved(
            ask,
            f"{_PROFILE}.capacityReservation.capacityReservationGroup.id",
            group,
            ask.text("sku.name"),
        )


def same_region(ask: Ask, path: str, region: str | None) -> Iterator[Problem]:
    """A problem when the resource whose id stands at a path is in another region."""
    id = ask.text(path)
    place = known.region_of(known.by_id(ask.world, id)) if ask.world and id else None
    if region and place and place != region:
        yield Problem(
            path, f"is in {place}, this resource in {region}; they must be in the same region"
        )


def _scale_set_outputs(ask: Ask) -> dict[str, Any]:
    sku = {**ask.mapping("sku"), "tier": ask.text("sku.tier") or "Standard"}
    return {
        "uniqueId": invented.guid("guid", ask.id or ""),
        "timeCreated": invented.MOMENT,
        "sku": sku,
    }


KINDS: Final = (
    Kind(
        ENCRYPTION_SET,
        "Microsoft.Compute/diskEncryptionSets/{diskEncryptionSetName}",
        name=naming.DISK,
        is_held_by_references=True,
        replaces=frozenset({"encryptionType"}),
        problems=_set_problems,
        conflicts=_set_conflicts,
        outputs=_set_outputs,
    ),
    Kind(
        SCALE_SET,
        "Microsoft.Compute/virtualMachineScaleSets/{vmScaleSetName}",
        name=naming.MACHINE,
        replaces=frozenset(
            {
                "orchestrationMode",
                "zones",
                "proximityPlacementGroup",
                "platformFaultDomainCount",
                "extendedLocation",
                f"{_PROFILE}.priority",
                f"{_PROFILE}.osProfile.computerNamePrefix",
                f"{_PROFILE}.osProfile.adminUsername",
            }
        ),
        problems=_scale_set_problems,
        conflicts=_scale_set_conflicts,
        outputs=_scale_set_outputs,
    ),
)
