"""What the engine's commands have in common: refusals and the ways out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

import click

from falaj.engine.errors import EngineError

#: Exit status of a command that was ended by Ctrl-C, as shells report it.
INTERRUPTED: Final = 130
#: Exit status of a command that was refused, or could not be understood.
REFUSED: Final = 2
#: Exit status of a command that did what could be done, and said what is left.
LEFT: Final = 3


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command of the engine by itself; returns its exit status.

    Args:
        command: the command.
        name: how it is called, for its help.
        arguments: default: those of this process.
    """
    signal.signal(signal.SIGTERM, leave)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return call(command, name, given)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("stopped; nothing half-finished is left behind", file=sys.stderr)
        return INTERRUPTED


def call(command: click.Command, name: str, arguments: Sequence[str]) -> int:
    """Run a command and return its exit status; its own errors pass through.

    Raises:
        KeyboardInterrupt: a person ended it, or a question was left unanswered.
    """
    try:
        status = command.main(list(arguments), prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM takes the same way out as Ctrl-C: everything temporary is removed."""
    raise KeyboardInterrupt
