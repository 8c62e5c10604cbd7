"""One question to the model, with access to its values that never fails.

Inputs come from people: a property may be missing, unknown as yet, or of another type than the
service takes. The sandbox's type check speaks of types; here such a value reads as ``None``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from falaj.sandbox.clouds.azure import places
from falaj.sandbox.clouds.model import Problem, Properties, World
from falaj.wire import Unknown

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Ask:
    """What is asked of a resource: its inputs, the provider's settings and what exists."""

    token: str
    inputs: Properties
    config: Properties
    world: World | None = None
    id: str | None = None
    """The resource's own id, where it is known."""

    def at(self, path: str) -> Any:
        """The value at a path such as ``rules[0].name``; None when there is none."""
        value: Any = self.inputs
        for key, index in _STEP.findall(path):
            if isinstance(value, Unknown):
                return value
            if key:
                value = value.get(key) if isinstance(value, Mapping) else None
            elif is_list(value) and int(index) < len(value):
                value = value[int(index)]
            else:
                value = None
        return value

    def text(self, path: str) -> str | None:
        """The text at a path; None when it is missing, unknown, empty or no text."""
        value = self.at(path)
        return value if isinstance(value, str) and value else None

    def number(self, path: str) -> float | None:
        """The number at a path; None when it is missing, unknown or no number."""
        value = self.at(path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value

    def flag(self, path: str) -> bool | None:
        """The boolean at a path; None when it is missing, unknown or no boolean."""
        value = self.at(path)
        return value if isinstance(value, bool) else None

    def items(self, path: str) -> list[tuple[str, Any]]:
        """The path and value of each item of a list; empty when there is no list."""
        value = self.at(path)
        if not is_list(value):
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]

    def texts(self, path: str) -> list[tuple[str, str]]:
        """The path and value of each text in a list, or of the one text there."""
        value = self.at(path)
        if isinstance(value, str):
            return [(path, value)]
        return [(where, item) for where, item in self.items(path) if isinstance(item, str)]

    def names(self, path: str) -> list[str]:
        """The texts of a list, or the keys of a mapping: the SDK writes identities either way."""
        return self.keys(path) or [text for _, text in self.texts(path)]

    def mapping(self, path: str) -> dict[str, Any]:
        """The mapping at a path; empty when there is none."""
        value = self.at(path)
        return dict(value) if isinstance(value, Mapping) else {}

    def known(self, path: str, default: Any) -> Any:
        """The value at a path where there is one that is known, else the default."""
        value = self.at(path)
        return default if value is None or isinstance(value, Unknown) else value

    def keys(self, path: str) -> list[str]:
        """The keys of a mapping; empty when there is no mapping."""
        value = self.at(path)
        return [str(key) for key in value] if isinstance(value, Mapping) else []

    def is_given(self, path: str) -> bool:
        """Whether there is surely a value, known or not; below an unknown one nothing is sure."""
        head, _, last = path.rpartition(".")
        above = self.at(head) if last and head else None
        return self.at(path) is not None and not isinstance(above, Unknown)

    def is_absent(self, path: str) -> bool:
        """Whether there is surely no value."""
        return self.at(path) is None

    @property
    def region(self) -> str | None:
        """The normalised region of the resource; None when it isn't known."""
        given = self.at("location")
        if given is None:
            given = self.config.get("location")
        return places.normalise(given) if isinstance(given, str) and given else None


Check: TypeAlias = Callable[[Ask], Iterator[Problem]]
Compute: TypeAlias = Callable[[Ask], Mapping[str, Any]]


def is_list(value: object) -> bool:
    """Whether a value is a list of the engine's."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def none(ask: Ask) -> Iterator[Problem]:
    """A check that finds nothing."""
    del ask
    yield from ()


def nothing(ask: Ask) -> Mapping[str, Any]:
    """No outputs beyond those of every resource."""
    del ask
    return {}
