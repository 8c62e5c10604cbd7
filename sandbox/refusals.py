"""What the sandbox refuses while a program is only judged: noted, so that the rest is judged too.

A run ends at the first refusal, as with a real cloud. A check is there to say everything that is
wrong: it names a folder in the environment, each stand-in writes its refusals there and goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "FALAJ_SANDBOX_REFUSALS"
"""The folder that refusals are written to; nothing is made but in a preview's copy."""

_SUFFIX: Final = ".refusals"


@dataclass(frozen=True)
class Refusal:
    """Something that a cloud would refuse."""

    token: str
    """Of the resource's type, the provider's or the query."""
    name: str
    """Of the resource; empty for a query."""
    reason: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.token, self.name))) + f": {self.reason}"


class RefusalLog:
    """Writes the refusals of one process down, each once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}{_SUFFIX}"
        self._reported: set[Refusal] = set()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> RefusalLog | None:
        """Where the environment asks for it."""
        folder = environ.get(VARIABLE)
        return cls(Path(folder)) if folder else None

    def note(self, token: str, name: str, reasons: Iterable[Any]) -> None:
        """Write down why something would be refused, unless that was said already."""
        for each in reasons:
            refusal = Refusal(token, name, str(each))
            if refusal in self._reported:
                continue
            self._reported.add(refusal)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([token, name, refusal.reason]) + "\n")


def read(folder: Path) -> Iterator[Refusal]:
    """All refusals in a folder, by type and name."""
    lines = [
        line
        for path in folder.glob(f"*{_SUFFIX}")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    for line in sorted(set(lines)):
        yield Refusal(*json.loads(line))
