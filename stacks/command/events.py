"""What the engine's events say of an operation: how far it is, what failed, what it changed.

The engine writes an event a line to the file that ``--event-log`` names, in the form of
github.com/pulumi/pulumi, sdk/go/common/apitype/events.go.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from falaj.stacks.documents import mapping

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
_STACK: Final = "pulumi:pulumi:Stack"
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

    ``told`` is called with each note as it comes, once for each text.
    """

    told: Callable[[Note], None]
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
    failed: bool = False
    violations: int = 0
    """Mandatory violations of policies."""
    said: set[Note] = field(default_factory=set[Note])

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
        if note.text and note not in self.said:
            self.said.add(note)
            self.told(note)

    def _before(self, body: Mapping[str, Any]) -> None:
        step = mapping(body.get("metadata"))
        planning = bool(body.get("planning"))
        if self.is_preview and not planning:
            # The update that follows its preview.
            self.planned, self.steps = self.steps, 0
        self.is_preview = planning
        if step.get("op") not in UNCHANGED:
            self.running[str(step.get("urn"))] = label(step)

    def _after(self, body: Mapping[str, Any]) -> None:
        step = mapping(body.get("metadata"))
        self.running.pop(str(step.get("urn")), None)
        self.doing = ""
        # The stack's outputs come once more, at its end.
        if step.get("type") != _STACK:
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
        named = "" if not urn or f"::{_STACK}::" in urn else label_of_urn(urn)
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


class EventLog:
    """A file of events that grows while it is read."""

    def __init__(self, path: Path) -> None:
        """``path`` need not be there yet."""
        self._path = path
        self._position = 0
        self._rest = b""

    def new(self) -> Iterator[Mapping[str, Any]]:
        """The events that came since the last call; half a line waits for its other half."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                found = file.read()
        except FileNotFoundError:
            return
        self._position += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            try:
                event: Any = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield cast("dict[str, Any]", event)


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
