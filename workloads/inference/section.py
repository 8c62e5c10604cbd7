"""One JSON object of `service.json`, read strictly.

Unknown keys, wrong types and impossible values are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from falaj.workloads.bounds import SERVICE, Bound
from falaj.workloads.inference.errors import InferenceError


class Section:
    """One JSON object of the file: takes keys out one by one and refuses what is left."""

    def __init__(self, path: Path, where: str, value: object) -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise self.error("", value, "an object")
        self.values = dict(cast("dict[str, object]", value))

    def error(self, key: str, given: object, allowed: str) -> InferenceError:
        """An error about the value under ``key``."""
        place = ".".join(part for part in (self.where, key) if part) or "the whole file"
        shown = json.dumps(given, ensure_ascii=False)[:80]
        return InferenceError(f"{self.path}: {place}: got {shown}, allowed is {allowed}")

    def take(self, key: str, default: object = None) -> object:
        """Take the value of ``key`` out."""
        if key not in self.values and default is None:
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(f"{self.path}: {place} is missing")
        return self.values.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that isn't empty."""
        value = self.take(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, value, "a text that isn't empty")
        return value

    def file(self, key: str) -> Path:
        """A path."""
        return Path(self.text(key))

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number between two limits."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.pop(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def bounded(self, key: str, default: float, bounds: Mapping[str, Bound] = SERVICE) -> float:
        """A number whose bound `falaj.workloads.bounds` states, by default in `SERVICE`."""
        value, bound = self.take(key, default), bounds[key]
        if not bound.allows(value):
            kind = "a whole number" if bound.whole else "a number"
            raise self.error(key, value, f"{kind} from {bound.description}")
        return cast("float", value)

    def optional_bounded(self, key: str, bounds: Mapping[str, Bound] = SERVICE) -> int | None:
        """As `bounded`, a whole number; None where there is no such key."""
        return int(self.bounded(key, 0, bounds)) if key in self.values else None

    def seconds(self, key: str, low: float, high: float, default: float) -> float:
        """A number of seconds between two limits."""
        value = self.take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, value, "a number of seconds")
        if not low <= value <= high:
            raise self.error(key, value, f"a number of seconds from {low:g} to {high:g}")
        return float(value)

    def section(self, key: str, default: object = None) -> Section:
        """The object under ``key``."""
        where = ".".join(part for part in (self.where, key) if part)
        return Section(self.path, where, self.take(key, default))

    def optional(self, key: str) -> Section | None:
        """The object under ``key``; None where there is no such key, or null."""
        value = self.values.pop(key, None)
        if value is None:
            return None
        return Section(self.path, ".".join(part for part in (self.where, key) if part), value)

    def finish(self, allowed: tuple[str, ...]) -> None:
        """Refuse what is left; ``allowed`` are the keys that may be there."""
        if self.values:
            key = sorted(self.values)[0]
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(
                f"{self.path}: {place} is not a known key; allowed here: {', '.join(allowed)}"
            )
