"""Whether a machine type is sold in a region, a zone, or the zones of some subnets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.regions import catalogued, region_of, zone_id, zones_selling
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Rule
from falaj.sandbox.clouds.model import Problem, World


def sold(path: str, *, zone: str = "") -> Rule:
    """The machine type is sold in the region; in the zone, too, where that input is given.

    Regions that the catalogue doesn't hold sell everything, as far as it is known here.
    """

    def rule(inputs: Inputs) -> Iterator[Problem]:
        region = region_of(inputs)
        for where, machine in inputs.each(path):
            zones = zones_selling(region, machine) if isinstance(machine, str) else None
            if zones is None:
                continue
            if not zones:
                if not zone:
                    yield Problem(where, f"{machine!r} isn't sold in {region}; {_sold(region)}")
                continue
            given = inputs.string(zone) if zone else ""
            wanted = zone_id(region, given) or given
            if given and wanted not in zones:
                yield Problem(
                    where, f"{machine!r} isn't sold in {given}; it is sold in {', '.join(zones)}"
                )

    return rule


def sold_in_subnets(
    path: str, machine: str, subnet_ids: Sequence[str], world: World
) -> Iterator[Problem]:
    """The machine type is sold in at least one of the subnets' zones.

    A group with some zones that don't sell its type runs in the others; with none it never starts.
    """
    subnets = [made for id in subnet_ids if (made := world.by_id(t.SUBNET, id)) is not None]
    zones = {str(made.outputs.get("availabilityZoneId")): made.region for made in subnets}
    selling: set[str] = set()
    for zone, region in zones.items():
        known = zones_selling(region, machine)
        if known is None or zone in known:
            return
        selling |= set(known)
    if zones and selling:
        yield Problem(
            path,
            f"{machine!r} isn't sold in the subnets' zones ({', '.join(sorted(zones))}); it is "
            f"sold in {', '.join(sorted(selling))}: use subnets there",
        )


def _sold(region: str) -> str:
    known = catalogued(region)
    names = sorted({machine.family for machine in known.machines()}) if known is not None else []
    return "sold are sizes of " + ", ".join(names)
