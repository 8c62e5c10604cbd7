"""``falaj shadow``: a second version beside the one that serves, which answers nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from falaj.stacks.command import service
from falaj.stacks.command.console import say
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.command.project import StackFile, falaj
from falaj.stacks.errors import StackError
from falaj.stacks.watching.aliases import alias_of, shadow_alias, store_of
from falaj.workloads.errors import WorkloadError


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
    found = the_stack(stack, project)
    config, alias = _asked(found)
    if version == _stands_for(config):
        others = [str(each) for each in _versions(config) if each != version]
        raise StackError(
            f"VERSION: given {version}, which is the one that serves; "
            + (f"allowed: {', '.join(others)}" if others else "there is no other one so far")
        )
    arguments = service.registry_arguments("promote", config, alias, "--version", str(version))
    return _turned(found, arguments)


@shadow.command()
@stack_option
def stop(stack: str | None, project: Path | None) -> int:
    """Have no version get copies of requests any more."""
    found = the_stack(stack, project)
    config, alias = _asked(found)
    _beside(found, config, alias)
    return _turned(found, service.registry_arguments("withdraw", config, alias))


@shadow.command()
@stack_option
def promote(stack: str | None, project: Path | None) -> int:
    """Have the shadow's version serve: the server follows without a pause, and the shadow ends."""
    found = the_stack(stack, project)
    config, alias = _asked(found)
    version = _beside(found, config, alias)
    arguments = service.registry_arguments(
        "promote", config, str(config["alias"]), "--version", str(version)
    )
    done = _turned(found, arguments)
    if done == 0:
        # It is nobody's shadow by now; later versions shan't find its alias.
        service.run_workload(service.registry_arguments("withdraw", config, alias))
    return done


def _turned(stack: StackFile, arguments: list[str]) -> int:
    done = service.run_workload(arguments)
    if done == 0:
        say(f"the server follows within seconds; see: {falaj('status', stack)}")
    return done


def _asked(stack: StackFile) -> tuple[Mapping[str, Any], str]:
    """What the server was told, and the alias of its shadow.

    Raises:
        StackError: the stack is in a cloud, serves nothing, or its server copies no requests.
    """
    if stack.is_in_cloud:
        raise StackError(
            f"stack {stack.name} is in a cloud; allowed: a stack of the platform local. In a "
            "cluster a canary with a small weight takes requests of its own"
        )
    config = service.require_config(stack)
    alias = shadow_alias(config)
    if alias is None:
        raise StackError(
            f"the server of stack {stack.name} copies no requests; have it do so:\n"
            f"  {falaj('config set falaj:service.shadow.percent 10', stack)}\n"
            f"  {falaj('up', stack)}"
        )
    return config, alias


def _beside(stack: StackFile, config: Mapping[str, Any], alias: str) -> int:
    version = _stands_for(config, alias)
    if version is None:
        raise StackError(
            f"stack {stack.name} has no shadow; versions there are: "
            f"{', '.join(map(str, _versions(config)))}\n"
            f"  start one with: {falaj('shadow start VERSION', stack)}"
        )
    return version


def _stands_for(config: Mapping[str, Any], alias: str | None = None) -> int | None:
    """The version of an alias, by default of the one that the server follows."""
    try:
        found = alias_of(config, alias)
    except WorkloadError as error:
        raise StackError(str(error)) from None
    return found.version if found is not None else None


def _versions(config: Mapping[str, Any]) -> list[int]:
    return store_of(config).versions(str(config["model"]))
