"""Which foundations the sandbox made by itself, for which stacks: they go with the last one."""

from __future__ import annotations

import json
from pathlib import Path

from falaj.engine.files import replace_file
from falaj.engine.folders import data_home
from falaj.stacks.command.project import StackFile


def begin(foundation: StackFile, stack: str) -> None:
    """Remember that a foundation was made because ``stack`` stands on it."""
    _write(foundation, [stack])


def keep(foundation: StackFile, stack: str) -> None:
    """Another stack stands on it; one that a person made is left as it is."""
    if _file(foundation).exists():
        _write(foundation, sorted({*_read(foundation), stack}))


def leave(foundation: StackFile, stack: str) -> bool:
    """A stack is gone; True when it was the last one for which the foundation was made."""
    if not _file(foundation).exists():
        return False
    left = [name for name in _read(foundation) if name != stack]
    _write(foundation, left)
    return not left


def forget(foundation: StackFile) -> None:
    """The foundation is gone, or belongs to a person from now on."""
    _file(foundation).unlink(missing_ok=True)


def _file(foundation: StackFile) -> Path:
    folder = data_home() / "sandbox" / "projects" / foundation.project.name
    return folder / f"{foundation.name}.made-for.json"


def _read(foundation: StackFile) -> list[str]:
    return list(json.loads(_file(foundation).read_text(encoding="utf-8")))


def _write(foundation: StackFile, stacks: list[str]) -> None:
    replace_file(_file(foundation), json.dumps(stacks))
