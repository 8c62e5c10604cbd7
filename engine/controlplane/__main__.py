"""`python -m falaj.engine.controlplane ensure | up | down | status | kubeconfig`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from falaj.engine.controlplane import addons, binaries
from falaj.engine.controlplane.commands import Files
from falaj.engine.controlplane.plane import start, stop
from falaj.engine.controlplane.pools import Site
from falaj.engine.controlplane.record import Record
from falaj.engine.errors import EngineError
from falaj.engine.folders import data_home

CONTROLLERS = ("kueue", "jobset")
"""What `make test` needs beside Kubernetes itself."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 1 nothing runs (`status`, `kubeconfig`), 2 it can't be done."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    try:
        return given.act(given)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing half-finished is left behind", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m falaj.engine.controlplane", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ensure = commands.add_parser("ensure", help="build what isn't there yet")
    ensure.add_argument("--crds", action="store_true", help="definitions of add-ons as well")
    ensure.set_defaults(act=_ensure)
    up = commands.add_parser("up", help="start a control plane that goes on until `down`")
    up.add_argument("--nodes", default="", help="such as h200=64,h200:mig-1g.18gb=4,cpu=20")
    up.add_argument(
        "--bare",
        action="store_true",
        help="without controllers, and webhooks aren't called: for stacks that install the charts "
        "of a platform, whose pods are simulated here; with the definitions of charts that can't "
        "be had",
    )
    up.add_argument("--distribution", choices=("eks", "aks", "existing"), default="existing")
    up.add_argument(
        "--region", default="abudhabi-dc1", help="the nodes' region or site (default: %(default)s)"
    )
    up.add_argument(
        "--zones", type=_names, default=None, help="the nodes' zones (default: the region's own)"
    )
    up.add_argument("--crds", type=_names, default=(), help="such as cert-manager,keda")
    up.set_defaults(act=_up)
    for command in (ensure, up):
        command.add_argument(
            "--controllers", type=_names, default=CONTROLLERS, help="default: kueue,jobset"
        )
    for name, act, text in (
        ("down", _down, "end it and remove its files"),
        ("status", _status, "say what runs"),
        ("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig"),
    ):
        commands.add_parser(name, help=text).set_defaults(act=act)
    for name, command in commands.choices.items():
        if name != "ensure":
            command.add_argument("--folder", type=Path, default=data_home() / "cluster")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _ensure(given: argparse.Namespace) -> int:
    more = (addons.DEFINITIONS,) if given.crds else ()
    names = (binaries.CORE, *given.controllers, *more)
    for name, folder in binaries.ensure(names).items():
        print(f"{name} {binaries.built()[name].version}: {folder}")
    return 0


def _up(given: argparse.Namespace) -> int:
    plane = start(
        given.folder,
        given.nodes,
        () if given.bare else given.controllers,
        crds=given.crds or (addons.BARE_DEFINITIONS if given.bare else ()),
        site=Site(given.region, given.zones or (f"{given.region}-1",), given.distribution),
        webhooks=not given.bare,
        detached=True,
    )
    print(f"ready: export KUBECONFIG={plane.kubeconfig}")
    return 0


def _down(given: argparse.Namespace) -> int:
    ended = stop(given.folder)
    print("ended, and its files removed" if ended else "no control plane ran")
    return 0


def _status(given: argparse.Namespace) -> int:
    record = Record.read(Files(given.folder.absolute()))
    if record is None or not record.is_running:
        print(f"no control plane runs in {given.folder}; `make cluster` starts one")
        return 1
    print(
        json.dumps({"kubeconfig": str(Files(given.folder).kubeconfig), **vars(record)}, indent=1)
    )
    return 0


def _kubeconfig(given: argparse.Namespace) -> int:
    record = Record.read(Files(given.folder.absolute()))
    if record is None or not record.is_running:
        print(
            f"no control plane runs in {given.folder}; `make cluster` starts one", file=sys.stderr
        )
        return 1
    print(Files(given.folder.absolute()).kubeconfig)
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM takes the same way out as Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
