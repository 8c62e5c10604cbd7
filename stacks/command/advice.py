"""How to call the next command from where a person stands: by `make` in a clone, else alone."""

from __future__ import annotations

import shlex
from pathlib import Path

from falaj.stacks.command import installation
from falaj.stacks.command.project import StackFile

#: The stack that commands are for where none is named, in a clone.
_DEFAULT = "local"


def command(verb: str, stack: StackFile, *, sandbox: bool = False, quiet: bool = False) -> str:
    """The command for a stack, to be pasted into a shell.

    Args:
        verb: ``up``, ``down`` and so on: both a command and a target of make.
        stack: which stack it is for.
        sandbox: whether it goes to the sandbox.
        quiet: what it prints is read by another program.
    """
    project = stack.project
    if project.root == installation.ROOT and installation.is_clone():
        words = ["make", *(["-s"] if quiet else [])]
        if Path.cwd() != project.root:
            words += ["-C", str(project.root)]
        words.append(verb)
        if stack.name != _DEFAULT:
            words.append(f"STACK={stack.name}")
        return shlex.join(words) + (" SANDBOX=1" if sandbox else "")
    return falaj(verb, stack) + (" --sandbox" if sandbox else "")


def falaj(words: str, stack: StackFile) -> str:
    """A call of ``falaj`` itself, for a stack.

    Args:
        words: what follows its name, quoted for a shell.
        stack: the stack that it is for.
    """
    text = installation.call(words)
    if stack.name != stack.project.default_stack_or_none:
        text += f" --stack {shlex.quote(stack.name)}"
    if Path.cwd() != stack.project.root:
        text += f" --project {shlex.quote(str(stack.project.root))}"
    return text
