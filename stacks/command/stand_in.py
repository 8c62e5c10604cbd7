"""The `pulumi` of the shell: in the sandbox changes of settings reach the stack's own file.

In the sandbox the engine works on a copy of the stack's file, which is made anew from the real one
by every command: what ``pulumi config set`` wrote there would be lost. A script that is first on
the shell's path hands calls that write configuration to `main`; all others are the engine's own.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from falaj.engine.launchers import write_script
from falaj.stacks.errors import StackError

if TYPE_CHECKING:
    from falaj.stacks.command.project import Project

_SCRIPT: Final = """#!/bin/sh
# The engine, save that settings are changed in the stack's own file (falaj: stacks/command), and
# that the shell's stack is none of another project's.
case "$(pwd -P)/" in
{folder}/*) ;;
*) unset PULUMI_STACK ;;
esac
for word in "$@"; do
    case "$word" in
    config|-c*|--config|--config=*)
        exec {python} -P -m falaj.stacks.command.stand_in {engine} "$@" ;;
    esac
done
exec {engine} "$@"
"""
#: Options of the engine that take a value, beside which others may stand anywhere.
_WITH_VALUE: Final = frozenset(
    {
        "-C", "--cwd", "--color", "--memprofilerate", "--otel-traces", "--profiling", "--tracing",
        "-v", "--verbose", "-s", "--stack", "--config-file", "--type", "-d", "--dest", "-c",
        "--config",
    }
)  # fmt: skip
#: What may stand beside a key and its value, and changes nothing about where they go.
_HARMLESS: Final = frozenset(
    {
        "--path", "--plaintext", "-s", "--stack", "-C", "--cwd", "--color", "-e", "--emoji",
        "--non-interactive", "-Q", "--fully-qualify-stack-names", "--logtostderr", "--logflow",
        "-v", "--verbose",
    }
)  # fmt: skip
#: Commands that update a stack, and write the configuration that they are given into its file.
_UPDATING: Final = frozenset(("up", "update", "preview", "destroy", "refresh", "watch"))
_SET: Final = "change settings with: falaj config set KEY VALUE [KEY VALUE]..."
_LOST: Final = "would change the sandbox's copy of the stack's file, which is made anew"


@dataclass
class CommandLine:
    """A call of the engine."""

    plain: list[str] = field(default_factory=list[str])
    """What is no option: the command's name and its arguments."""
    options: dict[str, str] = field(default_factory=dict[str, str])
    """Options as they were written, with their values; empty where they take none."""

    def option(self, *names: str) -> str:
        """The value of an option; empty where it wasn't given."""
        return next((self.options[name] for name in names if name in self.options), "")


def parsed(arguments: Sequence[str]) -> CommandLine:
    """Tell options from the other words of a call, as the engine does."""
    found = CommandLine()
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            found.plain += waiting
            break
        if not argument.startswith("-") or argument == "-":
            found.plain.append(argument)
            continue
        name, equals, value = argument.partition("=")
        if not argument.startswith("--") and len(argument) > 2 and argument[:2] in _WITH_VALUE:
            name, value = argument[:2], argument[2:].removeprefix("=")
        elif not equals and name in _WITH_VALUE and waiting:
            value = waiting.pop(0)
        found.options[name] = value
    return found


def answer(arguments: Sequence[str], project: Project, stack: str) -> list[str] | None:
    """What ``falaj config`` is to be called with in place of the engine.

    Args:
        arguments: of the engine.
        project: the real one, whose copy the call is for.
        stack: the stack of the shell.

    Returns:
        None where the call changes no settings: it is the engine's.

    Raises:
        StackError: it would change the copy alone; the message says what does it instead.
    """
    line = parsed(arguments)
    command, *rest = line.plain or [""]
    asks = {"-h", "--help"} & set(line.options)
    if asks or "--config-file" in line.options:
        return None
    if command in _UPDATING and {"-c", "--config"} & set(line.options):
        raise StackError(f"pulumi {command} --config {_LOST}\n  {_SET}; then run it without")
    if command != "config" or not rest:
        return None
    verb, *given = rest
    name = line.option("-s", "--stack").rpartition("/")[2] or stack
    chosen = ["--stack", name, "--project", str(project.root)]
    match verb:
        case "set" | "rm" | "remove" | "rm-all" | "remove-all":
            _refuse_others(verb, line)
        case "set-all" | "cp" | "copy" | "refresh" | "env":
            raise StackError(f"pulumi config {verb} {_LOST}\n  {_SET}")
        case _:
            return None
    keys = [_named(key, project) for key in (given[:1] if verb == "set" else given)]
    if verb != "set":
        return ["rm", *chosen, "--", *keys]
    if len(given) != 2:
        raise StackError(
            f"pulumi config set: given {len(given)} words; allowed: KEY VALUE\n  {_SET}"
        )
    return ["set", *chosen, "--", *keys, given[1]]


def _refuse_others(verb: str, line: CommandLine) -> None:
    if "--secret" in line.options:
        raise StackError(
            f"pulumi config {verb} --secret: settings are read before anything is decrypted, none "
            f"is a secret\n  {_SET}"
        )
    others = [name for name in line.options if name not in _HARMLESS]
    if others:
        raise StackError(
            f"pulumi config {verb} {others[0]} isn't taken in the sandbox's shell\n  {_SET}"
        )


def _named(key: str, project: Project) -> str:
    """A key with the namespace that the engine gives to those without one."""
    return key if ":" in key else f"{project.name}:{key}"


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Answer a call of `pulumi`: the engine's path, then what it was called with.

    Returns the exit status, or becomes the engine.
    """
    engine, *given = arguments
    project = _copied(parsed(given).option("-C", "--cwd"))
    try:
        own = None if project is None else answer(given, project, environ.get("PULUMI_STACK", ""))
    except StackError as error:
        from falaj.engine.commands import REFUSED  # noqa: PLC0415 - on failure only

        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    if own is None:
        os.execv(engine, [engine, *given])  # noqa: S606 - no shell wanted
    from falaj.stacks.command.__main__ import main as falaj  # noqa: PLC0415 - not for the engine

    return falaj(["config", *own])


def _copied(folder: str) -> Project | None:
    """The project whose copy a call is for; None where it is for another one."""
    from falaj.stacks.command.project import Project  # noqa: PLC0415
    from falaj.stacks.command.workspace import origin  # noqa: PLC0415

    here = Path(folder or ".").absolute()
    # The engine looks for its project upwards.
    found = next(
        (each for each in (here, *here.parents) if (each / "Pulumi.yaml").is_file()), None
    )
    root = origin(found) if found else None
    return Project.find(root) if root else None


@contextmanager
def first_on_the_path(engine: Path, project: Path, path: str) -> Generator[str]:
    """A ``PATH`` with that `pulumi` before everything else, while the shell of a project runs."""
    with TemporaryDirectory(prefix="falaj-shell-") as folder:
        text = _SCRIPT.format(
            python=shlex.quote(sys.executable),
            engine=shlex.quote(str(engine)),
            folder=shlex.quote(str(project.resolve())),
        )
        write_script(Path(folder) / "pulumi", text)
        yield os.pathsep.join([folder, path])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
