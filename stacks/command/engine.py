"""``falaj engine ensure | env | doctor``: the engine's own commands."""

from __future__ import annotations

import click

from falaj.engine import __main__ as own
from falaj.sandbox import activation


@click.group(commands=own.engine.commands)
@click.pass_context
def engine(context: click.Context) -> None:
    """The Pulumi engine that is used, and what it needs."""
    if context.invoked_subcommand == "env":
        # What is printed goes beside the shell's own variables, which decide what is real.
        activation.check()
