"""``falaj cluster ensure | up | load | bring | down | status | kubeconfig``."""

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
from falaj.engine.extras import extras_of
from falaj.engine.files import data_home
from falaj.engine.oci import ensure as ensure_tool
from falaj.sandbox.charts import library
from falaj.stacks.command import installation
from falaj.stacks.command.console import say
from falaj.stacks.command.options import named_stack, project_option, the_project
from falaj.stacks.command.project import StackFile

_Command = TypeVar("_Command", bound=Callable[..., Any])

_STACK: Final = "real-cluster"
"""The stack that ships for real machines: a template of that name."""

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


def _controllers(default: tuple[str, ...] | None, about: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--controllers", metavar="NAME,…", type=_Names(), default=default, help=about
    )


@click.group()
def cluster() -> None:
    """A real Kubernetes control plane on this machine, with simulated machines."""


@cluster.command()
@_controllers(binaries.CONTROLLERS, f"Default: {','.join(binaries.CONTROLLERS)}.")
@click.option("--crds", is_flag=True, help="What tests need beside them, too.")
def ensure(controllers: tuple[str, ...], crds: bool) -> None:
    """Build what isn't there yet, and install what real machines need where we may."""
    more = (addons.DEFINITIONS, *binaries.IN_PODS, *binaries.OF_TESTS) if crds else ()
    if crds:
        # Tests of real machines say at their end that they were left out.
        _install_missing("real machines", prerequisites.BUILDER)
    names = (binaries.CORE, *controllers, *more)
    for name, folder in binaries.ensure(names).items():
        click.echo(f"{name} {binaries.built()[name].version}: {folder}")
    if crds:
        _have_helm()


@cluster.command()
@_folder
@_controllers(
    None,
    f"What runs beside it (default: {','.join(binaries.CONTROLLERS)}; with --real none, as a "
    "platform's are pods there).",
)
@click.option("--nodes", metavar="POOL=COUNT,…", default="", help="Such as h200=64,cpu=20.")
@click.option(
    "--real",
    metavar="COUNT",
    type=click.IntRange(0, real_machines.MOST),
    default=0,
    help="Real machines beside the simulated ones, with kubelets and containers of their own "
    f"(at most {real_machines.MOST}; as root, on Linux). Where this computer can't run them, it "
    "says why, and they are simulated. With the definitions of charts that can't run there.",
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
    controllers: tuple[str, ...] | None,
    nodes: str,
    real: int,
    bare: bool,
    distribution: Distribution,
    region: str,
    zones: tuple[str, ...] | None,
    crds: tuple[str, ...],
) -> None:
    """Start a control plane that goes on until `falaj cluster down`.

    With --bare or --real the charts that can be had from Go modules are put where stacks look for
    them.
    """
    if real and not _can_be_real():
        nodes = ",".join(filter(None, (nodes, f"{_SIMULATED}={real}")))
        real = 0
    if bare or real:
        found = library.add((), library.folder())
        click.echo(f"charts for stacks of the sandbox: {', '.join(each.name for each in found)}")
        _have_helm()
    if controllers is None:
        controllers = () if real else binaries.CONTROLLERS
    definitions = addons.REAL_DEFINITIONS if real else addons.BARE_DEFINITIONS if bare else ()
    plane = start(
        folder,
        nodes,
        () if bare else controllers,
        crds=crds or definitions,
        site=Site(region, zones or (f"{region}-1",), distribution),
        webhooks=not bare,
        real=real,
        detached=True,
    )
    if real:
        click.echo(
            f"real machines: {', '.join(plane.real.names)}; they get images from "
            f"{plane.real.registry.address}, whose authority is {plane.files.authority}; "
            "`falaj cluster load` fills it"
        )
    click.echo(f"ready: export KUBECONFIG={plane.kubeconfig}")


