"""Settings on which it depends whether traffic is encrypted: one entry of a table for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    get,
    indeterminate,
    is_list,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.keys import where


def word(value: Any) -> str:
    """A value in lower case; empty for what is no plain value."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return text(value).lower()


@dataclass(frozen=True)
class Switch:
    """A setting of a type, with what it may be.

    Attributes:
        type: in its one spelling.
        path: of the setting, in each of its `parts`, else in the properties. A list there is
            judged item by item.
        good: values in lower case that it must have one of; empty where only `bad` counts.
        bad: values in lower case that it mustn't have.
        default: what holds where it isn't given; empty where that is fine.
        parts: path of the blocks that each have the setting; absent blocks have none.
        only: a path and the values, in lower case, of which it must have one for this to count.
    """

    type: str
    path: str
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    default: str = ""
    parts: str = ""
    only: tuple[str, tuple[str, ...]] = ("", ())

    @property
    def _name(self) -> str:
        return self.path.rpartition(".")[2]

    def findings(self, resource: Resource, means: str) -> Iterator[Finding]:
        """What is wrong with it; `means` says what a wrong value comes to, as a clause."""
        if not self.parts:
            yield from self._judge(resource.properties, "", means)
            return
        for path, block in select(resource.properties, self.parts):
            if isinstance(block, Unknown):
                yield indeterminate(path, f"{path} {block.reason}")
            else:
                yield from self._judge(block, path, means)

    def _judge(self, block: Any, at: str, means: str) -> Iterator[Finding]:
        if self.only[0]:
            kind = get(block, self.only[0])
            if not isinstance(kind, Unknown) and word(kind) not in self.only[1]:
                return
        value, path = get(block, self.path), where(block, self.path, at)
        if value is ABSENT:
            if self.default:
                why = f"{self._name} isn't given, and the default is {self.default}, so {means}"
                yield violation(path, why)
            return
        for index, each in enumerate(value) if is_list(value) else ((None, value),):
            here = path if index is None else f"{at}{'.' if at else ''}{self.path}[{index}]"
            if isinstance(each, Unknown):
                yield indeterminate(here, f"{self._name} {each.reason}")
            elif word(each) in self.bad or (self.good and word(each) not in self.good):
                said = word(each) or "no plain value"
                yield violation(here, f"{self._name} is {said}, so {means}")
