"""``falaj experiment``: a second version that answers a share of the requests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from falaj.stacks.command.options import stack_option
from falaj.stacks.command.second import Second

_EXPERIMENT: Final = Second(
    "experiment", "candidate", "has no experiment", "falaj:service.experiment.key x-customer",
    "its requests aren't given to versions",
    "In a cluster a canary takes a share of the requests, whoever sends them",
)  # fmt: skip


@click.group()
def experiment() -> None:
    """Have a second version, the candidate, answer a share of the requests, and count both.

    Whose requests are the candidate's is drawn by the value of a header, so that one customer
    always meets the same version. The header is falaj:service.experiment.key in the stack's file,
    and the share falaj:service.experiment.share. `falaj status` and /metrics say how both fare.
    """


@experiment.command()
@click.argument("version", type=click.IntRange(min=1))
@stack_option
def start(version: int, stack: str | None, project: Path | None) -> int:
    """Have VERSION of the model be the candidate, in the place of another one if need be."""
    return _EXPERIMENT.start(version, stack, project)


@experiment.command()
@stack_option
def stop(stack: str | None, project: Path | None) -> int:
    """Have the version that serves answer everybody again."""
    return _EXPERIMENT.stop(stack, project)


@experiment.command()
@stack_option
def promote(stack: str | None, project: Path | None) -> int:
    """Have the candidate serve everybody: the server follows without a pause."""
    return _EXPERIMENT.promote(stack, project)
