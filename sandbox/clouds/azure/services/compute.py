"""Microsoft.Compute: disk encryption sets, scale sets, reserved capacity and placement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    kinds,
    naming,
    regions,
    relations,
    resources,
    subnets,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    equals,
    formed,
    given,
    is_on,
    longer_than,
    refused,
    required,
    sized,
    texts,
    when,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.vendor import MADE_AT

RESERVATION: Final = "azure-native:compute:CapacityReservation"


def reserved(resource: Resource, path: str, group: str, size: str | None) -> Iterator[Problem]:
    """A problem when a group of reservations holds none of the size."""
    if size is None or resources.by_id(resource.world, group) is None:
        return
    sizes = {
        Inputs(made.inputs).optional_string("sku.name")
        for made in resource.world.all(RESERVATION)
        if made.id.lower().startswith(group.lower() + "/")
    }
    if size not in sizes:
        held = ", ".join(sorted(item for item in sizes if item)) or "nothing"
        yield Problem(
            path, f"the group reserves {held}, not {size}; add a reservation of that size"
        )


def _reservation_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from regions.sold(
        "sku.name", regions.region_of(inputs), inputs.optional_string("sku.name")
    )


def _reservation_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = (
        resources.by_id(resource.world, resource.id.rsplit("/", 2)[0]) if resource.id else None
    )
    if parent is None:
        return
    allowed = {text for _, text in Inputs(parent.inputs).strings("zones")}
    given = {text for _, text in resource.strings("zones")}
    if given - allowed or (allowed and not given):
        listed = ", ".join(sorted(allowed)) or "none"
        yield Problem(
            "zones", f"the group's zones are {listed}; the reservation must be in one of them"
        )


def _reservation_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "reservationId": naming.guid("reservation", resource.id),
        "provisioningTime": MADE_AT,
        "timeCreated": MADE_AT,
    }


def _group_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"capacityReservations": [], "virtualMachinesAssociated": []}


ENCRYPTION_SET: Final = "azure-native:compute:DiskEncryptionSet"
SCALE_SET: Final = "azure-native:compute:VirtualMachineScaleSet"
_PROFILE: Final = "virtualMachineProfile"
_DISK_SET: Final = "Microsoft.Compute/diskEncryptionSets"
_TIME: Final = re.compile(r"PT(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?")
# Source: virtual-machines/capacity-reservation-overview: not for confidential, isolated or spot.
_SPOT: Final = ("Spot", "Low")


def _set_problems(inputs: Inputs) -> Iterator[Problem]:
    rotates = inputs.flag("rotationToLatestKeyVersionEnabled")
    yield from key_vault.address(
        "activeKey.keyUrl",
        inputs.optional_string("activeKey.keyUrl"),
        versioned=None if rotates else True,
    )


def _set_conflicts(resource: Resource) -> Iterator[Problem]:
    # Source: virtual-machines/disk-encryption (restrictions): same region, purge protection.
    yield from key_vault.usable(
        resource,
        "activeKey.keyUrl",
        resource.optional_string("activeKey.keyUrl"),
        region=location(resource),
    )
    source, uri = (
        resource.optional_string("activeKey.sourceVault.id"),
        resource.optional_string("activeKey.keyUrl"),
    )
    found = key_vault.parse(uri) if uri else None
    if source and found and source.rpartition("/")[2].lower() != found.vault.lower():
        yield Problem(
            "activeKey.sourceVault.id",
            f"the key is in the vault {found.vault!r}, this "
            f"names {source.rpartition('/')[2]!r}; name the key's vault",
        )


def _set_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"previousKeys": [], "lastKeyRotationTimestamp": MADE_AT}


def _scale_set_problems(inputs: Inputs) -> Iterator[Problem]:
    size = inputs.optional_string("sku.name")
    yield from regions.sold("sku.name", regions.region_of(inputs), size)
    yield from _disks(inputs, size)
    security = f"{_PROFILE}.securityProfile"
    if inputs.is_given(f"{security}.uefiSettings") and inputs.is_absent(
        f"{security}.securityType"
    ):
        yield Problem(
            f"{security}.securityType",
            "is missing: uefiSettings need TrustedLaunch or ConfidentialVM",
        )
    linux = f"{_PROFILE}.osProfile.linuxConfiguration"
    if inputs.flag(f"{linux}.disablePasswordAuthentication") and inputs.is_absent(
        f"{linux}.ssh.publicKeys[0]"
    ):
        yield Problem(
            f"{linux}.ssh.publicKeys",
            "is missing: without a password a machine needs a public key",
        )


def _priority(inputs: Inputs) -> Iterator[Problem]:
    priority = inputs.optional_string(f"{_PROFILE}.priority")
    spot_only = ("evictionPolicy", "billingProfile")
    for name in spot_only:
        if (
            priority in (None, "Regular")
            and inputs.is_given(f"{_PROFILE}.{name}")
            and not (priority is None and inputs.is_given(f"{_PROFILE}.priority"))
        ):
            yield Problem(f"{_PROFILE}.{name}", "goes with the priority Spot only")
    if priority in _SPOT and inputs.is_given(f"{_PROFILE}.capacityReservation"):
        yield Problem(f"{_PROFILE}.capacityReservation", "doesn't go with the priority Spot")


def _disks(inputs: Inputs, size: str | None) -> Iterator[Problem]:
    os_disk = f"{_PROFILE}.storageProfile.osDisk"
    disks = [os_disk, *(path for path, _ in inputs.items(f"{_PROFILE}.storageProfile.dataDisks"))]
    for path in disks:
        kind = inputs.optional_string(f"{path}.managedDisk.storageAccountType")
        if kind and kind.startswith("Premium") and size and not regions.has_premium_storage(size):
            yield Problem(
                f"{path}.managedDisk.storageAccountType",
                f"{kind} needs a size with premium storage (an s in its name); given is {size}",
            )
        yield from checks.resource_id(
            f"{path}.managedDisk.diskEncryptionSet.id",
            inputs.optional_string(f"{path}.managedDisk.diskEncryptionSet.id"),
            _DISK_SET,
        )
    yield from between(f"{os_disk}.diskSizeGB", 1, 4095, "GiB")(inputs)
    if inputs.is_given(f"{os_disk}.diffDiskSettings") and inputs.optional_string(
        f"{os_disk}.caching"
    ) not in (
        "ReadOnly",
        None,
    ):
        yield Problem(f"{os_disk}.caching", "an ephemeral disk needs ReadOnly")
    if (
        inputs.is_given(f"{_PROFILE}.storageProfile")
        and inputs.is_absent(f"{_PROFILE}.storageProfile.imageReference")
        and inputs.optional_string("orchestrationMode") != "Flexible"
    ):
        yield Problem(f"{_PROFILE}.storageProfile.imageReference", "is missing: name an image")


def _upgrade(inputs: Inputs) -> Iterator[Problem]:
    mode = inputs.optional_string("upgradePolicy.mode")
    is_flexible = inputs.optional_string("orchestrationMode") == "Flexible"
    if not is_flexible and inputs.is_absent("upgradePolicy.mode") and inputs.is_given(_PROFILE):
        yield Problem(
            "upgradePolicy.mode", "is missing: a uniform set needs Automatic, Manual or Rolling"
        )
    lacks_health = inputs.is_absent(f"{_PROFILE}.networkProfile.healthProbe") and inputs.is_absent(
        f"{_PROFILE}.extensionProfile"
    )
    if mode == "Rolling" and lacks_health:
        yield Problem(
            "upgradePolicy.mode",
            "Rolling needs to know the machines' health: give a "
            f"{_PROFILE}.networkProfile.healthProbe or the health extension",
        )
    if inputs.flag("automaticRepairsPolicy.enabled") and lacks_health:
        yield Problem(
            "automaticRepairsPolicy",
            "needs to know the machines' health: give a "
            f"{_PROFILE}.networkProfile.healthProbe or the health extension",
        )
    grace = inputs.optional_string("automaticRepairsPolicy.gracePeriod")
    minutes = checks.minutes(grace) if grace else None
    if grace and (minutes is None or not 10 <= minutes <= 90):
        yield Problem(
            "automaticRepairsPolicy.gracePeriod",
            f"{grace!r} isn't allowed; allowed are PT10M to PT90M",
        )


def _pool_of_balancer(resource: Resource, path: str) -> Iterator[Problem]:
    """The pool that machines join is one of its balancer's ("InvalidResourceReference")."""
    id = resource.optional_string(path) or ""
    balancer, _, name = id.rpartition("/backendAddressPools/")
    made = resources.by_id(resource.world, balancer) if balancer else None
    if made is None or "backendAddressPools" not in made.inputs:
        return
    own = Inputs(made.inputs)
    names = {own.optional_string(f"{where}.name") for where, _ in own.items("backendAddressPools")}
    if name not in names and resources.by_id(resource.world, id) is None:
        listed = ", ".join(sorted(each for each in names if each)) or "none"
        yield Problem(path, f"the balancer has no pool {name!r}; it has {listed}")


