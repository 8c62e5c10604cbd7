"""The command line of the launcher, and the launcher in one file."""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from falaj.workloads.bounds import GANG
from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.horovod.launch import Plan, run
from falaj.workloads.horovod.world import World

# For images that don't have this package.

#: Not resolved: in a clone `falaj/workloads` is a link, and its name is what is imported.
_ABOVE = Path(__file__).parents[3]
_SHARED = (
    "falaj/__init__.py",
    "falaj/workloads/__init__.py",
    "falaj/workloads/bounds.py",
    "falaj/workloads/errors.py",
)
_MAIN = """import sys
from falaj.workloads.horovod.command import main
sys.exit(main(sys.argv[1:]))
"""


def pack(target: Path) -> None:
    """Write the launcher to a file that ``python3 FILE run …`` runs.

    Python looks in that file alone for it, so a program's own modules and ``PYTHONPATH`` stay as
    they are.

    Raises:
        WorkloadError: the file can't be written.
    """
    sources = [_ABOVE / name for name in _SHARED] + sorted(Path(__file__).parent.glob("*.py"))
    try:
        with zipfile.ZipFile(target, "w") as archive:
            _add(archive, "__main__.py", _MAIN)
            for path in sources:
                name = path.relative_to(_ABOVE).as_posix()
                _add(archive, name, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadError(f"can't write {target}: {error.strerror or error}") from None


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    """One file, without the time of its copying: the same bytes each time."""
    about = zipfile.ZipInfo(name)
    about.external_attr = 0o644 << 16
    archive.writestr(about, text)


PORT = GANG["rendezvous_port"]
"""Of the rendezvous, where none is named; the same as torchrun's."""

_ENDPOINT = re.compile(r"^([A-Za-z0-9_.-]+)(?::(\d{1,5}))?$")


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return 0 or one of `falaj.workloads.errors`."""
    options = build_parser().parse_args(list(arguments))
    try:
        if options.command == "pack":
            pack(options.file)
            return 0
        return _run(options)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.horovod",
        description="Run a program that uses Horovod in processes of one or several machines. "
        "Each machine runs this command; Horovod needs its Gloo controller, and NCCL for GPUs.",
        epilog="Exit status: 0 done; 1, 2 or 71 the program's own; 74 other machines or processes "
        "were lost; 75 stopped on request, run again to go on.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|pack")
    _add_run(commands.add_parser("run", help="run a program, given after --"))
    packed = commands.add_parser("pack", help="write this launcher to one file")
    packed.add_argument("file", type=Path, help="which python3 runs, of version 3.8 or newer")
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=int, default=1, help="machines (default 1)")
    add("--processes", type=int, default=1, help="processes of each machine (default 1)")
    add("--index", type=int, default=0, help="of this machine, from 0 (default 0)")
    add(
        "--rendezvous",
        default=f"127.0.0.1:{PORT}",
        metavar="HOST:PORT",
        help="of the machine of index 0, which serves it (default 127.0.0.1)",
    )
    add("--address", default="127.0.0.1", help="IPv4 address of this machine (default 127.0.0.1)")
    add("--attempt", default="0", help="which start of the job this is (default 0)")
    add("--grace-seconds", type=int, default=30, help="from SIGTERM until the kill (default 30)")
    add(
        "--wait-seconds",
        type=int,
        default=900,
        help="that machines wait for each other: images may have to be pulled (default 900)",
    )
    add("program", nargs="+", help="the program and its arguments, after --")


def _run(options: argparse.Namespace) -> int:
    found = _ENDPOINT.match(options.rendezvous)
    port = int(found[2] or PORT) if found else 0
    if not found or not 1 <= port <= 65535:
        raise WorkloadError(
            f"--rendezvous is {options.rendezvous!r}: allowed is host:port, with a port from 1 to "
            "65535"
        )
    for name in ("grace_seconds", "wait_seconds"):
        if not 1 <= getattr(options, name) <= 86_400:
            raise WorkloadError(
                f"--{name.replace('_', '-')} is {getattr(options, name)}: allowed are 1 to 86400"
            )
    plan = Plan(
        World(options.nodes, options.processes, options.index),
        found[1],
        port,
        options.address,
        options.attempt,
        options.grace_seconds,
        options.wait_seconds,
    )
    return run(plan, options.program)
