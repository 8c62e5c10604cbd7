"""``falaj watch``: acts on drift of a served model, from outside of the server."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from falaj.stacks.command.console import say
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.command.project import StackFile, falaj
from falaj.stacks.command.second import NO_TEXT, has_language_model
from falaj.stacks.errors import StackError
from falaj.stacks.watching.seen import FOLDER

if TYPE_CHECKING:
    from falaj.stacks.watching.machine import Machine
    from falaj.stacks.watching.several import Watches
    from falaj.workloads.watching.ladder import Tell

_DRIFTED: Final = 3
_STATUS: Final = {"fine": 0, "drifted": _DRIFTED, "unknown": 1}


@click.command()
@stack_option
@click.option("--once", is_flag=True, help="Look once, do what is to be done, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as one JSON line.")
def watch(*, stack: str | None, project: Path | None, once: bool, as_json: bool) -> int:
    """Look at the served models' drift again and again, and act on it as the stack says.

    What may be done is falaj:watch in the stack's file: tell, have a shadow serve, roll back,
    retrain. Its file is read again before each look. Each step is written into an audit log of the
    watch's own. SIGTERM and Ctrl-C end it in order, a retraining included.

    With --once the exit status is 0: nothing drifted; 3: something did; 1: nobody knows, as the
    server doesn't say. 2 is a refusal, as everywhere.
    """
    found = the_stack(stack, project)
    with _alone(found) as folder:
        return run(found, folder, once=once, as_json=as_json)


def run(stack: StackFile, folder: Path, *, once: bool, as_json: bool) -> int:
    """Watch a stack; returns the exit status.

    Raises:
        StackError: its file asks for no watch, or can't be used.
    """
    # The settings' models and the server's libraries: not for `--help`.
    from falaj.stacks.watching.machine import Machine  # noqa: PLC0415
    from falaj.stacks.watching.several import Watches  # noqa: PLC0415
    from falaj.workloads.inference.process.logs import Logs  # noqa: PLC0415
    from falaj.workloads.watching.lone import signals  # noqa: PLC0415
    from falaj.workloads.watching.memory import WatchError  # noqa: PLC0415

    stop = threading.Event()
    world = Machine(stack, folder, stop)
    try:
        settings = world.settings()
    except WatchError as error:
        raise StackError(str(error)) from None
    if settings is None:
        if has_language_model(stack):
            raise StackError(
                f"stack {stack.name} serves a language model, of which no drift is told that a "
                f"watch could act on; allowed: {NO_TEXT}"
            )
        raise StackError(
            f"stack {stack.name} asks for no watch; give it one, such as:\n"
            f"  {falaj('config set falaj:watch.steps ' + repr('[tell]'), stack)}"
        )

    def tell(event: str, text: str, figures: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if as_json:
            line = {"time": now, "event": event, "stack": stack.name, "text": text, **figures}
            say(json.dumps(line, ensure_ascii=False))
        else:
            say(f"{now} {text}")

    logs = Logs(folder / "logs")
    with signals(stop):
        try:
            by = f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})"
            watching = Watches(world, logs, tell, by)
            watching.begin(os.getpid())
            if once:
                return _STATUS[watching.look()]
            every = f"every {settings.interval_seconds} s"
            tell("begins", f"watching stack {stack.name} {every}: {', '.join(settings.steps)}", {})
            _repeat(watching, world, stop, tell)
            tell("ends", "the watch ends, as it was asked to", {})
            return 0
        except WatchError as error:
            raise StackError(str(error)) from None
        finally:
            logs.close()


def _repeat(watching: Watches, world: Machine, stop: threading.Event, tell: Tell) -> None:
    """Look until asked to stop; a file that is wrong for a while ends nothing."""
    from falaj.workloads.watching.memory import WatchError  # noqa: PLC0415

    last_error = ""
    while not stop.is_set():
        pause = 60
        try:
            watching.look()
            settings = world.settings()
            pause = settings.interval_seconds if settings else pause
            last_error = ""
        except WatchError as error:
            if str(error) != last_error:
                last_error = str(error)
                tell("refused", last_error, {})
        stop.wait(pause)


@contextmanager
def _alone(stack: StackFile) -> Generator[Path]:
    """The watch's own folder, with the one lock that lets a stack have one watch.

    Raises:
        StackError: the stack isn't there, or another watch is.
    """
    from falaj.workloads.watching.lone import TakenError, alone  # noqa: PLC0415

    if not stack.site.is_dir():
        raise StackError(
            f"stack {stack.name} isn't up: there is no {stack.site}\n"
            f"  bring it up with: {falaj('up', stack)}"
        )
    folder = stack.site / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with alone(folder):
            yield folder
    except TakenError as error:
        raise StackError(
            f"another watch looks after stack {stack.name}"
            + (f" (process {error.holder})" if error.holder else "")
            + "; what it saw and did: "
            + falaj("status", stack)
        ) from None
