"""Turns what was typed on the command line into demands and machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeVar

import click

from falaj.components.catalogue.demand import FABRICS, INT8, Demand
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.place import Place
from falaj.components.catalogue.sources import CatalogueError, NotSoldError, PlaceError

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Fraction(click.ParamType[Fraction]):
    """A count such as ``8``, ``1/3`` or ``0.5``."""

    name = "count"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is no count; allowed: 8, 1/3, 0.5 …", param, ctx)


class _Acknowledgement(click.ParamType[tuple[str, str]]):
    """A place and a date: ``aws/me-central-1=2026-04-30``."""

    name = "acknowledgement"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        place, separator, day = str(value).partition("=")
        if not (place and separator and day):
            self.fail(
                f"{value!r} is no acknowledgement; allowed: aws/me-central-1=2026-04-30",
                param,
                ctx,
            )
        return place, day


ACKNOWLEDGEMENT: Final = _Acknowledgement()


def demand_options(*, gpus: bool, cpus: bool) -> Callable[[_Command], _Command]:
    """The options that make a `Demand`: of machines with GPUs, without, or either."""
    chosen: list[Callable[[Any], Any]] = []
    if gpus:
        chosen += [
            click.option("--gpu", help="Model: H200, H100-NVL, A100, L40S … (default: any)."),
            click.option(
                "--count", type=_Fraction(), help="GPUs of each machine: 8, 1/3 … (default: any)."
            ),
            click.option("--fabric", type=click.Choice(FABRICS), help="Default: none."),
        ]
    if cpus:
        chosen += [
            click.option(
                "--int8", type=click.Choice(INT8), help="Guaranteed instructions (default: any)."
            ),
            click.option(
                "--confidential",
                is_flag=True,
                help="Memory encrypted against the operator (default: ordinary machines).",
            ),
        ]
    chosen += [
        click.option("--vcpu", type=int, help="At least (default: any)."),
        click.option("--memory", metavar="GIB", type=float, help="At least (default: any)."),
        click.option("--arch", type=click.Choice(["x86_64", "arm64"]), help="Default: any."),
        click.option(
            "--zone",
            multiple=True,
            help="Id of a zone; may be given more than once (default: any).",
        ),
    ]

    def add(command: _Command) -> _Command:
        for option in reversed(chosen):
            command = option(command)
        return command

    return add


def demand(asked: Mapping[str, Any], *, listing: bool) -> Demand:
    """The demand that the options make; a listing shows machines that carry a caution too.

    Args:
        asked: the options of `demand_options`, by their names.
        listing: whether machines are listed rather than chosen.
    """
    return Demand(
        gpu=asked.get("gpu"),
        count=asked.get("count"),
        fabric=asked.get("fabric"),
        vcpu=asked["vcpu"],
        memory_gib=asked["memory"],
        arch=asked["arch"],
        int8=asked.get("int8"),
        zones=asked["zone"] or None,
        confidential=bool(asked.get("confidential")),
        discouraged=listing,
    )


def machines(places: Sequence[Place], asked: Demand, kind: str) -> list[MachineType]:
    """Machines of a kind that satisfy a demand, of each place in turn.

    Raises:
        NotSoldError: no place sells one; with the reason for each.
        PlaceError: a zone that none of the places has.
    """
    found: list[MachineType] = []
    errors: list[CatalogueError] = []
    for place in places:
        try:
            found += _gpu(place, asked) if kind == "gpu" else _cpu(place, asked)
        except (NotSoldError, PlaceError) as error:
            errors.append(error)
    if found or not errors:
        return found
    raise type(errors[0])("\n".join(str(error) for error in errors))


def named(places: Sequence[Place], name: str) -> list[MachineType]:
    """The machine type of that name in each place that sells it.

    Raises:
        NotSoldError: no place does; with the reason for each.
    """
    found: list[MachineType] = []
    errors: list[str] = []
    for place in places:
        try:
            found.append(place.machine(name))
        except NotSoldError as error:
            errors.append(str(error))
    if found:
        return found
    raise NotSoldError("\n".join(errors))


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
