"""Words for what isn't sold: what was asked, why not, and what is sold instead, closest first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from falaj.components.catalogue.demand import Demand, as_fraction
from falaj.components.catalogue.machines import MachineType
from falaj.components.nearest import nearest

_SHOWN = 5


def machine(
    place: str,
    sold: Iterable[MachineType],
    name: str,
    reason: str | None,
    elsewhere: list[str],
    *,
    uncertain: bool = False,
) -> str:
    """Why a machine type of that name is refused in a place, by all that is sold there.

    Args:
        uncertain: whether it may be sold there, for all that is known.
    """
    why = f": {reason}" if reason else ""
    names = [m.name for m in sold]
    near = nearest(name, names, most=3, alike=0.5)
    instead = f"; closest names sold there: {', '.join(near)}" if near else ""
    command = f"`falaj catalogue gpus --place {place}` (or cpus) lists all"
    sure = "may not be sold" if uncertain else "is not sold"
    return f"{name} {sure} in {place}{why}{_elsewhere(elsewhere)}{instead}; {command}"


def demand(
    place: str, machines: Iterable[MachineType], asked: Demand, elsewhere: list[str]
) -> str:
    """Why nothing in a place satisfies a demand, and what there is instead.

    Args:
        place: its name.
        machines: sold there, with GPUs or without as the demand has it.
        asked: the demand.
        elsewhere: other places that satisfy it.
    """
    machines = list(machines)
    almost = _almost(asked, machines)
    text = f"{place} does not sell {asked}"
    if almost:
        text += f"; nearest: {almost}"
    sold = [f"{m.gpu_text} ({m.name})" if m.gpu else m.name for m in _closest(asked, machines)]
    if asked.wants_gpu or not almost:
        text += f"; sold there, closest first: {', '.join(sold)}"
    return text + _elsewhere(elsewhere)


def _elsewhere(places: list[str]) -> str:
    return f"; sold in {' and '.join(places)}" if places else ""


def _almost(asked: Demand, machines: Iterable[MachineType]) -> str:
    """Machines of the GPU asked for that lack one thing only, nearest first."""
    near = [(m, asked.shortfalls(m)) for m in machines if not asked.gpus or m.gpu in asked.gpus]
    one = [(m, lacks[0]) for m, lacks in near if len(lacks) == 1]
    # The biggest come nearest: most demands that fail ask for more than there is.
    one.sort(key=lambda pair: (-(pair[0].vcpu or 0), -(pair[0].memory_gib or 0)))
    return "; ".join(f"{m.name}, but {lack}" for m, lack in one[:3])


def _closest(asked: Demand, machines: Iterable[MachineType]) -> list[MachineType]:
    """One machine of each GPU and count, or the first few without GPUs, closest first."""
    generations = {gpu.architecture for gpu in asked.gpus}
    vendors = {gpu.vendor for gpu in asked.gpus}

    def distance(m: MachineType) -> tuple[object, ...]:
        count = 0.0 if asked.count is None else abs(float(as_fraction(asked.count) - m.gpu_count))
        generation = m.gpu.architecture if m.gpu else None
        return (
            m.gpu not in asked.gpus,
            m.caution is not None,
            count,
            generation not in generations,
            bool(m.gpu and m.gpu.vendor not in vendors),
            len(asked.shortfalls(m)),
        )

    ordered = sorted(machines, key=distance)
    if not asked.wants_gpu:
        return ordered[:_SHOWN]
    seen: dict[str, MachineType] = {}
    for text, group in groupby(ordered, key=lambda m: m.gpu_text):
        seen.setdefault(text, next(group))
    return list(seen.values())[:_SHOWN]
