"""The command line of rehearsals."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from falaj.workloads.api_requests import ApiServer, add_options
from falaj.workloads.api_server import ApiError
from falaj.workloads.errors import LOST, REFUSED, WorkloadError
from falaj.workloads.restoring.plan import read
from falaj.workloads.restoring.rehearsal import Rehearsal

FOUND: Final = 3
"""The rehearsal has findings: the same backup would have them again."""


def main(arguments: list[str]) -> int:
    """Run the command line; return 0, `FOUND`, or one of `falaj.workloads.errors`."""
    options = build_parser().parse_args(arguments)
    stop = threading.Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request)
    try:
        plan = read(options.plan)
        api = ApiServer.of(options, "falaj-restoring")
        rehearsal = Rehearsal(api, plan, stop.is_set)
        report = rehearsal.run()
        print(report.document(), flush=True)
        for each in report.findings:
            print(f"finding: {each}", file=sys.stderr)
        rehearsal.keep(report)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except ApiError as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST if error.may_pass else REFUSED
    return FOUND if report.findings else 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.restoring",
        description="Restore the newest backup beside its origin, look at it, throw it away.",
        epilog="Exit status: 0 all came back; 2 refused; 3 findings, one a line; 74 the API "
        "server was lost.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="rehearse")
    rehearse = commands.add_parser("rehearse", help="restore, look, clean up")
    add = rehearse.add_argument
    add("--plan", type=Path, required=True, help="JSON file that the platform writes")
    add_options(rehearse)
    return parser
