"""``falaj config``: shows and changes keys of a stack's file, comments and order kept.

The engine's own ``pulumi config set`` writes a file anew, without its blank lines, and checks
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from falaj.stacks.command.console import say
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.errors import StackError

if TYPE_CHECKING:
    from falaj.stacks.command.project import StackFile
    from falaj.stacks.settings.edit import Change


@click.group(invoke_without_command=True)
@stack_option
@click.pass_context
def config(context: click.Context, stack: str | None, project: Path | None) -> int:
    """Show or change the keys of a stack's file.

    KEY is written as `falaj:service.port`, the namespace may be left out; `[0]` is an item of a
    list, and a name with dots stands as `["a.b"]`. Without a command, all keys are shown.
    """
    if context.invoked_subcommand is None:
        return show(_chosen(context, stack, project), None)
    return 0


@config.command()
@click.argument("key", required=False)
@stack_option
@click.pass_context
def get(context: click.Context, key: str | None, stack: str | None, project: Path | None) -> int:
    """Print what the file says for KEY; without it, all keys."""
    return show(_chosen(context, stack, project), key)


@config.command("set")
@click.argument("pairs", metavar="KEY VALUE [KEY VALUE]...", nargs=-1, required=True)
@stack_option
@click.pass_context
def set_(
    context: click.Context, pairs: tuple[str, ...], stack: str | None, project: Path | None
) -> int:
    """Set keys in the file, all or none, and print the lines that changed.

    A VALUE is read as what the key takes: a number, true or false, `[a, b]`, `{key: value}`.
    What would make the stack invalid is refused, and the file stays as it is. A VALUE that begins
    with a dash needs `--` before the first KEY.
    """
    return put(_chosen(context, stack, project), pairs)


@config.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@stack_option
@click.pass_context
def rm(
    context: click.Context, keys: tuple[str, ...], stack: str | None, project: Path | None
) -> int:
    """Remove keys from the file, all or none, and print the lines that went."""
    return remove(_chosen(context, stack, project), keys)


def show(stack: StackFile, key: str | None) -> int:
    """Print the value of a key, or all keys with their values."""
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    if key is not None:
        say(_as_text(edit.value_of(stack.path, stack.project.root, key)))
        return 0
    values = edit.values_of(stack.path, stack.project.root)
    longest = max((len(name) for name, _ in values), default=0)
    for name, value in values:
        say(f"{name.ljust(longest)}  {_as_text(value)}")
    return 0


def put(stack: StackFile, pairs: Sequence[str]) -> int:
    """Set keys: ``pairs`` are keys and values in turn."""
    from falaj.stacks.settings import edit  # noqa: PLC0415

    if len(pairs) % 2:
        raise StackError(
            f"{pairs[-1]}: given without a value; allowed: KEY VALUE, any number of times\n"
            f"  remove a key with: falaj config rm {pairs[-1]}"
        )
    keys = list(pairs[::2])
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise StackError(f"{twice}: given twice; give each key once")
    stack.ensure()
    values = dict(zip(keys, pairs[1::2], strict=True))
    return _report(stack, edit.set_values(stack.path, stack.project.root, values))


def remove(stack: StackFile, keys: Sequence[str]) -> int:
    """Remove keys."""
    from falaj.stacks.settings import edit  # noqa: PLC0415

    keys = list(dict.fromkeys(keys))
    return _report(stack, edit.remove_values(stack.path, stack.project.root, keys))


def _report(stack: StackFile, change: Change) -> int:
    """Print what became of the file; returns the exit status."""
    from falaj.sandbox import activation  # noqa: PLC0415 - not for `--help`
    from falaj.stacks.command import workspace  # noqa: PLC0415

    if activation.is_asked():
        # In the sandbox's shell, where the engine reads a copy.
        workspace.renew(stack)
    for number, line in change.come:
        say(f"{change.label}:{number}: {line}")
    if not change.come:
        for number, line in change.gone:
            say(f"{change.label}:{number}: removed: {line}")
    if not change.come and not change.gone:
        say(f"{change.label} says so already; nothing was changed")
    if change.wrong:
        say("what was wrong before, and still is:")
        for problem in change.wrong:
            say(str(problem))
    return 0


def _as_text(value: Any) -> str:
    """A value alone: text as it is, all else as YAML on one line."""
    from falaj.stacks.settings.document import written  # noqa: PLC0415
    from falaj.stacks.settings.problems import format_value, is_secret  # noqa: PLC0415

    if is_secret(value):
        return format_value(value)
    return value if isinstance(value, str) else written(value)


def _chosen(context: click.Context, stack: str | None, project: Path | None) -> StackFile:
    """The stack of the command's own options, else of those before its name.

    In the sandbox's shell, whose folder is a copy, it is the one of the project itself.
    """
    from falaj.stacks.command.workspace import origin  # noqa: PLC0415

    before = context.parent.params if context.parent else {}
    name, folder = stack or before.get("stack"), project or before.get("project")
    copied = origin(folder or Path.cwd())
    if copied is not None:
        name, folder = name or os.environ.get("PULUMI_STACK"), copied
    return the_stack(name, folder)
