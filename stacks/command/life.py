"""``falaj new``, ``preview``, ``up``, ``refresh``, ``down`` and ``shell``."""

from __future__ import annotations

from pathlib import Path

import click

from falaj.stacks.command import first_version, lifecycle
from falaj.stacks.command.call import Call
from falaj.stacks.command.options import (
    project_option,
    sandbox_options,
    stack_option,
    the_stack,
)
from falaj.stacks.command.testplane import use_cluster

_details = click.option(
    "--details", is_flag=True, help="Show every resource, as the engine itself shows it."
)


@click.command()
@stack_option
@sandbox_options
@_details
@click.option(
    "--model-from",
    metavar="STACK",
    help="Of a tier in a cloud that names no package yet: the stack of one machine whose model it "
    "is to serve (default: local, if that serves the model).",
)
@click.option(
    "--wait",
    metavar="MINUTES",
    type=click.FloatRange(0, first_version.MOST_MINUTES),
    default=first_version.PATIENCE,
    show_default=True,
    help="How long the first version of a service is waited for that a training of the same stack "
    "publishes; 0 for not at all.",
)
def up(
    *,
    stack: str | None,
    project: Path | None,
    sandbox: bool,
    cluster: str | None,
    details: bool,
    model_from: str | None,
    wait: float,
) -> int:
    """Bring a stack to what its file says.

    Validates the settings, has the policy packs judge what would be made, and makes it. Run it
    again after an interruption: it goes on from what is there.

    A tier that serves a model comes in phases: what it stands on, the model's package, machines.
    So does a service in a cluster that follows an alias, whose model a training of the same stack
    is to publish first. Exit status 3: the first is there, and what is left to do was said.
    """
    call = _call(stack, project, sandbox, cluster)
    return lifecycle.up(call, details=details, source=model_from, patience=wait)


@click.command()
@stack_option
@sandbox_options
@_details
@click.option("--costs", is_flag=True, help="Show every line of the costs as well.")
@click.option(
    "--unknown-prices",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a price file with a row for each price that nobody knows, to be filled in.",
)
def preview(
    *,
    stack: str | None,
    project: Path | None,
    sandbox: bool,
    cluster: str | None,
    details: bool,
    costs: bool,
    unknown_prices: Path | None,
) -> int:
    """Show what `up` would change, and change nothing.

    On one screen: where it would be, its machines, what it costs at least and at most, what
    changes, what the policy packs say, and what to do next. The exit status is 1 where a policy
    is violated.
    """
    if details and (costs or unknown_prices):
        raise click.UsageError(
            "--details shows what the engine shows; leave out --costs and "
            "--unknown-prices, or --details"
        )
    from falaj.stacks.command import previewing  # noqa: PLC0415 - with prices, rules and reports

    call = _call(stack, project, sandbox, cluster)
    if details:
        return previewing.details(call)
    return previewing.page(call, every_cost=costs, unknown_prices=unknown_prices)


@click.command()
@stack_option
@sandbox_options
@_details
def refresh(
    stack: str | None, project: Path | None, sandbox: bool, cluster: str | None, details: bool
) -> int:
    """Read what is really there into the stack's state, so that the next `up` mends drift."""
    return lifecycle.refresh(_call(stack, project, sandbox, cluster), details=details)


@click.command()
@stack_option
@sandbox_options
@_details
@click.option("-y", "--yes", is_flag=True, help="Don't ask (nobody is asked without a terminal).")
def down(
    *,
    stack: str | None,
    project: Path | None,
    sandbox: bool,
    cluster: str | None,
    details: bool,
    yes: bool,
) -> int:
    """Destroy everything of a stack; what it retains stays.

    On a terminal it says what that is, and asks.
    """
    call = _call(stack, project, sandbox, cluster)
    return lifecycle.down(call, details=details, is_agreed=yes)


@click.command()
@stack_option
@sandbox_options
def shell(stack: str | None, project: Path | None, sandbox: bool, cluster: str | None) -> int:
    """Open a shell in which plain `pulumi` commands work, with Falaj's engine and backend.

    Of a stack in a cluster `kubectl` goes to that cluster, whichever context is current elsewhere.
    """
    return lifecycle.shell(_call(stack, project, sandbox, cluster))


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("-s", "--stack", metavar="NAME", help="The stack's name (default: the template's).")
@project_option
@click.option(
    "--template", metavar="NAME", default="local", show_default=True,
    help="What it is made from (--list names them).",
)  # fmt: skip
@click.option(
    "--set",
    "values",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting that the template asks for, such as falaj:tenant=acme.",
)
@click.option("--list", "listed", is_flag=True, help="List the templates.")
def new(
    *,
    folder: Path | None,
    stack: str | None,
    project: Path | None,
    template: str,
    values: tuple[str, ...],
    listed: bool,
) -> int:
    """Make a stack's file in this project, or in FOLDER a project of its own, from a template."""
    from falaj.stacks.command import scaffold  # noqa: PLC0415 - a new stack's alone

    if listed:
        return scaffold.show_templates()
    return scaffold.make(folder, stack, project, template, values)


def _call(stack: str | None, project: Path | None, sandbox: bool, cluster: str | None) -> Call:
    if cluster is not None:
        use_cluster(cluster, sandbox=sandbox)
    return Call(the_stack(stack, project), sandbox)
