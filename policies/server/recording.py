"""A record of all that a pack judged, for `falaj check`: one JSON document a line.

Written only where the environment names a folder. Each process writes a file of its own, so that
packs that run side by side don't meet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from policies.outcome import Decided

RECORD_FOLDER: Final = "FALAJ_POLICY_RECORD"


class Record:
    """The record of one process; does nothing where nobody asked for one."""

    def __init__(self, pack: str) -> None:
        folder = os.environ.get(RECORD_FOLDER)
        self._path = Path(folder) / f"{pack}-{os.getpid()}.jsonl" if folder else None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody reads it."""
        return self._path is not None

    def write(self, kind: str, **entry: Any) -> None:
        """Append an entry, at once."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, **entry}) + "\n")


def entry_of(decided: Decided) -> dict[str, Any]:
    """A finding and what became of it, as plain data."""
    waiver = decided.ruling.waiver
    return {
        "rule": decided.judgement.rule.id,
        "urn": decided.judgement.resource.urn,
        "path": decided.finding.path,
        "reason": decided.finding.reason,
        "findingKind": decided.finding.kind.value,
        "status": decided.status.value,
        "note": decided.ruling.note,
        "waiver": waiver.id if waiver else "",
    }


def read_records(folder: Path) -> Iterable[dict[str, Any]]:
    """All entries that packs wrote into a folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