def _scale_set_conflicts(resource: Resource) -> Iterator[Problem]:
    where = location(resource)
    base = f"{_PROFILE}.networkProfile.networkInterfaceConfigurations"
    for interface, _ in resource.items(base):
        for path, _ in resource.items(f"{interface}.ipConfigurations"):
            yield from subnets.fits(resource, f"{path}.subnet.id", where=where)
            for pool in (
                "loadBalancerBackendAddressPools",
                "applicationGatewayBackendAddressPools",
            ):
                for item, _ in resource.items(f"{path}.{pool}"):
                    yield from _pool_of_balancer(resource, f"{item}.id")
    yield from relations.same_region(
        resource, f"{_PROFILE}.storageProfile.osDisk.managedDisk.diskEncryptionSet.id", where
    )
    group = resource.optional_string(f"{_PROFILE}.capacityReservation.capacityReservationGroup.id")
    if group:
        yield from reserved(
            resource,
            f"{_PROFILE}.capacityReservation.capacityReservationGroup.id",
            group,
            resource.optional_string("sku.name"),
        )


def _scale_set_outputs(resource: Resource) -> dict[str, Any]:
    sku = {**resource.mapping("sku"), "tier": resource.optional_string("sku.tier") or "Standard"}
    return {
        "uniqueId": naming.guid("guid", resource.id),
        "timeCreated": MADE_AT,
        "sku": sku,
    }


