"""Values as they would be with a correction: so that one mistake doesn't hide the others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any, cast

from falaj.stacks.settings.problems import Action, Drop, Finding, Path, Put, Rename


def mended(own: dict[str, Any], finding: Finding) -> dict[str, Any]:
    """Nested values with the first thing that mends a finding; as they are where nothing does."""
    if not finding.actions:
        return mended_by(own, Drop(finding.path))
    return mended_by(own, finding.actions[0])


def before(finding: Finding, renames: Iterable[Rename]) -> Finding:
    """A finding about values with corrected keys, by the keys that were given."""

    def back(path: Path) -> Path:
        for rename in renames:
            length = len(rename.path)
            if path[:length] == (*rename.path[:-1], rename.name):
                return (*rename.path, *path[length:])
        return path

    actions = tuple(dataclasses.replace(each, path=back(each.path)) for each in finding.actions)
    return dataclasses.replace(finding, path=back(finding.path), actions=actions)


def is_there(own: Any, path: Path) -> bool:
    """Whether nested values have a path, or what it lies in where something is missing there."""
    here = own
    for part in path:
        if isinstance(here, dict) and part in here:
            here = cast("dict[Any, Any]", here)[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = cast("list[Any]", here)[part]
        else:
            return False
    return True


def mended_by(own: dict[str, Any], action: Action) -> dict[str, Any]:
    """Nested values with one thing changed; those that were given stay as they are."""
    whole = copy.deepcopy(own)
    parent = _parent(whole, action.path, make=isinstance(action, Put))
    last = action.path[-1]
    if isinstance(parent, dict):
        section = cast("dict[Any, Any]", parent)
        if isinstance(action, Put):
            section[last] = action.value
        elif last in section:
            value = section.pop(last)
            if isinstance(action, Rename):
                section.setdefault(action.name, value)
    elif isinstance(parent, list) and isinstance(last, int):
        items = cast("list[Any]", parent)
        if isinstance(action, Put) and last <= len(items):
            items[last : last + 1] = [action.value]
        elif isinstance(action, Drop) and last < len(items):
            del items[last]
    return whole


def _parent(whole: Any, path: Path, *, make: bool) -> Any:
    here = whole
    for part in path[:-1]:
        if isinstance(here, dict):
            section = cast("dict[Any, Any]", here)
            if make and section.get(part) is None:
                section[part] = {}
            here = section.get(part)
        elif isinstance(here, list) and isinstance(part, int):
            items = cast("list[Any]", here)
            here = items[part] if part < len(items) else None
    return here
