"""Runs an operation of the engine and shows how far it is: one line on a terminal, else one
every ten seconds; what fails is told at once."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from falaj.engine.commands import INTERRUPTED
from falaj.engine.debug_lines import LEFT_OUT
from falaj.engine.progress import INTERVAL_SECONDS, duration
from falaj.stacks.command.console import say
from falaj.stacks.command.events import EventStream, read_events
from falaj.stacks.command.pulumi import Pulumi
from falaj.wire import STACK
from falaj.wire.documents import mapping

if TYPE_CHECKING:
    from rich.console import RenderableType


# What the engine's events say of an operation: how far it is, what failed, what it changed.

#: Steps that leave a resource as it was.
UNCHANGED: Final = frozenset({"same", "read", "refresh", "read-discard", "discard-replaced"})
#: What the engine says of the rest when one thing failed, or when it was asked to stop: no cause.
_FOLLOWS: Final = re.compile(
    r"context canceled|^(?:update|preview|destroy|refresh) (?:failed|canceled)$"
    r"|^resource (?:creation|registration|monitor).*(?:shut|shutting) down|KeyboardInterrupt"
)
#: No news: where the engine finds the provider that this distribution installs; and that the
#: sandbox's answers, which every command says before it begins.
_EXPECTED: Final = re.compile(
    r"^using pulumi-resource-falaj-local from \$PATH"
    r"|^(?:warning: )?SANDBOX: nothing real is made, changed or paid for"
)
_TRACE: Final = "Traceback (most recent call last)"
#: Names come from programs and clouds: they could hold a terminal's control sequences.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Note:
    """Something that the engine, a provider, the program or a pack says."""

    severity: Severity
    text: str
    resource: str
    """Type and name, as ``Cluster cluster``; empty where it is of the whole stack."""
    of_policy: bool = False
    """Whether a policy pack says it."""

    def __str__(self) -> str:
        mark = "" if self.severity == "info" else f"{self.severity}: "
        return f"{mark}{self.resource}: {self.text}" if self.resource else f"{mark}{self.text}"


@dataclass
class Progress:
    """An operation, as far as its events have told of it.

    ``report`` is called with each note as it comes, once for each text.
    """

    report: Callable[[Note], None]
    is_preview: bool = False
    planned: int | None = None
    """Steps that the preview before an update counted, those that change nothing included."""
    steps: int = 0
    """Steps that ended, in this phase."""
    running: dict[str, str] = field(default_factory=dict[str, str])
    """Resources that are being changed, by URN: type and name."""
    doing: str = ""
    """What is done right now, in the words of whoever does it."""
    made: Counter[str] = field(default_factory=Counter[str])
    """Steps that changed something, by kind."""
    changes: dict[str, int] = field(default_factory=dict[str, int])
    """The engine's own count at the end of the last phase; empty when it didn't come to it."""
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stack's outputs, as it was last told of them."""
    failed: bool = False
    violations: int = 0
    """Mandatory violations of policies."""
    reported: set[Note] = field(default_factory=set[Note])

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event; unknown ones are passed over."""
        takers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "resourcePreEvent": self._before,
            "resOutputsEvent": self._after,
            "resOpFailedEvent": self._broken,
            "diagnosticEvent": self._diagnostic,
            "policyEvent": self._policy,
            "summaryEvent": self._summary,
        }
        for kind, body in event.items():
            if kind in takers and isinstance(body, dict):
                takers[kind](cast("dict[str, Any]", body))

    def tell(self, note: Note) -> None:
        """Hand on what was not said before."""
        if note.text and note not in self.reported:
            self.reported.add(note)
            self.report(note)

    def _before(self, body: Mapping[str, Any]) -> None:
        step = mapping(body.get("metadata"))
        planning = bool(body.get("planning"))
        if self.is_preview and not planning:
            # The update that follows its preview.
            self.planned, self.steps, self.changes = self.steps, 0, {}
        self.is_preview = planning
        if step.get("op") not in UNCHANGED:
            self.running[str(step.get("urn"))] = label(step)

    def _after(self, body: Mapping[str, Any]) -> None:
        step = mapping(body.get("metadata"))
        self.running.pop(str(step.get("urn")), None)
        self.doing = ""
        # The stack's outputs come once more, at its end.
        if step.get("type") == STACK:
            self.outputs = mapping(mapping(step.get("new")).get("outputs"))
        else:
            self.steps += 1
            if not self.is_preview and step.get("op") not in UNCHANGED:
                self.made[str(step.get("op"))] += 1

    def _broken(self, body: Mapping[str, Any]) -> None:
        self.running.pop(str(mapping(body.get("metadata")).get("urn")), None)
        self.failed = True

    def _diagnostic(self, body: Mapping[str, Any]) -> None:
        severity = str(body.get("severity", "")).partition("#")[0]
        if severity not in ("info", "warning", "error"):
            return
        text = clean(str(body.get("message", ""))).strip()
        urn = str(body.get("urn", ""))
        # Which step failed is told by its event; a resource's messages are also its progress.
        if body.get("ephemeral"):
            self.doing = text.splitlines()[-1] if text else ""
            return
        if severity != "info" and (_FOLLOWS.search(text) or _EXPECTED.search(text)):
            return
        named = "" if not urn or f"::{STACK}::" in urn else label_of_urn(urn)
        self.tell(Note(severity, without_trace(text), named))

    def _policy(self, body: Mapping[str, Any]) -> None:
        mandatory = body.get("enforcementLevel") == "mandatory"
        self.violations += mandatory
        urn = str(body.get("resourceUrn", ""))
        text = clean(str(body.get("message", ""))).strip()
        name = f"{body.get('policyPackName')}/{body.get('policyName')}"
        # A rule that the engine's end kept from being asked says nothing about the resource.
        if _FOLLOWS.search(text):
            return
        note = f"policy {name}: {text}"
        severity: Severity = "error" if mandatory else "warning"
        self.tell(Note(severity, note, label_of_urn(urn), of_policy=True))

    def _summary(self, body: Mapping[str, Any]) -> None:
        changes = mapping(body.get("resourceChanges"))
        self.changes = {str(kind): int(count) for kind, count in changes.items()}
        self.failed = self.failed or body.get("result") == "failed"


def outputs_in(events: Path) -> Mapping[str, Any]:
    """The stack's outputs, as an operation that ended told of them in a file of its events."""
    progress = Progress(lambda _: None)
    for event in read_events(events):
        progress.take(event)
    return progress.outputs


