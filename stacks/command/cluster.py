"""``falaj cluster ensure | up | down | status | kubeconfig``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import click

from falaj.engine.controlplane import addons, binaries, prerequisites, real_machines
from falaj.engine.controlplane.machines import Distribution, Site
from falaj.engine.controlplane.plane import start, stop
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.record import Record
from falaj.engine.errors import EngineError
from falaj.engine.files import data_home
from falaj.sandbox.charts import library

_Command = TypeVar("_Command", bound=Callable[..., Any])

CONTROLLERS: Final = ("kueue", "jobset")
"""What `make test` needs beside Kubernetes itself."""

_SIMULATED: Final = "cpu"
"""The pool of machines that stand for real ones which this computer can't run."""


class _Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if not isinstance(value, str):
            return tuple(value)
        return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))


def _folder(command: _Command) -> _Command:
    return click.option(
        "--folder",
        metavar="FOLDER",
        type=click.Path(path_type=Path, file_okay=False),
        default=lambda: data_home() / "cluster",
        help="Where its files are (default: Falaj's own folder).",
    )(command)


def _controllers(command: _Command) -> _Command:
    return click.option(
        "--controllers",
        metavar="NAME,…",
        type=_Names(),
        default=",".join(CONTROLLERS),
        show_default=True,
    )(command)


@click.group()
def cluster() -> None:
    """A real Kubernetes control plane on this machine, with simulated machines."""


@cluster.command()
@_controllers
@click.option("--crds", is_flag=True, help="What tests need beside them, too.")
def ensure(controllers: tuple[str, ...], crds: bool) -> None:
    """Build what isn't there yet, and install what real machines need where we may."""
    more = (addons.DEFINITIONS, *binaries.OF_TESTS) if crds else ()
    if crds:
        # Tests of real machines say at their end that they were left out.
        _install_missing("real machines", prerequisites.BUILDER)
    names = (binaries.CORE, *controllers, *more)
    for name, folder in binaries.ensure(names).items():
        click.echo(f"{name} {binaries.built()[name].version}: {folder}")


@cluster.command()
@_folder
@_controllers
@click.option("--nodes", metavar="POOL=COUNT,…", default="", help="Such as h200=64,cpu=20.")
@click.option(
    "--real",
    metavar="COUNT",
    type=click.IntRange(0, real_machines.MOST),
    default=0,
    help="Real machines beside the simulated ones, with kubelets and containers of their own "
    f"(at most {real_machines.MOST}; as root, on Linux). Where this computer can't run them, it "
    "says why, and they are simulated.",
)
@click.option(
    "--bare",
    is_flag=True,
    help="Without controllers, and webhooks aren't called: for stacks that install the charts of "
    "a platform, whose pods are simulated here; with the definitions of charts that can't be had.",
)
@click.option(
    "--distribution",
    type=click.Choice(get_args(Distribution)),
    default="existing",
    show_default=True,
)
@click.option(
    "--region", default="abudhabi-dc1", show_default=True, help="The nodes' region or site."
)
@click.option(
    "--zones", metavar="ZONE,…", type=_Names(), help="The nodes' zones (default: one of its own)."
)
@click.option(
    "--crds", metavar="NAME,…", type=_Names(), default="", help="Such as cert-manager,keda."
)
def up(
    *,
    folder: Path,
    controllers: tuple[str, ...],
    nodes: str,
    real: int,
    bare: bool,
    distribution: Distribution,
    region: str,
    zones: tuple[str, ...] | None,
    crds: tuple[str, ...],
) -> None:
    """Start a control plane that goes on until `falaj cluster down`.

    With --bare the charts that can be had from Go modules are put where stacks look for them.
    """
    if bare:
        found = library.add((), library.folder())
        click.echo(f"charts for stacks of the sandbox: {', '.join(each.name for each in found)}")
    if real and not _can_be_real():
        nodes = ",".join(filter(None, (nodes, f"{_SIMULATED}={real}")))
        real = 0
    plane = start(
        folder,
        nodes,
        () if bare else controllers,
        crds=crds or (addons.BARE_DEFINITIONS if bare else ()),
        site=Site(region, zones or (f"{region}-1",), distribution),
        webhooks=not bare,
        real=real,
        detached=True,
    )
    if real:
        click.echo(
            f"real machines: {', '.join(plane.real.names)}; they get images from "
            f"{plane.real.registry.address}, whose authority is {plane.files.authority}"
        )
    click.echo(f"ready: export KUBECONFIG={plane.kubeconfig}")


def _install_missing(concern: str, *more: str) -> None:
    """Install what real machines need; what keeps from it is said after ``concern``."""
    try:
        for each in prerequisites.install_missing(*more):
            click.echo(f"{each}: installed, for real machines")
    except EngineError as error:
        click.echo(f"{concern}: {error}", err=True)


def _can_be_real() -> bool:
    """Install what real machines need where we may, and say what this computer still lacks."""
    _install_missing("warning")
    lacking = prerequisites.lacking()
    for each in lacking:
        click.echo(f"warning: machines are simulated: this computer lacks {each}", err=True)
    return not lacking


@cluster.command()
@_folder
def down(folder: Path) -> None:
    """End it and remove its files."""
    ended = stop(folder)
    click.echo("ended, and its files removed" if ended else "no control plane ran")


@cluster.command()
@_folder
def status(folder: Path) -> int:
    """Say what runs; the exit status is 1 where nothing does."""
    record = _running(folder, err=False)
    if record is None:
        return 1
    fields = {"kubeconfig": str(Files(folder.absolute()).kubeconfig), **vars(record)}
    click.echo(json.dumps(fields, indent=1))
    return 0


@cluster.command()
@_folder
def kubeconfig(folder: Path) -> int:
    """Print the path of the administrator's kubeconfig."""
    if _running(folder, err=True) is None:
        return 1
    click.echo(str(Files(folder.absolute()).kubeconfig))
    return 0


def _running(folder: Path, *, err: bool) -> Record | None:
    record = Record.read(Files(folder.absolute()))
    if record is None or not record.is_running:
        click.echo(f"no control plane runs in {folder}; `falaj cluster up` starts one", err=err)
        return None
    return record
