"""What is different between the objects of two platforms, short enough to be reviewed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from falaj.components.kubernetes._objects import Manifest, key_of
from tests.components.kubernetes.cluster_parts import difference, shown

_WORDS = re.compile(r"\s+|[\w.-]+|\"[^\"]*\"|.")
#: Messages are made of what the expressions say.
_SAID_TWICE = ("message", "messageExpression")


def by_object(one: Sequence[Manifest], other: Sequence[Manifest]) -> str:
    """Objects that only one side has, by name (``-``, ``+``); the lines of those that differ."""
    before, after = ({key_of(each): each for each in side} for side in (one, other))
    lines = [f"- {key}\n" for key in before if key not in after]
    lines += [f"+ {key}\n" for key in after if key not in before]
    for key in before.keys() & after.keys():
        if changed := difference(shown([before[key]]), shown([after[key]])):
            lines.append(f"~ {key}\n{changed}")
    return "".join(sorted(lines, key=lambda text: text[2:]))


def by_word(one: Sequence[Manifest], other: Sequence[Manifest]) -> str:
    """What differs within long texts, as ``[before → after]``; alike differences are told once.

    Expressions of admission policies fill pages; what one platform says otherwise is a few words.
    """
    told: dict[str, list[str]] = {}
    after = {key_of(each): each for each in other}
    assert [key_of(each) for each in one] == list(after)
    for each in one:
        ours, theirs = dict(_texts(each)), dict(_texts(after[key_of(each)]))
        words = dict.fromkeys(
            word
            for path in [*ours, *(path for path in theirs if path not in ours)]
            for word in _changed(ours.get(path, ""), theirs.get(path, ""))
        )
        if words:
            told.setdefault("".join(f"  {word}\n" for word in words), []).append(key_of(each))
    return "".join(f"{', '.join(keys)}\n{words}" for words, keys in told.items())


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _SAID_TWICE:
                yield from _texts(each, f"{path}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{path}[{number}]")
    else:
        yield path, str(value)


def _changed(before: str, after: str) -> Iterator[str]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    for way, *(a, b, c, d) in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if way != "equal":
            yield f"[{''.join(old[a:b])} → {''.join(new[c:d])}]"
