"""Runs an operation of the engine and shows how far it is: one line on a terminal, else one
every ten seconds; what fails is told at once."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from falaj.engine.commands import INTERRUPTED
from falaj.engine.progress import INTERVAL_SECONDS, duration
from falaj.stacks.command.console import say
from falaj.stacks.command.events import EventLog, Note, Progress, clean
from falaj.stacks.command.pulumi import Pulumi

if TYPE_CHECKING:
    from rich.console import RenderableType

#: The engine's options for what it draws stay hidden until this is set; its Automation API does
#: the same (pulumi/pulumi, sdk/go/auto/stack.go).
_SHOWN: Final = {"PULUMI_DEBUG_COMMANDS": "true"}
_LOCKED: Final = re.compile(r"currently locked by \d+ lock\(s\)")
_OWNER: Final = re.compile(r"created by \S*?@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")
#: Lines of what the engine printed that are shown where its events named no cause.
_TAIL: Final = 20
#: Kinds of steps in the words of a summary.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "create": ("to create", "created"),
    "update": ("to update", "updated"),
    "replace": ("to replace", "replaced"),
    "delete": ("to delete", "deleted"),
    "import": ("to import", "imported"),
    "same": ("unchanged", "unchanged"),
}


@dataclass(frozen=True)
class Outcome:
    """How an operation ended."""

    status: int
    """The engine's exit status."""
    changes: Mapping[str, int]
    """Steps by kind, as the engine counted them; empty when it didn't come to its end."""
    made: Mapping[str, int]
    """Steps that changed something before it ended."""
    violations: int
    was_interrupted: bool
    seconds: float
    printed: str
    """What the engine itself printed."""
    explained: bool = False
    """Whether why it failed was said."""


def run(
    pulumi: Pulumi,
    arguments: Sequence[str],
    verb: str,
    variables: Mapping[str, str] | None = None,
    *,
    expected: int | None = None,
    read: bool = False,
) -> Outcome:
    """Run an operation of the engine to its end and show how far it is.

    Args:
        pulumi: the engine.
        arguments: as ``["up", "--yes", …]``.
        verb: what is done, for the line of progress: ``updating``.
        variables: further variables of the engine's environment.
        expected: how many steps there will be, where that is known.
        read: whether the caller reads what the engine prints and tells of it: only errors and
            warnings of others are shown while it runs.
    """
    with tempfile.TemporaryDirectory(prefix="falaj-operation-") as temporary:
        folder = Path(temporary)
        log = EventLog(folder / "events.jsonl")
        display = _display(verb, expected, quiet=read)
        try:
            with (folder / "printed").open("wb") as printed:
                status = pulumi.run(
                    [*arguments, "--non-interactive", "--event-log", str(folder / "events.jsonl")],
                    {**(variables or {}), **_SHOWN},
                    output=printed,
                    meanwhile=lambda: display.follow(log),
                    interrupted=display.interrupt,
                )
        finally:
            display.close()
        text = (folder / "printed").read_text(encoding="utf-8", errors="replace")
    progress = display.progress
    interrupted = display.was_interrupted or status in (INTERRUPTED, 128 + 15)
    explained = any(note.severity == "error" for note in progress.said)
    if status != 0 and not interrupted and not explained and not read:
        _show_last(text)
    return Outcome(
        status, progress.changes, progress.made, progress.violations, interrupted,
        display.seconds, text, explained or not read,
    )  # fmt: skip


def shown_by_the_engine(
    pulumi: Pulumi, arguments: Sequence[str], variables: Mapping[str, str] | None = None
) -> Outcome:
    """Run an operation with the engine's own display: every resource, every diagnostic."""
    started = time.monotonic()
    drawing = [] if sys.stdout.isatty() else ["--non-interactive"]
    status = pulumi.run([*arguments, *drawing], variables)
    interrupted = status in (INTERRUPTED, 128 + 15)
    return Outcome(status, {}, {}, 0, interrupted, time.monotonic() - started, "")


