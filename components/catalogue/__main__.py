"""Shows what the clouds sell inside the country, with sources and dates; asks no cloud."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import click

from falaj.components.catalogue import cost as costs
from falaj.components.catalogue import queries, reports
from falaj.components.catalogue.gpus import GPUS, find
from falaj.components.catalogue.place import PLACES, Place, parse
from falaj.components.catalogue.placement import choose as choose_place
from falaj.components.catalogue.reports import Report, render, terminal_width
from falaj.components.catalogue.sources import CatalogueError, sources_of

_Command = TypeVar("_Command", bound=Callable[..., Any])

_json = click.option("--json", "as_json", is_flag=True, help="JSON with all values.")
_places = click.option(
    "--place",
    "names",
    metavar="PLACE",
    multiple=True,
    help=f"May be given more than once (default: {', '.join(PLACES)}).",
)


def _show(report: Report, as_json: bool) -> None:
    click.echo(_as_json(report) if as_json else _as_text(report, terminal_width()))


def _chosen(names: Sequence[str]) -> list[Place]:
    return [parse(name) for name in names or PLACES]


@click.group()
def catalogue() -> None:
    """What the clouds sell inside the country, with sources and dates; asks no cloud."""


@catalogue.command()
@_places
@_json
def places(names: tuple[str, ...], as_json: bool) -> None:
    """Places with their zones and state."""
    _show(reports.places(_chosen(names)), as_json)


@catalogue.command()
@_places
@_json
def status(names: tuple[str, ...], as_json: bool) -> None:
    """What is reported about each region, and when."""
    _show(reports.status(_chosen(names)), as_json)


@catalogue.command()
@_places
@_json
@queries.demand_options(gpus=True, cpus=False)
def gpus(names: tuple[str, ...], as_json: bool, **asked: Any) -> None:
    """Machines with GPUs."""
    chosen = _chosen(names)
    found = queries.machines(chosen, queries.demand(asked, listing=True), "gpu")
    _show(reports.gpu_machines(queries.places_of(chosen, found), found), as_json)


@catalogue.command()
@_places
@_json
@queries.demand_options(gpus=False, cpus=True)
def cpus(names: tuple[str, ...], as_json: bool, **asked: Any) -> None:
    """Machines without GPUs."""
    chosen = _chosen(names)
    found = queries.machines(chosen, queries.demand(asked, listing=True), "cpu")
    _show(reports.cpu_machines(queries.places_of(chosen, found), found), as_json)


@catalogue.command()
@click.argument("name", required=False)
@_places
@_json
def services(name: str | None, names: tuple[str, ...], as_json: bool) -> None:
    """Services that a region has or lacks: one by NAME, or all."""
    _show(reports.services(_chosen(names), name), as_json)


@catalogue.command()
@_places
@_json
def refused(names: tuple[str, ...], as_json: bool) -> None:
    """Families and sizes that aren't sold, and why."""
    _show(reports.refused(_chosen(names)), as_json)


@catalogue.command()
@click.argument("machine")
@click.option("--nodes", type=int, default=1, show_default=True, help="At the most.")
@click.option("--min-nodes", type=int, help="At the least (default: as --nodes).")
@click.option(
    "--capacity",
    type=click.Choice(list(costs.CAPACITIES)),
    default="on-demand",
    show_default=True,
)
@_places
@_json
def cost(
    *,
    machine: str,
    nodes: int,
    min_nodes: int | None,
    capacity: str,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """What a pool of MACHINEs (an instance type or VM size) costs."""
    found = queries.named(_chosen(names), machine)
    least = nodes if min_nodes is None else min_nodes
    _show(reports.costs(found, least, nodes, capacity), as_json)


@catalogue.command("gpu-facts")
@click.argument("gpu", required=False)
@_json
def gpu_facts(gpu: str | None, as_json: bool) -> None:
    """Memory, speed, links and power of a GPU model, or of all."""
    _show(reports.gpu_facts(find(gpu) if gpu else tuple(GPUS.values())), as_json)


@catalogue.command()
@click.argument("gpu", required=False)
@_json
def mig(gpu: str | None, as_json: bool) -> None:
    """MIG profiles of a GPU model, or of all, and how many fit on one GPU."""
    _show(reports.mig(find(gpu) if gpu else tuple(GPUS.values())), as_json)


@catalogue.command()
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@queries.demand_options(gpus=True, cpus=True)
@click.option(
    "--acknowledge",
    metavar="PLACE=DATE",
    multiple=True,
    type=queries.ACKNOWLEDGEMENT,
    help="Accept a degraded place by the date of its report.",
)
@click.option(
    "--confirm",
    metavar="kubernetes/CONTEXT",
    multiple=True,
    help="A cluster that stands in the country and has what is asked.",
)
@_json
def choose(
    places: tuple[str, ...],
    acknowledge: tuple[tuple[str, Any], ...],
    confirm: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """The first of the PLACEs that is healthy and sells what is asked."""
    demand = queries.demand(asked, listing=False)
    made = choose_place(
        list(places), [demand], dict(acknowledge), confirmed_clusters=list(confirm)
    )
    _show(reports.choice(made, [demand]), as_json)


@catalogue.command()
@_json
def operators(as_json: bool) -> None:
    """Other operators in the country, for information."""
    _show(reports.sovereign(), as_json)


@catalogue.command()
@_json
def sources(as_json: bool) -> None:
    """Where the facts come from."""
    _show(reports.all_sources(), as_json)


def _as_text(report: Report, width: int | None) -> str:
    """The table, then notes, sources and date, wrapped to the width."""
    lines = [report.title, "", render(report.columns, report.rows, width), ""]
    foot = list(report.notes)
    if report.source_ids:
        listed = ", ".join(f"{s.id} ({s.date})" for s in sources_of(report.source_ids))
        foot.append(f"Sources: {listed}. The command `sources` tells what they are.")
    foot.append(f"As of: {report.as_of}. What no source says is unknown.")
    for line in foot:
        wrapped = textwrap.wrap(
            line,
            width or 10_000,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += wrapped or [""]
    return "\n".join(lines)


def _as_json(report: Report) -> str:
    value = {
        "title": report.title,
        "as_of": report.as_of,
        "rows": report.rows,
        "notes": report.notes,
        "sources": [
            {"id": s.id, "what": s.what, "reference": s.reference, "date": s.date}
            for s in sources_of(report.source_ids)
        ],
    }
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: object) -> float:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 shown, 2 refused."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        catalogue.main(given, prog_name="falaj catalogue", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CatalogueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