def label(step: Mapping[str, Any]) -> str:
    """A step's resource for people: the type's last part and the name."""
    return label_of_urn(str(step.get("urn", "")))


def label_of_urn(urn: str) -> str:
    """A resource for people by its URN, as ``Cluster cluster``.

    >>> label_of_urn("urn:pulumi:dev::shop::falaj-aws:index:Cluster$aws:eks/cluster:Cluster::main")
    'Cluster main'
    """
    parts = urn.split("::", 3)
    if len(parts) < 4:
        return clean(urn)
    kind = parts[2].rpartition("$")[2].rpartition(":")[2]
    return clean(f"{kind} {parts[3]}")


def clean(text: str) -> str:
    """A text without what would steer a terminal."""
    return _CONTROL.sub("", text)


def without_trace(message: str) -> str:
    """A program's own failure: what was raised and where, without the way there."""
    if _TRACE not in message:
        return message
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ")]
    return f"the program failed: {lines[-1]} ({places[-1] if places else 'nowhere'})"


#: The engine's options for what it draws stay hidden until this is set; its Automation API does
#: the same (pulumi/pulumi, sdk/go/auto/stack.go).
SHOWN: Final = {"PULUMI_DEBUG_COMMANDS": "true"}
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
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stack's outputs, those that a preview knows; secrets are masked."""


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
        output = Path(temporary) / "printed"
        display = _display(verb, expected, quiet=read)
        try:
            with output.open("wb") as printed, EventStream() as events:
                status = pulumi.run(
                    [*arguments, "--non-interactive", "--event-log", events.address],
                    {**(variables or {}), **SHOWN, **LEFT_OUT},
                    output=printed,
                    meanwhile=lambda: display.follow(events),
                    interrupted=display.interrupt,
                )
        finally:
            display.close()
        text = output.read_text(encoding="utf-8", errors="replace")
    progress = display.progress
    interrupted = display.was_interrupted or status in (INTERRUPTED, 128 + 15)
    explained = any(note.severity == "error" for note in progress.reported)
    if status != 0 and not interrupted and not explained and not read:
        _show_last(text)
    return Outcome(
        status, progress.changes, progress.made, progress.violations, interrupted,
        display.seconds, text, explained or not read, progress.outputs,
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
        f"{changes[kind]} {forms[0 if planned else 1]}"
        for kind, forms in _WORDS.items()
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
        self.progress = Progress(self._report, planned=expected)
        self.was_interrupted = False
        self._verb = verb
        self._started = self._shown = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    def follow(self, events: EventStream) -> None:
        """Take what came; show a line when the last one is old."""
        for event in events.new():
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

    def _report(self, note: Note) -> None:
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
