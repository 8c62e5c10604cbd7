"""Finds the machine that has what a component's arguments ask for, and the zones to use it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import with_defaults
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.placed import Placed, chosen_zones, region_zones
from falaj.wire.documents import is_mapping

INT8 = OneOf(("amx", "vnni", "i8mm", "any"))
ARCHITECTURES = OneOf(("x86_64", "arm64"))
#: Where a component that lets one choose gets neither ``arch`` nor an ``int8`` that implies it.
DEFAULT_ARCHITECTURE = "x86_64"
VCPU = Between(1, 448)
MEMORY_GIB = Between(1, 24_576)


def cpu_demand(
    given: Mapping[str, Any],
    args: Mapping[str, Any],
    errors: ArgumentErrors,
) -> dict[str, Any] | None:
    """What `catalogue.Demand` takes, from ``vcpu``, ``memory_gib``, ``int8`` and ``arch``.

    None where they can't go together, or one was refused. Where a machine is named it is held to
    what the user asks of it, not to the defaults.

    Args:
        given: the component's arguments.
        args: the same, checked.
        errors: collects what is wrong.
    """
    names = ("vcpu", "memory_gib", "int8", "arch")
    named = args["machine"] is not None
    found = {k: args[k] for k in names if (given if named else args).get(k) is not None}
    int8 = found.setdefault("int8", "any")
    if not named:
        # i8mm is Arm's: asking for it is asking for that architecture.
        usual = DEFAULT_ARCHITECTURE if "arch" in args else None
        found.setdefault("arch", "arm64" if int8 == "i8mm" else usual)
    wanted = found.setdefault("arch", None)
    for kind, needed in (("i8mm", "arm64"), ("amx", "x86_64"), ("vnni", "x86_64")):
        if int8 == kind and ARCHITECTURES.allows(wanted) and wanted != needed:
            errors.add("int8", kind, f"instructions of {wanted}", f"{kind} is {needed}'s")
            return None
    return None if errors.has(*names) else found


def machine_demand(kind: type, given: Mapping[str, Any]) -> catalogue.Demand:
    """The machine that a component asks for by what it has, its defaults included.

    Args:
        kind: of its arguments, those of a pool or of the inference tier.
        given: the arguments, of which none was refused.
    """
    args = with_defaults(kind, given)
    if "gpu" in args:
        asked = {key: args[key] for key in ("gpu", "count", "fabric")}
    else:
        # What can't go together is refused by the component, whose message says it best.
        asked = cpu_demand(given, args, ArgumentErrors(kind.__name__)) or {}
    return catalogue.Demand(**asked, zones=args["zones"])


def chosen_machine(
    placed: Placed,
    args: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    blame: str,
    **demand: Any,
) -> catalogue.MachineType | None:
    """The machine of the argument ``machine`` or the cheapest that satisfies ``demand``.

    Args:
        placed: where it has to be sold.
        args: the component's arguments.
        errors: gets what is wrong, with what is sold instead.
        blame: the argument that is named where nothing satisfies the demand.
        demand: as `catalogue.Demand` takes it.
    """
    zones = _named_zones(placed, args, errors)
    # A zone that is reported as impaired counts only where the user has named it.
    preferred = zones or (_sound_zones(placed) if placed.place.cloud == "aws" else ())
    named = args.get("machine")
    try:
        if named is None:
            return placed.place.resolve(**demand, zones=preferred or None)
        machine = placed.place.machine(str(named))
        shortfalls = catalogue.Demand(**demand, zones=zones or None).shortfalls(machine)
    except catalogue.CatalogueError as error:
        sold = placed.place.machines("gpu" if blame == "gpu" else "cpu")
        if named is not None:
            names = dict.fromkeys(each.name for each in sold)
            errors.say("machine", str(error), limit=OneOf(tuple(names)))
        else:
            models = dict.fromkeys(each.gpu.model for each in sold if each.gpu)
            errors.say(blame, str(error), limit=OneOf(tuple(models)) if models else None)
        return None
    if shortfalls:
        asked = catalogue.Demand(**demand, zones=zones or None)
        errors.say(
            "machine",
            f"given {machine.name!r}, but {'; '.join(shortfalls)}; asked for: {asked}; change "
            "what is asked, or leave out 'machine' for the cheapest that has it",
        )
        return None
    return machine


def machine_zones(
    placed: Placed,
    args: Mapping[str, Any],
    machine: catalogue.MachineType,
    errors: ArgumentErrors,
) -> tuple[str, ...]:
    """Zones in which the machine is used, in the region's order.

    Default: every zone that sells it (or, where no source says so, every zone of the region) and
    is not reported as impaired. Zones named by the user are taken even if impaired: who gets here
    has acknowledged the region's status.
    """
    known = region_zones(placed.place)
    sold = tuple(zone for zone in known if zone in machine.zone_ids) if machine.zone_ids else known
    if args.get("zones") is None:
        impaired = set(placed.place.status.impaired_zones)
        sound = tuple(zone for zone in sold if zone not in impaired)
        if not sound:
            errors.say(
                "zones",
                f"{machine} is sold only in zones that are reported as impaired: "
                f"{', '.join(sold)}; name them in 'zones' to accept that, or ask for another "
                "machine",
            )
        return sound
    named = chosen_zones(placed, args, errors)
    elsewhere = tuple(zone for zone in named if zone not in sold)
    if elsewhere:
        errors.say(
            "zones",
            f"{machine} is not sold in {', '.join(elsewhere)}; it is sold in {', '.join(sold)}",
        )
    return tuple(zone for zone in named if zone in sold)


def checked_subnets(
    args: Mapping[str, Any], argument: str, zones: Sequence[str], errors: ArgumentErrors
) -> None:
    """Refuse plain subnets that lack a zone the user has named.

    Those that are outputs of a network are looked at when they are known, see `subnets_of`.
    """
    subnets: object = args.get(argument)
    if not is_mapping(subnets) or args.get("zones") is None:
        return
    keys = [str(key) for key in subnets]
    lacking = [zone for zone in zones if zone not in keys]
    if lacking:
        errors.say(
            "zones",
            f"{', '.join(lacking)} has no subnet in {argument}, which has "
            f"{', '.join(keys) or 'none'}; add the zone to the network or leave it out here",
        )


def subnets_of(
    subnets: Mapping[str, str], zones: Sequence[str], *, where: str, all_needed: bool
) -> list[str]:
    """Subnets of the zones, in their order.

    Args:
        subnets: subnet ids by zone.
        zones: zones to use.
        where: argument and component, for the message.
        all_needed: whether each zone has to have one (it was named by the user), or only those
            that the network covers are used.

    Raises:
        ValueError: a zone, or each of them, has no subnet.
    """
    if not subnets:
        raise ValueError(
            f"{where} are none: a network whose purpose is 'serving' has subnets for inference "
            "only; set the network's 'purpose' to 'cluster', or use another network"
        )
    found = [subnets[zone] for zone in zones if zone in subnets]
    lacking = [zone for zone in zones if zone not in subnets]
    if not found or (lacking and all_needed):
        raise ValueError(
            f"{where} has no subnet in {', '.join(lacking)}; it has "
            f"{', '.join(sorted(subnets))}; add the zone to the network, or name others "
            "in 'zones'"
        )
    return found


def machine_notes(
    machine: catalogue.MachineType, placed: Placed, zones: Sequence[str]
) -> list[str]:
    """What to know about a machine before it is used; printed as warnings."""
    notes: list[str] = []
    if machine.caution:
        notes.append(f"{machine}: {machine.caution}")
    if not machine.zones_known:
        notes.append(f"no source says which zones of {placed.region} sell {machine}")
    impaired = [zone for zone in zones if zone in placed.place.status.impaired_zones]
    if impaired:
        notes.append(
            f"{', '.join(impaired)} is reported as impaired as of {placed.place.status.as_of}"
        )
    return notes


def _named_zones(
    placed: Placed, args: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[str, ...]:
    if args.get("zones") is None or placed.place.cloud != "aws":
        return ()
    return chosen_zones(placed, args, errors)


def _sound_zones(placed: Placed) -> tuple[str, ...]:
    impaired = set(placed.place.status.impaired_zones)
    return tuple(zone for zone in region_zones(placed.place) if zone not in impaired)
