"""Settings that must have a certain value: one demand, however many types share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_list,
    is_unknown,
    rule,
    violation,
)


def said(value: object) -> str:
    """A value as a reason quotes it, in small letters; empty for what isn't plain."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value.strip().lower() if isinstance(value, str) else ""


@dataclass(frozen=True)
class Demand:
    """A property and the values that it may have.

    Attributes:
        path: keys with dots.
        allowed: values as the service writes them, ``true`` and ``false`` for booleans; letter
            case doesn't matter.
        default: what the service takes where nothing is given, as a value; empty where absence
            meets the demand.
        source: where the default is documented, a clause for the reason or a URL; may be empty.
        each: path of a list (or map) whose every item must meet it; `path` is inside of an item.
    """

    path: str
    allowed: tuple[str, ...]
    default: str = ""
    source: str = ""
    each: str = ""

    def unmet(self, resource: Resource, *, promised: bool = False) -> Iterator[Finding]:
        """What doesn't meet it, or can't be seen; absence is fine where the service promised."""
        if not self.each:
            yield from self._judge(resource.properties, "", promised)
            return
        for where, item in _entries(resource.get(self.each), self.each):
            if is_unknown(item):
                yield indeterminate(where, f"can't be seen, so nobody knows {self._last}")
            else:
                yield from self._judge(item, where + ".", promised)

    @property
    def _last(self) -> str:
        return self.path.rpartition(".")[2]

    def _judge(self, holder: Any, prefix: str, promised: bool) -> Iterator[Finding]:
        value = get(holder, self.path)
        where = prefix + self.path
        wanted = " or ".join(self.allowed)
        allowed = {each.lower() for each in self.allowed}
        if is_unknown(value):
            yield indeterminate(where, f"{self._last} can't be seen; it must be {wanted}")
        elif value is ABSENT:
            if self.default and self.default.lower() not in allowed and not promised:
                source = f" ({self.source})" if self.source else ""
                yield violation(
                    where,
                    f"{self._last} isn't given, and the default is {self.default}{source}; "
                    f"it must be {wanted}",
                )
        elif said(value) not in allowed:
            given = said(value) or "no plain value"
            yield violation(where, f"{self._last} is {given}; it must be {wanted}")


def _entries(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_unknown(value):
        yield path, value
    elif is_list(value):
        for index, each in enumerate(value):
            yield f"{path}[{index}]", each
    elif isinstance(value, Mapping):
        yield path, value


def unmet(resource: Resource, demands: Sequence[Demand]) -> Iterator[Finding]:
    """What doesn't meet any of the demands."""
    for each in demands:
        yield from each.unmet(resource)


def demanding(  # noqa: PLR0917 - in the order in which a rule is read
    id: str,
    title: str,
    severity: Severity,
    demands: Mapping[frozenset[str], Sequence[Demand]],
    controls: tuple[str, ...],
    remediation: str,
    promised: Callable[[Resource], bool] = lambda _: False,
) -> Rule:
    """A rule of nothing but demands.

    Args:
        id: of the rule; as title, severity, controls and remediation.
        title: as above.
        severity: as above.
        demands: by the types that they are made of.
        controls: as above.
        remediation: as above.
        promised: whether the service itself meets the demands of a resource that says nothing.
    """
    by_kind = {
        kind: tuple(each for kinds, asked in demands.items() if kind in kinds for each in asked)
        for kinds in demands
        for kind in kinds
    }

    @rule(id, title, severity, frozenset(by_kind), controls, remediation)
    def check(resource: Resource, view: View) -> Iterator[Finding]:
        for each in by_kind.get(resource.kind, ()):
            yield from each.unmet(resource, promised=promised(resource))

    return check
