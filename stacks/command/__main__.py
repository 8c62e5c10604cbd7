"""``falaj``: bring stacks up and down, and look after what they serve."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from engine.errors import EngineError
from stacks.command import lifecycle, reference, service
from stacks.command.console import complain
from stacks.command.project import StackFile
from stacks.command.pulumi import INTERRUPTED
from stacks.errors import StackError

_COMMANDS: dict[str, tuple[str, Callable[[StackFile, argparse.Namespace], int]]] = {
    "up": (
        "bring a stack to what its file says",
        lambda stack, _: lifecycle.up(stack),
    ),
    "preview": (
        "show what `up` would change, and change nothing",
        lambda stack, _: lifecycle.preview(stack),
    ),
    "down": (
        "destroy everything of a stack (what it retains stays)",
        lambda stack, _: lifecycle.down(stack),
    ),
    "shell": (
        "open a shell in which plain `pulumi` commands work",
        lambda stack, _: lifecycle.shell(stack),
    ),
    "new": (
        "make a stack's file from a template",
        lambda stack, options: lifecycle.new(stack, options.template),
    ),
    "status": (
        "show what runs and where",
        lambda stack, _: service.status(stack),
    ),
    "demo": (
        "send held-out samples to the served model",
        lambda stack, _: service.demo(stack),
    ),
    "token": (
        "print an authorisation header for the served model",
        lambda stack, options: service.token(stack, options.scope, options.minutes),
    ),
    "rollback": (
        "serve the model's previous version again",
        lambda stack, _: service.rollback(stack),
    ),
    "logs": (
        "show the server's latest log lines",
        lambda stack, options: service.logs(stack, options.lines),
    ),
    "settings": (
        "list the keys of a stack file, what is allowed and the defaults",
        lambda stack, _: reference.settings(),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 failed, 2 refused, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="falaj", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (help_text, _) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name != "settings":
            command.add_argument(
                "--stack", default="local", help="the stack's name (default: local)"
            )
        if name == "new":
            command.add_argument("--template", default="local", help="default: local")
        if name == "token":
            command.add_argument(
                "--scope",
                action="append",
                choices=["predict", "observe", "admin"],
                help="may be given more than once (default: predict)",
            )
            command.add_argument(
                "--minutes", type=int, default=60, help="how long it is valid (default: 60)"
            )
        if name == "logs":
            command.add_argument("--lines", type=int, default=20, help="default: 20")
    options = parser.parse_args(arguments)
    try:
        stack = StackFile(getattr(options, "stack", "local"))
        return _COMMANDS[options.command][1](stack, options)
    except (StackError, EngineError) as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`falaj status | head`): nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
