"""Where a model's aliases point: one signed, counted list, which the log of changes confirms.

A signature says who made the list, not that it is the newest one. Each list has the number of the
change that made it, and so has that change's line in the log: a list that was put back is behind
the log, and a log that was cut is behind the list. Both put back together are found out by who has
seen a higher number, as a server has. That is rollback protection as in The Update Framework:
https://theupdateframework.github.io/specification/latest/#update-snapshot
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from falaj.workloads.documents import mapping
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_json, write_json_atomic
from falaj.workloads.registry.keyring import KeyRing, sign
from falaj.workloads.registry.package import canonical, check_alias

ALIASES: Final = "aliases.json"
LIST_FORMAT: Final = "falaj.aliases/1"
LIST_PAYLOAD: Final = "application/vnd.falaj.aliases+json"
"""What the signature says the signed bytes are."""
WITHDRAW: Final = "withdraw"
MOVES: Final = frozenset({"promote", "rollback", WITHDRAW})
"""Events of the log that change a list."""
_ABOUT: Final = "_list"
"""Beside the aliases in the file; no alias begins like this."""
MAX_HISTORY = 100
"""Versions that an alias remembers; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Where an alias points.

    Attributes:
        version: the version it stands for.
        history: versions it stood for before, oldest first; a rollback takes the last.
        changed: when, ISO 8601, UTC.
    """

    version: int
    history: tuple[int, ...]
    changed: str

    @property
    def previous(self) -> int | None:
        """The version that a rollback goes to, if there is one."""
        return self.history[-1] if self.history else None

    def promoted(self, version: int) -> Alias:
        """Return the alias pointing at ``version``, its own version remembered."""
        return Alias(version, (*self.history, self.version)[-MAX_HISTORY:], _now())

    def rolled_back(self, exists: Callable[[int], bool]) -> Alias | None:
        """Return the alias one step back, past versions that were pruned; None if none is left."""
        history = [version for version in self.history if exists(version)]
        while history:
            version = history.pop()
            if version != self.version:
                return Alias(version, tuple(history), _now())
        return None

    @classmethod
    def first(cls, version: int) -> Alias:
        """Return an alias that has never pointed anywhere else."""
        return cls(version, (), _now())


@dataclass(frozen=True, slots=True)
class AliasList:
    """A model's aliases as they stand in the file.

    Attributes:
        model: name of the model.
        aliases: by name.
        number: of the change that made the list, counted from 1; 0 before the first.
        signature: the detached signature; None where it isn't signed.
    """

    model: str
    aliases: Mapping[str, Alias]
    number: int = 0
    signature: bytes | None = None

    def payload(self) -> bytes:
        """The one form that is signed."""
        document = {
            "format": LIST_FORMAT,
            "model": self.model,
            "number": self.number,
            "aliases": _document(self.aliases),
        }
        return canonical(document)

    def versions(self) -> dict[str, int]:
        """What each alias stands for."""
        return {name: alias.version for name, alias in self.aliases.items()}

    def require_signature(self, keyring: KeyRing, what: str) -> None:
        """Check who made the list, where the key ring is of somebody who signs.

        A key ring that can't sign is a pod's: what it serves came by a digest or a signed record,
        and its list is its own.

        Raises:
            IntegrityError: it isn't signed, or not by that key ring.
        """
        if not keyring.signs or not self.number:
            return
        if self.signature is None:
            raise IntegrityError(f"{what} isn't signed; {REMEDY}")
        keyring.verify(self.payload(), LIST_PAYLOAD, self.signature, what)


REMEDY: Final = "look at `registry audit`, and promote again with --keyring what is to be served"


def read_list(folder: Path) -> AliasList:
    """Return a model's aliases; none if nothing was promoted yet.

    Raises:
        WorkloadError: the file is damaged.
    """
    path = folder / ALIASES
    if not path.exists():
        return AliasList(folder.name, {})
    document: Any = read_json(path, "the list of aliases")
    if not isinstance(document, dict):
        raise WorkloadError(f"{path} isn't a list of aliases: restore it or promote again")
    entries = cast(dict[str, Any], document)
    number, signature = _about(path, entries.pop(_ABOUT, None))
    aliases = {check_alias(name): _alias(path, name, value) for name, value in entries.items()}
    return AliasList(folder.name, aliases, number, signature)


def write_list(
    folder: Path, aliases: Mapping[str, Alias], number: int, keyring: KeyRing | None
) -> None:
    """Replace a model's list atomically, signed if the key ring can; its lock is held."""
    made = AliasList(folder.name, aliases, number)
    about: dict[str, Any] = {"number": number}
    if keyring is not None and keyring.signs:
        about["signature"] = json.loads(sign(made.payload(), LIST_PAYLOAD, keyring.signing_key()))
    write_json_atomic(folder / ALIASES, {**_document(aliases), _ABOUT: about})