KINDS: Final = (
    AzureKind(
        "azure-native:compute:CapacityReservationGroup",
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}",
        name=kinds.COMPUTE,
        is_held_by_children=True,
        is_held_by_references=True,
        replaces=("zones",),
        computed=_group_outputs,
    ),
    AzureKind(
        RESERVATION,
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}/"
        "capacityReservations/{capacityReservationName}",
        name=kinds.COMPUTE,
        replaces=("zones", "sku.name"),
        rules=(
            required("sku.name", "name a size"),
            required("sku.capacity", "say how many machines"),
            between("sku.capacity", 0, 1000),
            refused(
                "zones", "a reservation is in one zone; make one for each",
                longer_than("zones", 1),
            ),
            _reservation_problems,
        ),
        crosschecks=(_reservation_conflicts,),
        computed=_reservation_outputs,
    ),
    AzureKind(
        "azure-native:compute:ProximityPlacementGroup",
        "Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
        name=kinds.COMPUTE,
        is_held_by_references=True,
        replaces=("zones", "proximityPlacementGroupType"),
    ),
    AzureKind(
        ENCRYPTION_SET,
        "Microsoft.Compute/diskEncryptionSets/{diskEncryptionSetName}",
        name=kinds.DISK,
        is_held_by_references=True,
        replaces=("encryptionType",),
        rules=(
            required("activeKey.keyUrl", "name the key that encrypts the disks"),
            required("identity.type", "the set reads its key by a managed identity"),
            texts("federatedClientId", checks.guid),
            _set_problems,
        ),
        references=(relations.to("activeKey.sourceVault.id", "Microsoft.KeyVault/vaults"),),
        crosschecks=(_set_conflicts,),
        computed=_set_outputs,
    ),
    AzureKind(
        SCALE_SET,
        "Microsoft.Compute/virtualMachineScaleSets/{vmScaleSetName}",
        name=kinds.MACHINE,
        replaces=(
            "orchestrationMode", "zones", "proximityPlacementGroup", "platformFaultDomainCount",
            "extendedLocation", f"{_PROFILE}.priority", f"{_PROFILE}.osProfile.computerNamePrefix",
            f"{_PROFILE}.osProfile.adminUsername",
        ),
        rules=(
            required("sku.name", "name a size, such as Standard_D8s_v6"),
            between("sku.capacity", 0, 1000),
            when(is_on("singlePlacementGroup"), between("sku.capacity", 0, 100)),
            refused(
                f"{_PROFILE}.evictionPolicy",
                "is missing: spot machines are stopped "
                "(Deallocate) or deleted (Delete) when taken away",
                all_of(
                    equals(f"{_PROFILE}.priority", "Spot"), absent(f"{_PROFILE}.evictionPolicy"),
                ),
            ),
            _priority,
            between("upgradePolicy.rollingUpgradePolicy.maxBatchInstancePercent", 5, 100, "%"),
            between("upgradePolicy.rollingUpgradePolicy.maxUnhealthyInstancePercent", 5, 100, "%"),
            between(
                "upgradePolicy.rollingUpgradePolicy.maxUnhealthyUpgradedInstancePercent", 0, 100,
                "%",
            ),
            formed(
                "upgradePolicy.rollingUpgradePolicy.pauseTimeBetweenBatches", _TIME,
                "isn't a duration such as PT30S",
            ),
            _upgrade,
            formed(
                f"{_PROFILE}.osProfile.computerNamePrefix", r"[A-Za-z0-9-]+",
                "isn't allowed; allowed are letters, digits and hyphens",
            ),
            sized(f"{_PROFILE}.osProfile.computerNamePrefix", 0, 58, "characters"),
            when(
                given(f"{_PROFILE}.osProfile.windowsConfiguration"),
                sized(f"{_PROFILE}.osProfile.computerNamePrefix", 0, 9, "characters"),
            ),
            _scale_set_problems,
        ),
        crosschecks=(_scale_set_conflicts,),
        computed=_scale_set_outputs,
    ),
)  # fmt: skip
