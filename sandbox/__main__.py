"""``falaj sandbox``: look at the sandbox's cloud, change it, make it fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from falaj.engine.commands import run
from falaj.engine.errors import EngineError
from falaj.sandbox import activation, faults
from falaj.sandbox.charts import library
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.drift import add as add_resource
from falaj.sandbox.drift import lose as lose_resource
from falaj.sandbox.drift import set_property
from falaj.sandbox.store import Store

_resource = click.argument("resource", metavar="URN_OR_NAME")


@click.group()
@click.option(
    "--cloud",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The cloud's file (default: {activation.CLOUD_VARIABLE}, else Falaj's own).",
)
@click.pass_context
def sandbox(context: click.Context, cloud: Path | None) -> None:
    """Look at the sandbox's cloud, change it behind the engine's back, make it fail."""
    context.obj = cloud


@contextmanager
def _opened(context: click.Context) -> Generator[Store]:
    path: Path | None = context.obj
    store = Store(path or activation.cloud_file())
    try:
        yield store
    finally:
        store.close()


@sandbox.command("list")
@click.option("--type", "token", metavar="TYPE", help="Only of this type, as aws:ec2/vpc:Vpc.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@click.pass_context
def list_made(context: click.Context, token: str | None, as_json: bool) -> None:
    """List what exists."""
    with _opened(context) as store:
        found = store.all(token)
    if as_json:
        fields = [{"urn": m.urn, "type": m.token, "id": m.id, "region": m.region} for m in found]
        click.echo(json.dumps(fields, indent=2, ensure_ascii=False))
        return
    if not found:
        click.echo("nothing exists in the sandbox")
    for made in found:
        click.echo(f"{made.stack}  {made.token}  {_name(made)}  {made.id}")


@sandbox.command()
@_resource
@click.pass_context
def show(context: click.Context, resource: str) -> None:
    """Print a resource's inputs and outputs as JSON."""
    with _opened(context) as store:
        made = store.named(resource)
    fields = {
        "urn": made.urn,
        "id": made.id,
        "inputs": dict(made.inputs),
        "outputs": dict(made.outputs),
    }
    click.echo(json.dumps(fields, indent=2, ensure_ascii=False))


@sandbox.command("set")
@_resource
@click.argument("path")
@click.argument("value")
@click.pass_context
def set_value(context: click.Context, resource: str, path: str, value: str) -> None:
    """Change a property behind the engine's back.

    PATH is such as tags.owner or rules[0].port; VALUE is JSON, or else text; null takes the
    property away.
    """
    with _opened(context) as store:
        made = set_property(store, resource, path, _parsed(value))
    click.echo(f"{_name(made)}: {path} changed; `pulumi refresh` finds it")


@sandbox.command("add")
@click.argument("token", metavar="TYPE")
@click.argument("name")
@click.argument("values", metavar="[PATH=VALUE]...", nargs=-1)
@click.option("--region", default="", help="Where it is; AWS needs it.")
@click.option("--id", "own", default="", help="Its own id (default: one that is made up).")
@click.pass_context
def add_existing(
    context: click.Context,
    *,
    token: str,
    name: str,
    values: tuple[str, ...],
    region: str,
    own: str,
) -> None:
    """Add what exists outside of every stack, for queries and references to find.

    PATH and VALUE are as in `set`: cidrBlock=10.0.0.0/16 tags.Name=hub.
    """
    with _opened(context) as store:
        given = dict(map(_assigned, values))
        made = add_resource(store, token, name, given, region=region, id=own)
    click.echo(f"{_name(made)} exists: {made.id}")


@sandbox.command()
@_resource
@click.pass_context
def lose(context: click.Context, resource: str) -> None:
    """Remove a resource behind the engine's back."""
    with _opened(context) as store:
        made = lose_resource(store, resource)
    click.echo(f"{_name(made)} is gone; `pulumi refresh` finds it")


@sandbox.group()
def fault() -> None:
    """Make an operation fail."""


@fault.command()
@click.option("--on", "action", required=True, type=click.Choice(list(faults.ACTIONS)))
@click.option("--type", "token", metavar="TYPE", help="Of the resources meant (default: every).")
@click.option("--name", help="Of the resource meant (default: every one).")
@click.option("--nth", type=int, default=1, show_default=True, help="Which matching operation.")
@click.option("--timeout", is_flag=True, help="The work is done, the answer comes late.")
@click.option("--always", is_flag=True, help="Every one from the n-th on, too.")
@click.option(
    "--times", type=int, default=1, show_default=True, help="How many, from the n-th on."
)
@click.option(
    "--answer",
    metavar="TEXT",
    default="",
    help="What the cloud says, such as PrincipalNotFound of a role that isn't effective yet.",
)
@click.pass_context
def add(
    context: click.Context,
    *,
    action: Any,
    token: str | None,
    name: str | None,
    nth: int,
    timeout: bool,
    always: bool,
    times: int,
    answer: str,
) -> None:
    """Add a fault."""
    with _opened(context) as store:
        asked = faults.Fault(action, token, name, nth, timeout, always, times, answer)
        added = faults.add(store, asked)
    click.echo(str(added))


@fault.command("list")
@click.pass_context
def list_faults(context: click.Context) -> None:
    """List the faults."""
    with _opened(context) as store:
        for each in faults.listed(store):
            click.echo(str(each))


@fault.command()
@click.pass_context
def clear(context: click.Context) -> None:
    """Forget the faults."""
    with _opened(context) as store:
        click.echo(f"{faults.clear(store)} faults forgotten")


@sandbox.group()
def charts() -> None:
    """The charts that this machine has."""


@charts.command("list")
def list_charts() -> None:
    """List the charts in the folder, and where it is."""
    folder = library.folder()
    _tell_charts(folder, library.listed(folder))


@charts.command("add")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def add_charts(names: tuple[str, ...]) -> None:
    """Put charts that lie in Go modules into the folder, such as kueue (default: all)."""
    folder = library.folder()
    _tell_charts(folder, library.add(list(names), folder))


@sandbox.command()
@click.pass_context
def reset(context: click.Context) -> None:
    """Empty the cloud and forget the faults."""
    with _opened(context) as store:
        count = store.clear()
    click.echo(f"{count} resources gone; `pulumi refresh` drops them from their stacks")


def _tell_charts(folder: Path, found: Any) -> None:
    click.echo(f"{len(found)} charts in {folder}")
    for chart in found:
        click.echo(f"{chart.name} {chart.version}")


def _assigned(text: str) -> tuple[str, Any]:
    path, sign, value = text.partition("=")
    if not sign:
        raise EngineError(f"{text!r} is no PATH=VALUE; write such as cidrBlock=10.0.0.0/16")
    return path, _parsed(value)


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _name(made: Made) -> str:
    return made.urn.split("::", 3)[-1]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 2 it cannot be done."""
    return run(sandbox, "falaj sandbox", arguments)


if __name__ == "__main__":
    sys.exit(main())
