"""``falaj status``, ``demo``, ``token``, ``rollback`` and ``logs``."""

from __future__ import annotations

from pathlib import Path

import click

from falaj.stacks.command import service
from falaj.stacks.command.options import sandbox_options, stack_option, the_stack


@click.command()
@stack_option
@sandbox_options
def status(stack: str | None, project: Path | None, sandbox: bool, cluster: str | None) -> int:
    """Show what runs and where; of a stack in a cloud, what it last came to.

    The exit status is 1 where a model should be served and isn't.
    """
    del cluster
    found = the_stack(stack, project)
    if not found.is_in_cloud:
        return service.status(found)
    from falaj.stacks.command import lifecycle  # noqa: PLC0415 - it loads the settings' models

    return lifecycle.status(lifecycle.Call(found, sandbox))


@click.command()
@stack_option
def demo(stack: str | None, project: Path | None) -> int:
    """Send held-out samples to the served model; print predictions beside the truth."""
    return service.demo(the_stack(stack, project))


@click.command()
@stack_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["predict", "observe", "admin"]),
    help="May be given more than once (default: predict).",
)
@click.option(
    "--minutes", type=int, default=60, show_default=True, help="How long the token is valid."
)
def token(stack: str | None, project: Path | None, scopes: tuple[str, ...], minutes: int) -> int:
    """Print `Authorization: Bearer …` for requests to the endpoint."""
    return service.token(the_stack(stack, project), scopes, minutes)


@click.command()
@stack_option
def rollback(stack: str | None, project: Path | None) -> int:
    """Serve the model's previous version again; the server follows without a pause."""
    return service.rollback(the_stack(stack, project))


@click.command()
@stack_option
@click.option("--lines", type=int, default=20, show_default=True, help="Of each log.")
def logs(stack: str | None, project: Path | None, lines: int) -> int:
    """Show the last lines of the server's logs."""
    return service.logs(the_stack(stack, project), lines)
