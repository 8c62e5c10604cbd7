"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from falaj.stacks.command.project import Project, StackFile

_Command = TypeVar("_Command", bound=Callable[..., Any])


def the_project(folder: Path | None) -> Project:
    """The project of ``--project``. Raises StackError where there is none."""
    from falaj.stacks.command.project import Project  # noqa: PLC0415 - not for `--help`

    return Project.find(folder)


def the_stack(name: str | None, folder: Path | None) -> StackFile:
    """The stack of ``--stack`` and ``--project``. Raises StackError where there is none."""
    from falaj.stacks.command.project import StackFile  # noqa: PLC0415

    project = the_project(folder)
    return StackFile(name or project.default_stack, project)


def stacks_here(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the stacks that have a file, for a shell's completion."""
    from falaj.stacks.errors import StackError  # noqa: PLC0415

    del parameter
    try:
        names = the_project(context.params.get("project")).stack_names
    except StackError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def project_option(command: _Command) -> _Command:
    """``--project FOLDER``."""
    return click.option(
        "--project",
        metavar="FOLDER",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder with the Pulumi.yaml (default: the working folder if it has one, else "
        "Falaj's own).",
    )(command)


def named_stack(about: str) -> Callable[[_Command], _Command]:
    """``--stack NAME``; ``about`` says what the stack is for."""
    return click.option("-s", "--stack", metavar="NAME", shell_complete=stacks_here, help=about)


JUDGING_STACK: Final = "The stack whose policies say which registries are in the country"
WITHOUT_STACK: Final = "default: ECR in me-central-1, and this machine"


def stack_option(command: _Command) -> _Command:
    """``--stack NAME`` and ``--project FOLDER``."""
    about = "The stack's name (default: local; elsewhere the only one that has a file)."
    return named_stack(about)(project_option(command))


def stacks_option(command: _Command) -> _Command:
    """``--stack NAME``, which may be given more than once, and ``--project FOLDER``."""
    return click.option(
        "-s",
        "--stack",
        "stacks",
        metavar="NAME",
        multiple=True,
        shell_complete=stacks_here,
        help="May be given more than once (default: all).",
    )(project_option(command))


def models_here(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the models that the stack's server has, for a shell's completion."""
    from falaj.stacks.command import service  # noqa: PLC0415 - not for `--help`
    from falaj.stacks.errors import StackError  # noqa: PLC0415

    del parameter
    try:
        stack = the_stack(context.params.get("stack"), context.params.get("project"))
        names = service.models_of(service.require_config(stack))
    except StackError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def model_option(about: str) -> Callable[[_Command], _Command]:
    """``--model NAME``, one of the models of a server; ``about`` says what for."""
    return click.option(
        "--model", metavar="NAME", shell_complete=models_here,
        help=f"{about} (default: the stack's own).",
    )  # fmt: skip


def sandbox_options(command: _Command) -> _Command:
    """``--sandbox`` and ``--cluster [KUBECONFIG]``."""
    with_cluster = click.option(
        "--cluster",
        metavar="[KUBECONFIG]",
        is_flag=False,
        flag_value="",
        default=None,
        help="In the sandbox, apply Kubernetes objects to a test control plane (default: the one "
        "that `falaj cluster up` started).",
    )(command)
    return click.option(
        "--sandbox",
        is_flag=True,
        default=lambda: os.environ.get("SANDBOX") == "1",
        help="Let stand-ins answer for the cloud: no credentials, no network, nothing real (also "
        "SANDBOX=1, or falaj:sandbox in the stack's file).",
    )(with_cluster)