def replay(events: Sequence[Mapping[str, Any]], model: str) -> tuple[dict[str, Alias], int]:
    """Return the aliases that the log's changes lead to, and the number of the last change."""
    aliases: dict[str, Alias] = {}
    number = 0
    for event in events:
        match event:
            case {"action": action, "model": of, "alias": str(name), "version": int(version)}:
                if action not in MOVES or of != model:
                    continue
            case _:
                continue
        given = event.get("number")
        number = given if type(given) is int else number + 1
        before = aliases.get(name)
        if action == WITHDRAW:
            aliases.pop(name, None)
        elif before is None:
            aliases[name] = Alias(version, (), str(event.get("time", "")))
        elif action == "promote":
            aliases[name] = before.promoted(version)
        else:
            aliases[name] = before.rolled_back(lambda each, to=version: each == to) or Alias(
                version, (), before.changed
            )
    return aliases, number


def compare(found: AliasList, events: Sequence[Mapping[str, Any]], what: str) -> None:
    """Hold a list against the log of changes.

    Raises:
        IntegrityError: one of both is older than the other, or was changed.
    """
    aliases, number = replay(events, found.model)
    if found.number < number:
        raise IntegrityError(
            f"{what} is number {found.number}, but the log of changes goes to {number}: it was "
            f"put back, or its last change was interrupted; {REMEDY}"
        )
    if found.number > number:
        raise IntegrityError(
            f"{what} is number {found.number}, but the log of changes only goes to {number}: the "
            f"log was cut; {REMEDY}"
        )
    listed = {name: alias.version for name, alias in aliases.items()}
    if found.versions() != listed:
        raise IntegrityError(
            f"{what} says {found.versions()}, but the log of changes {listed}: it was changed; "
            f"{REMEDY}"
        )


def _about(path: Path, value: object) -> tuple[int, bytes | None]:
    if value is None:
        return 0, None
    match mapping(value):
        case {"number": int(number), **rest} if type(number) is int and number > 0:
            if not rest:
                return number, None
            if set(rest) == {"signature"}:
                return number, json.dumps(rest["signature"]).encode()
        case _:
            pass
    raise WorkloadError(f"{path}: {_ABOUT} is malformed; restore it or promote again")


def _document(aliases: Mapping[str, Alias]) -> dict[str, Any]:
    return {
        name: {"version": alias.version, "history": list(alias.history), "changed": alias.changed}
        for name, alias in sorted(aliases.items())
    }


def _alias(path: Path, name: str, value: object) -> Alias:
    match mapping(value):
        case {"version": int(version), "history": [*history], "changed": str(changed)}:
            entries = cast("list[object]", history)
            versions = [entry for entry in entries if isinstance(entry, int) and entry > 0]
            if version > 0 and len(versions) == len(entries):
                return Alias(version, tuple(versions), changed)
        case _:
            pass
    raise WorkloadError(f"{path}: the alias {name!r} is malformed; restore it or promote again")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