def _have_helm() -> None:
    """Build what renders charts now: amid a preview nobody says what is waited for."""
    try:
        ensure_tool("helm")
    except EngineError as error:
        click.echo(f"warning: charts can't be rendered yet: {error}", err=True)


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


@cluster.command("load")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@_folder
@click.option(
    "--lock",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where digests are written (default: falaj:images of the stack).",
)
@click.option(
    "--wheels",
    metavar="FOLDER",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Wheels, where no index is in reach.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be built, pushed and written.")
@named_stack(f"The stack that is to run there (default: {_STACK}, made from its template).")
@project_option
def load_images(
    *,
    names: tuple[str, ...],
    folder: Path,
    lock: Path | None,
    wheels: Path | None,
    dry_run: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Build what pods run on real machines, and push it into the registry beside them.

    NAME is a controller (kueue, jobset, trainer) or an image of ours that needs no GPU
    (falaj-inference, falaj-training-cpu); all by default. What was built before from the same
    sources is kept in the user's cache, and what the registry has isn't pushed again. The digests
    go into the lock file that the stack names, so that its next `up` takes these images.
    """
    # The models and what builds images: not for the other commands.
    from falaj.stacks.command import loading  # noqa: PLC0415

    wanted = loading.wanted(names)
    target = loading.Target.of(folder)
    path, below = loading.place(lock, stack or _STACK, project, dry_run=dry_run)
    file = loading.LockFile(path, target.host)
    file.require_ours(wanted)
    if not dry_run and not set(wanted).isdisjoint(loading.OURS):
        _install_missing("warning", prerequisites.BUILDER)
        loading.require_builder()
    loader = loading.Loader(target, below, say, wheels, dry_run)
    digests = loader.load(wanted)
    changed = file.changed(digests, loader)
    if dry_run:
        stays = changed is None and not loader.is_changed
        say(f"{path} would stay as it is" if stays else f"would be written: {path}")
        return 0
    if changed is not None:
        file.write(changed)
    done = "something was pushed" if loader.is_changed else "nothing had to be pushed"
    say(f"\n{done}; {len(digests)} digests {'written to' if changed else 'are in'} {path}")
    return 0


@cluster.command("bring")
@click.argument("tenant")
@_folder
@click.option(
    "--keyring",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The tenant's key ring; made where there is none.",
)
@click.option(
    "--source",
    metavar="SOURCE",
    default="digits",
    show_default=True,
    help="Of the dataset: a name, or a table of CSV or Parquet, as for training on one machine.",
)
@click.option(
    "--target", metavar="COLUMN", help="What is learned of a table (default: of SOURCE's own)."
)
@named_stack(
    "The stack of the tenant's workloads whose file is to name it; made from its template where "
    "there is one (default: none, and what to write is said)."
)
@project_option
def bring_data(
    *,
    tenant: str,
    folder: Path,
    keyring: Path,
    source: str,
    target: str | None,
    stack: str | None,
    project: Path | None,
) -> int:
    """Bring a tenant's dataset, sealed, and its key ring to real machines.

    The dataset goes into the claim `data` of TENANT's namespace for training, beside which is
    `runs`; the rings of who trains and serves, and of who publishes, go into the secret store. It
    says what a stack of the tenant's workloads names them, or writes it into the file of --stack.
    """
    if _running(folder, err=True) is None:
        return 1
    installation.require(sorted(extras_of("falaj.stacks.command.bringing")))
    from falaj.stacks.command import bringing  # noqa: PLC0415 - not for the other commands

    files = Files(folder.absolute())
    more = () if target is None else ("--target", target)
    file = None if stack is None else StackFile(stack, the_project(project))
    if file is not None:
        file.ensure()
    ring = keyring.absolute()
    brought = bringing.bring(files, tenant, ring, source, more)
    if file is None:
        say(brought.settings)
        return 0
    say(brought.into(file, files.authority.read_text(), bringing.verify_key_of(ring)))
    return 0


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
