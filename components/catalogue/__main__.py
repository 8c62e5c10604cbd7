"""Shows what the clouds sell inside the country, with sources and dates; asks no cloud."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal

from falaj.components.catalogue import cost, queries
from falaj.components.catalogue.errors import CatalogueError
from falaj.components.catalogue.gpus import GPUS, find
from falaj.components.catalogue.place import PLACES, Place, parse
from falaj.components.catalogue.placement import choose
from falaj.components.catalogue.reports import gpus as gpu_reports
from falaj.components.catalogue.reports import machines as machine_reports
from falaj.components.catalogue.reports import places as place_reports
from falaj.components.catalogue.reports.report import Report
from falaj.components.catalogue.sources import sources_of
from falaj.components.catalogue.tables import render, terminal_width

_Command = Callable[[argparse.Namespace], Report]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 shown, 1 the reader left, 2 refused."""
    options = _parser().parse_args(arguments)
    try:
        report: Report = options.run(options)
        print(_as_json(report) if options.json else _as_text(report, terminal_width()), flush=True)
    except CatalogueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output left (`… | head`): nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m falaj.components.catalogue", description=__doc__
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, help_text: str, run: _Command, *, places: bool) -> _Parser:
        added = commands.add_parser(name, help=help_text, description=help_text)
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="JSON with all values")
        if places:
            added.add_argument(
                "--place",
                action="append",
                default=[],
                metavar="PLACE",
                help=f"may be given more than once; default: {', '.join(PLACES)}",
            )
        return added

    command("places", "places with their zones and state", _places, places=True)
    command("status", "what is reported about each region, and when", _status, places=True)
    gpus = command("gpus", "machines with GPUs", _gpus, places=True)
    queries.add_demand(gpus, gpus=True, cpus=False)
    cpus = command("cpus", "machines without GPUs", _cpus, places=True)
    queries.add_demand(cpus, gpus=False, cpus=True)
    services = command("services", "services that a region has or lacks", _services, places=True)
    services.add_argument("name", nargs="?", help="one service (default: all)")
    command("refused", "families and sizes that aren't sold, and why", _refused, places=True)
    costs = command("cost", "what a pool of machines costs", _cost, places=True)
    costs.add_argument("machine", help="instance type or VM size")
    costs.add_argument("--nodes", type=int, default=1, help="at the most (default: 1)")
    costs.add_argument("--min-nodes", type=int, help="at the least (default: as --nodes)")
    costs.add_argument("--capacity", choices=cost.CAPACITIES, default="on-demand")
    facts = command("gpu-facts", "memory, speed, links and power", _facts, places=False)
    facts.add_argument("gpu", nargs="?", help="model (default: all)")
    mig = command("mig", "MIG profiles and how many fit on one GPU", _mig, places=False)
    mig.add_argument("gpu", nargs="?", help="model (default: all)")
    chosen = command(
        "choose", "the first place that is healthy and sells it", _choose, places=False
    )
    chosen.add_argument("places", nargs="+", metavar="PLACE", help="in order of preference")
    queries.add_demand(chosen, gpus=True, cpus=True)
    chosen.add_argument(
        "--acknowledge",
        action="append",
        default=[],
        type=queries.acknowledgement,
        metavar="PLACE=DATE",
        help="accept a degraded place by the date of its report",
    )
    chosen.add_argument(
        "--confirm",
        action="append",
        default=[],
        metavar="kubernetes/CONTEXT",
        help="a cluster that stands in the country and has what is asked",
    )
    command(
        "operators", "other operators in the country, for information", _operators, places=False
    )
    command("sources", "where the facts come from", _sources, places=False)
    return parser


_Parser = argparse.ArgumentParser


def _chosen(options: argparse.Namespace) -> list[Place]:
    return [parse(name) for name in options.place or PLACES]


def _places(options: argparse.Namespace) -> Report:
    return place_reports.places(_chosen(options))


def _status(options: argparse.Namespace) -> Report:
    return place_reports.status(_chosen(options))


def _gpus(options: argparse.Namespace) -> Report:
    chosen = _chosen(options)
    found = queries.machines(chosen, queries.demand(options, listing=True), "gpu")
    return machine_reports.gpu_machines(queries.places_of(chosen, found), found)


def _cpus(options: argparse.Namespace) -> Report:
    chosen = _chosen(options)
    found = queries.machines(chosen, queries.demand(options, listing=True), "cpu")
    return machine_reports.cpu_machines(queries.places_of(chosen, found), found)


def _services(options: argparse.Namespace) -> Report:
    return place_reports.services(_chosen(options), options.name)


def _refused(options: argparse.Namespace) -> Report:
    return place_reports.refused(_chosen(options))


def _cost(options: argparse.Namespace) -> Report:
    found = queries.named(_chosen(options), options.machine)
    least = options.nodes if options.min_nodes is None else options.min_nodes
    return machine_reports.costs(found, least, options.nodes, options.capacity)


def _facts(options: argparse.Namespace) -> Report:
    return gpu_reports.gpu_facts(find(options.gpu) if options.gpu else tuple(GPUS.values()))


def _mig(options: argparse.Namespace) -> Report:
    return gpu_reports.mig(find(options.gpu) if options.gpu else tuple(GPUS.values()))


def _choose(options: argparse.Namespace) -> Report:
    asked = queries.demand(options, listing=False)
    made = choose(
        options.places, [asked], dict(options.acknowledge), confirmed_clusters=options.confirm
    )
    return machine_reports.choice(made, [asked])


def _operators(_: argparse.Namespace) -> Report:
    return place_reports.sovereign()


def _sources(_: argparse.Namespace) -> Report:
    return place_reports.sources()


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


if __name__ == "__main__":
    sys.exit(main())
