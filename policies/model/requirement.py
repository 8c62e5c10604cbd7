"""Rules as rows: a property, the values that it may have, and what holds where it isn't given.

One row and one evaluator serve every rule that asks no more of a type than its own properties,
and the rules that a team writes in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model.resource import Resource
from falaj.policies.model.rule import (
    Check,
    Context,
    Finding,
    Rule,
    Severity,
    indeterminate,
    rule,
    violation,
)
from falaj.policies.model.values import (
    ABSENT,
    Unknown,
    format_value,
    get,
    number,
    scalar,
    select,
)

Requirements = Mapping[frozenset[str], Sequence["Requirement"]]
"""Requirements by the types that they are made of, which may overlap."""


@dataclass(frozen=True)
class Requirement:
    """What one property of a resource has to be.

    Values are compared as texts in lower case: ``true`` and ``false`` for booleans. Without
    `allowed`, `denied` and limits any value will do, and only its absence can be wrong.

    Attributes:
        path: keys with dots, through all lists on the way; every value there is judged.
        allowed: values as the service writes them; none where anything but `denied` is allowed.
        default: what the service takes where nothing is given, as a value; empty where absence
            is fine.
        source: where the default is documented, a clause for the reason or a URL.
        denied: values that it mustn't have.
        minimum: the least number that it may be.
        maximum: the greatest number that it may be.
        each: path of the blocks that each have the property; absent blocks have none.
        only: a path and the values, in lower case, of which it must have one for this to count.
        absent: a clause that says what comes of absence, where no value can say it.
        hint: what is wanted, as a clause; written from `allowed` where it isn't given.
    """

    path: str
    allowed: tuple[str, ...] = ()
    default: str = ""
    source: str = ""
    denied: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    each: str = ""
    only: tuple[str, tuple[str, ...]] = ("", ())
    absent: str = ""
    hint: str = ""

    def findings(
        self,
        properties: Mapping[str, Any],
        *,
        at: str = "",
        consequence: str = "",
        absence_is_fine: bool = False,
    ) -> Iterator[Finding]:
        """What doesn't meet it, or can't be seen.

        Args:
            properties: of the resource, or a block of them.
            at: the block's own path.
            consequence: a clause that says what a wrong value comes to, in place of the hint.
            absence_is_fine: the service promises a good value where nothing is given.
        """
        ending = f", so {consequence}" if consequence else f"; {self.hint or self._wanted}"
        if not self.each:
            yield from self._judge(properties, at, ending, absence_is_fine)
            return
        for path, block in select(properties, self.each):
            where = _joined(at, path)
            if isinstance(block, Unknown):
                yield indeterminate(where, f"{self._name} {block.reason}{ending}")
            else:
                yield from self._judge(block, where, ending, absence_is_fine)

    @property
    def _name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def _wanted(self) -> str:
        if self.allowed:
            return f"it must be {' or '.join(self.allowed)}"
        if self.denied:
            return f"it mustn't be {' or '.join(self.denied)}"
        limits = (("at least", self.minimum), ("at most", self.maximum))
        parts = [f"{relation} {limit:g}" for relation, limit in limits if limit is not None]
        return f"it must be {' and '.join(parts) or 'given'}"

    def _judge(self, block: Any, at: str, ending: str, absence_is_fine: bool) -> Iterator[Finding]:
        path, wanted = self.only
        if path:
            condition = get(block, path)
            if not isinstance(condition, Unknown) and scalar(condition) not in wanted:
                return
        found = list(select(block, self.path, absent=True))
        if not found and self.allowed and get(block, self.path) is not ABSENT:
            yield violation(_joined(at, self.path), f"{self._name} is an empty list{ending}")
            return
        for path, value in found or [(self.path, ABSENT)]:
            where = _joined(at, path)
            if isinstance(value, Unknown):
                yield indeterminate(where, f"{self._name} {value.reason}{ending}")
            elif value is not ABSENT:
                if not self.is_met_by(value):
                    yield violation(where, f"{self._name} is {format_value(value)}{ending}")
            elif not absence_is_fine:
                if self.absent:
                    yield violation(where, f"{self.absent}{ending}")
                elif self.default and not self.is_met_by(self.default):
                    source = f" ({self.source})" if self.source else ""
                    why = f"{self._name} isn't given, and the default is {self.default}{source}"
                    yield violation(where, why + ending)

    def is_met_by(self, value: object) -> bool:
        """Whether a value that is given and can be seen is a good one."""
        given = scalar(value)
        if self.minimum is not None or self.maximum is not None:
            size = number(value)
            if size is None or (self.minimum is not None and size < self.minimum):
                return False
            if self.maximum is not None and size > self.maximum:
                return False
        if given in {each.lower() for each in self.denied}:
            return False
        return not self.allowed or given in {each.lower() for each in self.allowed}


def _joined(at: str, path: str) -> str:
    return f"{at}.{path}" if at and path else at or path


def unmet(
    resource: Resource, requirements: Iterable[Requirement], consequence: str = ""
) -> Iterator[Finding]:
    """What doesn't meet any of the requirements."""
    for each in requirements:
        yield from each.findings(resource.properties, consequence=consequence)


def _never(_: Resource) -> bool:
    return False


def by_type(table: Requirements) -> dict[str, tuple[Requirement, ...]]:
    """The requirements of each type, in the table's order."""
    found: dict[str, tuple[Requirement, ...]] = {}
    for kinds, asked in table.items():
        for kind in kinds:
            found[kind] = (*found.get(kind, ()), *asked)
    return found


def check_of(
    table: Requirements,
    *,
    consequence: str = "",
    absence_is_fine: Callable[[Resource], bool] = _never,
) -> Check:
    """A rule's check that asks nothing but what a table says; see `requirement_rule`."""
    asked: Final = by_type(table)

    def check(resource: Resource, context: Context) -> Iterator[Finding]:
        fine = absence_is_fine(resource)
        for each in asked.get(resource.kind, ()):
            yield from each.findings(
                resource.properties, consequence=consequence, absence_is_fine=fine
            )

    return check


def requirement_rule(  # noqa: PLR0917 - in the order in which a rule is read
    id: str,
    title: str,
    severity: Severity,
    table: Requirements,
    controls: tuple[str, ...],
    remediation: str,
    *,
    consequence: str = "",
    absence_is_fine: Callable[[Resource], bool] = _never,
) -> Rule:
    """A rule of nothing but requirements.

    Args:
        id: of the rule; as title, severity, controls and remediation.
        title: as above.
        severity: as above.
        table: what is asked of which types.
        controls: as above.
        remediation: as above.
        consequence: a clause that says what a wrong value comes to, in place of the rows' hints.
        absence_is_fine: whether the service itself promises a good value for a resource that
            says nothing.
    """
    check = check_of(table, consequence=consequence, absence_is_fine=absence_is_fine)
    types = frozenset(kind for kinds in table for kind in kinds)
    return rule(id, title, severity, types, controls, remediation)(check)
