"""Every key of a stack of one machine reaches a resource: none is accepted and dropped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from falaj.stacks.settings.local import LocalSettings
from falaj.stacks.settings.reference import sections_below
from falaj.stacks.settings.shapes import NAME, Choice, Flag, Items, Key, Number, example, keys_of
from tests.stacks import on_machine

BASE: dict[str, Any] = {
    "platform": "local", "dataset": "notes.txt",
    "training": {"start": "run", "parallel": {}, "tracking": {"server": "https://10.0.0.1"}},
    "service": {"jobs": {}, "experiment": {"key": "x-else"}},
    "features": {"tables": {NAME.lower(): {"source": "b.csv", "keys": ["who"]}}},
    "batches": {NAME.lower(): {"inputs": ["a.csv"]}}, "watch": {},
}  # fmt: skip
#: The platform is what was asked, and the watch reads its own settings from the stack's file.
ELSEWHERE = {"platform", "watch"}


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Key]]:
    for key in keys_of(model):
        here = (*path, key.name)
        below = list(sections_below(key, here))
        if not below and not ELSEWHERE & {*here}:
            yield ".".join(here), key
        for section, way in below:
            yield from keys(section, way)


def others(key: Key) -> Iterator[Any]:
    """Values that a key may have, most of them other than the default."""
    shape = key.shape
    match shape:
        case Number(whole, limits):
            assert limits is not None
            low = int(limits.low) if whole else limits.low
            yield from (low, low + 1 if whole else limits.high)
        case Choice(values):
            yield from values
        case Flag():
            yield from (True, False)
        case Items():
            yield [example(shape.of, "other")]
        case _:
            yield example(shape, "other")
            yield {"other": 1}


def declared(settings: dict[str, Any]) -> str:
    """What the engine is asked for."""
    found = on_machine.declared(LocalSettings.model_validate(settings), Path("/project"))
    made = [(each.typ, each.name, each.inputs) for each in found.made]
    return json.dumps(sorted(made, key=lambda each: each[:2]), sort_keys=True, default=str)


def given(path: str, value: Any) -> dict[str, Any]:
    settings = copy.deepcopy(BASE)
    *above, last = path.split(".")
    section = settings
    for part in above:
        section = section.setdefault(part.lower() if part == NAME else part, {})
    section[last] = value
    return settings


@pytest.fixture(scope="module")
def before() -> str:
    return declared(BASE)


@pytest.mark.parametrize(
    ("path", "key"), [pytest.param(*each, id=each[0]) for each in keys(LocalSettings)]
)
def test_a_key_of_one_machine_reaches_a_resource(path: str, key: Key, before: str) -> None:
    assert any(declared(given(path, value)) != before for value in others(key))
