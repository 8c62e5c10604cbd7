"""Command line of who starts runs: ``python -m falaj.workloads.pipelines start``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from falaj.workloads.api_requests import ApiServer, add_options
from falaj.workloads.api_server import ApiError
from falaj.workloads.errors import LOST, REFUSED, WorkloadError
from falaj.workloads.pipelines.starting import REASONS, Starter


def main(arguments: list[str]) -> int:
    """Run the command line; return 0 or one of `falaj.workloads.errors`."""
    options = build_parser().parse_args(arguments)
    try:
        api = ApiServer.of(options, "falaj-pipelines")
        if options.if_asked and options.requests is None:
            raise WorkloadError("--if-asked: given without --requests, where it would be asked")
        starter = Starter(
            api,
            options.pipeline,
            options.namespace,
            options.data,
            _say,
            requests=options.requests,
        )
        outcome = starter.start(options.reason, if_asked=options.if_asked)
        print(outcome.document(), flush=True)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except ApiError as error:
        print(f"error: {error}", file=sys.stderr)
        # The template is away for a moment while an update replaces it.
        return LOST if error.may_pass or error.is_missing else REFUSED
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.pipelines",
        description="Start a run of a pipeline in the cluster that this is a pod of.",
        epilog="Exit status: 0 a run was started, or none was due, as the printed line says; 2 "
        "refused; 74 the API server was lost.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="start")
    start = commands.add_parser("start", help="start the next run, unless one is on")
    add = start.add_argument
    add("--pipeline", required=True, help="its name, which is its template's")
    add("--namespace", required=True, help="where it is")
    add("--reason", required=True, choices=REASONS, help="why a run is started")
    add("--data", type=Path, help="folder of datasets (default: the program has its own data)")
    add("--requests", metavar="NAME", help="ConfigMap in which who watches drift asks for a run")
    add("--if-asked", action="store_true", help="start none that wasn't asked for there")
    add_options(start)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