def counted(changes: Mapping[str, int], *, planned: bool) -> str:
    """Steps by kind for people: ``12 to create, 3 unchanged``."""
    parts = [
        f"{changes[kind]} {words[0 if planned else 1]}"
        for kind, words in _WORDS.items()
        if changes.get(kind)
    ]
    return ", ".join(parts) or "nothing"


def is_change(changes: Mapping[str, int]) -> bool:
    """Whether an operation changes anything."""
    return any(count for kind, count in changes.items() if kind in _WORDS and kind != "same")


def lock_message(printed: str, stack: str) -> str | None:
    """What to do about a stack that somebody else's run holds; None where it isn't that."""
    if not _LOCKED.search(printed):
        return None
    owner = _OWNER.search(printed)
    by = f" (process {owner['pid']} on {owner['host']}, since {owner['at']})" if owner else ""
    return (
        f"another run is working on stack {stack}{by}\n"
        "  wait until it has ended, then run this again: nothing was begun here"
    )


def _show_last(printed: str) -> None:
    """Say what the engine printed last, where none of its events named a cause."""
    lines = [line for line in clean(printed).splitlines() if line.strip()]
    for line in lines[-_TAIL:]:
        say(f"  {line}")


class Lines:
    """Notes as they come, and a line of progress every ten seconds."""

    def __init__(self, verb: str, expected: int | None, *, quiet: bool = False) -> None:
        """``verb``: what is done; ``expected``: how many steps there will be, if known.

        ``quiet``: of the notes show errors and warnings alone, and not what policy packs say.
        """
        self._quiet = quiet
        self.progress = Progress(self._told, planned=expected)
        self.was_interrupted = False
        self._verb = verb
        self._started = self._shown = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    def follow(self, log: EventLog) -> None:
        """Take what came; show a line when the last one is old."""
        for event in log.new():
            self.progress.take(event)
        self._show()

    def interrupt(self) -> None:
        """Say that it is stopping."""
        self.was_interrupted = True
        self._print("stopping: what is being made now is finished first")

    def close(self) -> None:
        """Nothing stays to be removed."""

    def _show(self) -> None:
        if time.monotonic() - self._shown >= INTERVAL_SECONDS:
            self._shown = time.monotonic()
            say(f"      {self.line()}")

    def _told(self, note: Note) -> None:
        if not self._quiet or (note.severity != "info" and not note.of_policy):
            self._print(str(note))

    def _print(self, text: str) -> None:
        for line in text.splitlines():
            say(f"      {line}")

    def line(self) -> str:
        """How far it is, in a line."""
        progress = self.progress
        verb = "previewing" if progress.is_preview else self._verb
        total = f" of {progress.planned}" if progress.planned and not progress.is_preview else ""
        text = f"{verb}: {progress.steps}{total} resources"
        if progress.running:
            *_, current = progress.running.values()
            text += f", {current}"
            if len(progress.running) > 1:
                text += f" and {len(progress.running) - 1} more"
        if progress.doing:
            text += f": {progress.doing}"
        return f"{text} ({duration(self.seconds)})"


class Live(Lines):
    """On a terminal: notes as they come, and below them one line that changes in its place."""

    def __init__(self, verb: str, expected: int | None, *, quiet: bool = False) -> None:
        """As `Lines`."""
        from rich.console import Console  # noqa: PLC0415 - for terminals only
        from rich.live import Live as Region  # noqa: PLC0415
        from rich.spinner import Spinner  # noqa: PLC0415

        super().__init__(verb, expected, quiet=quiet)
        self._spinner = Spinner("dots")
        self._region = Region(
            get_renderable=self._drawn, console=Console(highlight=False), transient=True
        )
        self._region.start()

    def close(self) -> None:
        """Remove the line."""
        self._region.stop()

    def _show(self) -> None:
        """The region draws itself, several times a second."""

    def _drawn(self) -> RenderableType:
        from rich.text import Text  # noqa: PLC0415

        self._spinner.update(text=Text(self.line(), no_wrap=True, overflow="ellipsis"))
        return self._spinner


def _display(verb: str, expected: int | None, *, quiet: bool) -> Lines:
    shown = Live if sys.stdout.isatty() else Lines
    return shown(verb, expected, quiet=quiet)
