"""Turns what was typed on the command line into demands and machines."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from falaj.components.catalogue.demand import FABRICS, INT8, Demand
from falaj.components.catalogue.errors import CatalogueError, NotSoldError, PlaceError
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.place import Place


def fraction(text: str) -> Fraction:
    """A count such as ``8``, ``1/3`` or ``0.5``."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is no count; allowed: 8, 1/3, 0.5 …") from None


def acknowledgement(text: str) -> tuple[str, str]:
    """A place and a date: ``aws/me-central-1=2026-04-30``."""
    place, separator, day = text.partition("=")
    if not (place and separator and day):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no acknowledgement; allowed: aws/me-central-1=2026-04-30"
        )
    return place, day


def add_demand(parser: argparse.ArgumentParser, *, gpus: bool, cpus: bool) -> None:
    """The options that make a `Demand`."""
    if gpus:
        parser.add_argument("--gpu", help="model: H200, H100-NVL, A100, L40S … (default: any)")
        parser.add_argument(
            "--count", type=fraction, help="GPUs of each machine: 8, 1/3 … (default: any)"
        )
        parser.add_argument("--fabric", choices=FABRICS, help="default: none is asked for")
    if cpus:
        parser.add_argument("--int8", choices=INT8, help="guaranteed instructions (default: any)")
        parser.add_argument(
            "--confidential",
            action="store_true",
            help="memory encrypted against the operator (default: ordinary machines)",
        )
    parser.add_argument("--vcpu", type=int, help="at least (default: any)")
    parser.add_argument("--memory", type=float, metavar="GIB", help="at least (default: any)")
    parser.add_argument("--arch", choices=["x86_64", "arm64"], help="default: any")
    parser.add_argument(
        "--zone", action="append", help="id of a zone; may be given more than once (default: any)"
    )


def demand(options: argparse.Namespace, *, listing: bool) -> Demand:
    """The demand that the options make; a listing shows machines that carry a caution too."""
    return Demand(
        gpu=getattr(options, "gpu", None),
        count=getattr(options, "count", None),
        fabric=getattr(options, "fabric", None),
        vcpu=options.vcpu,
        memory_gib=options.memory,
        arch=options.arch,
        int8=getattr(options, "int8", None),
        zones=options.zone,
        confidential=getattr(options, "confidential", False),
        discouraged=listing,
    )


def machines(places: Sequence[Place], asked: Demand, kind: str) -> list[MachineType]:
    """Machines of a kind that satisfy a demand, of each place in turn.

    Raises:
        NotSoldError: no place sells one; with the reason for each.
        PlaceError: a zone that none of the places has.
    """
    found: list[MachineType] = []
    refusals: list[CatalogueError] = []
    for place in places:
        try:
            found += _gpu(place, asked) if kind == "gpu" else _cpu(place, asked)
        except (NotSoldError, PlaceError) as error:
            refusals.append(error)
    if found or not refusals:
        return found
    raise type(refusals[0])("\n".join(str(error) for error in refusals))


def named(places: Sequence[Place], name: str) -> list[MachineType]:
    """The machine type of that name in each place that sells it.

    Raises:
        NotSoldError: no place does; with the reason for each.
    """
    found: list[MachineType] = []
    refusals: list[str] = []
    for place in places:
        try:
            found.append(place.machine(name))
        except NotSoldError as error:
            refusals.append(str(error))
    if found:
        return found
    raise NotSoldError("\n".join(refusals))


def places_of(places: Sequence[Place], found: Sequence[MachineType]) -> list[Place]:
    """Those of the places that sell one of the machines."""
    regions = {(m.cloud, m.region) for m in found}
    return [place for place in places if (place.cloud, place.region) in regions]


def _cpu(place: Place, asked: Demand) -> tuple[MachineType, ...]:
    place.first(asked)
    return place.satisfying(asked)


def _gpu(place: Place, asked: Demand) -> list[MachineType]:
    if asked.wants_gpu:
        return list(_cpu(place, asked))
    sold = dict.fromkeys(m.gpu.name for m in place.machines("gpu") if m.gpu)
    fitting = {
        m.name for gpu in sold for m in place.satisfying(dataclasses.replace(asked, gpu=gpu))
    }
    return [m for m in place.machines("gpu") if m.name in fitting]
