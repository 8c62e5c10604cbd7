"""``falaj shadow``: a second version beside the one that serves, which answers nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from falaj.stacks.command.options import stack_option
from falaj.stacks.command.second import Second

_SHADOW: Final = Second(
    "shadow", "shadow", "copies no requests", "falaj:service.shadow.percent 10",
    "texts of two versions aren't compared",
    "In a cluster a canary with a small weight takes requests of its own",
)  # fmt: skip


@click.group()
def shadow() -> None:
    """Give a second version copies of requests, and compare its answers.

    The one that serves answers as ever; what the other one would have answered is compared row by
    row, and `falaj status` and /metrics say what came of it. How many requests are copied is
    falaj:service.shadow.percent in the stack's file.
    """


@shadow.command()
@click.argument("version", type=click.IntRange(min=1))
@stack_option
def start(version: int, stack: str | None, project: Path | None) -> int:
    """Have VERSION of the model get copies of requests, in the place of another one if need be."""
    return _SHADOW.start(version, stack, project)


@shadow.command()
@stack_option
def stop(stack: str | None, project: Path | None) -> int:
    """Have no version get copies of requests any more."""
    return _SHADOW.stop(stack, project)


@shadow.command()
@stack_option
def promote(stack: str | None, project: Path | None) -> int:
    """Have the shadow's version serve: the server follows without a pause, and the shadow ends."""
    return _SHADOW.promote(stack, project)
