"""``falaj preflight``: what the catalogue says of a stack's place, then what the cloud says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from falaj.components import catalogue
from falaj.stacks.command import installation
from falaj.stacks.command.console import say
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.placement import choose
from falaj.stacks.preflight import (
    Finding,
    Need,
    NotAskedError,
    aws,
    azure,
    exit_status,
    kubernetes_version,
    needs,
)
from falaj.stacks.settings import CloudSettings, InClusterSettings

_MARKS = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "unknown"}


@click.command()
@stack_option
@click.option(
    "--health",
    is_flag=True,
    help="Ask AWS Health as well, which answers from another country only.",
)
def preflight(stack: str | None, project: Path | None, health: bool) -> int:
    """Ask the real cloud whether a stack could be deployed; changes nothing.

    The exit status is 0 all is fine, 1 problems, 2 it could not be asked.
    """
    return ask(the_stack(stack, project), health=health)


def ask(stack: StackFile, *, health: bool) -> int:
    """Ask and print; returns 0 when all is fine, 1 with problems, 2 when it could not be checked.

    Args:
        stack: the stack that is about to be deployed.
        health: whether AWS Health may be asked, which answers from another country only.
    """
    settings = stack.settings()
    if not isinstance(settings, CloudSettings):
        raise StackError(
            f"preflight: stack {stack.name} is of the platform local; allowed: stacks in a cloud"
        )
    if isinstance(settings, InClusterSettings):
        instead = f"ask for its cluster: falaj preflight --stack {settings.cluster}"
        raise StackError(
            f"preflight: stack {stack.name} makes nothing in a cloud; allowed: stacks that do\n  "
            + (instead if settings.cluster else "an existing cluster has no cloud to ask")
        )
    choice = choose(settings)
    place = choice.place
    for reason in choice.reasons:
        say(reason)
    wanted = needs(settings, place)
    version = kubernetes_version(settings)
    for need in wanted:
        cost = catalogue.cost.pool(need.machine, need.most)
        say(f"pool {need.name}: at most {need.most} x {need.machine.name}, {cost}")
    say()
    findings: list[Finding] = []
    try:
        for finding in _ask(place, wanted, version, health=health):
            findings.append(finding)
            say(f"{_MARKS[finding.level]}  {finding.subject}: {finding.text}")
    except NotAskedError as error:
        say(f"{error}\nwhat is above comes from the catalogue; nothing was confirmed")
        return 2
    return exit_status(findings)


def _ask(
    place: catalogue.Place, wanted: Sequence[Need], version: str | None, *, health: bool
) -> Iterator[Finding]:
    try:
        if place.cloud == "aws":
            client = aws.connect(place.region)
            return aws.ask(client, place, wanted, kubernetes_version=version, health=health)
        subscription, get = azure.connect()
        return azure.ask(subscription, get, place, wanted)
    except ModuleNotFoundError as error:
        raise NotAskedError(
            f"{place.cloud} could not be asked: {error.name} is missing\n"
            f"  {installation.how_to_install([place.cloud])}"
        ) from None
