"""How a cloud's model describes one type of resource: its rules, references and outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from falaj.components.nearest import nearest
from falaj.sandbox.clouds.inputs import Condition, Inputs, Resource, as_list, joined
from falaj.sandbox.clouds.model import Problem, World

Rule: TypeAlias = Callable[[Inputs], Iterable[Problem]]
"""What is wrong with the inputs by themselves."""

Crosscheck: TypeAlias = Callable[[Resource], Iterable[Problem]]
"""What is wrong given all that exists."""

Computed: TypeAlias = Callable[[Resource], Mapping[str, Any]]
"""Outputs beyond those that every resource of the cloud has."""

Answers: TypeAlias = Mapping[str, Callable[[Inputs, World], Mapping[str, Any]]]
"""What answers each query, by its token.

An answer raises `LookupError` when what is asked for doesn't exist.
"""


@dataclass(frozen=True)
class Reference:
    """An input that names another resource."""

    path: str
    to: tuple[str, ...] = ()
    """The types that may be meant, by the names that the cloud's ids and tokens have."""
    by: tuple[str, ...] = ("id",)
    """Which of the other's outputs the input holds: ``id``, ``arn``, ``name`` …"""
    holds: bool = True
    """Whether the other can't be deleted as long as this resource refers to it."""
    lets_go: tuple[str, ...] = ()
    """Types of ``to`` that can be deleted nevertheless: what is referred to isn't theirs alone."""
    regional: bool = True
    """Whether the other must be in the same region."""


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """One type of resource. Each cloud adds how its ids and names are made."""

    replaces: Iterable[str] = ()
    """Properties a change of which replaces the resource."""
    rules: tuple[Rule, ...] = ()
    creation_rules: tuple[Rule, ...] = ()
    """What can be asked of a resource that exists, and not while it is made."""
    references: tuple[Reference, ...] = ()
    crosschecks: tuple[Crosscheck, ...] = ()
    delete_blockers: tuple[Crosscheck, ...] = ()
    """What keeps the resource from being deleted, beside those that refer to it."""
    is_always_there: bool = False
    """Whether it is a setting of the account, as ECR's registry policy or Defender's plans: the
    service's call sets it, whoever did before. Several stacks can have it, and the last one's
    values hold; here it stays until no stack has it any more."""
    computed: Computed | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Outputs that hold unless an input says otherwise: what the service sets by itself."""


# Rules: what a value at a path has to be. Each skips unknown and absent values.
#
# Wrong types are the sandbox's own business (it knows the SDK's types), so a rule looks only at
# values of the type that it is about.


def one_of(path: str, values: Sequence[str | int]) -> Rule:
    """The value must be among those listed."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str | int):
                yield from listed(where, value, values)

    return rule


def listed(where: str, value: str | int, values: Sequence[str | int]) -> Iterator[Problem]:
    """A problem when the value isn't among those listed."""
    if not _among(value, values):
        allowed = ", ".join(str(item) for item in values)
        yield Problem(where, f"{value!r} isn't allowed; allowed: {allowed}{_near(value, values)}")


def matches(path: str, pattern: str, form: str) -> Rule:
    """The text must match the whole pattern; `form` says in words what is allowed."""
    compiled = re.compile(pattern)

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str) and compiled.fullmatch(value) is None:
                yield Problem(where, f"{_short(value)} isn't allowed; allowed: {form}")

    return rule


def formed(path: str, pattern: str | re.Pattern[str], message: str) -> Rule:
    """The text must match the whole pattern; `message` says what one that doesn't isn't."""
    compiled = re.compile(pattern)

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str) and value and compiled.fullmatch(value) is None:
                yield Problem(where, f"{value!r} {message}")

    return rule


def forbids(path: str, pattern: str, reason: str) -> Rule:
    """The text must not contain the pattern."""
    compiled = re.compile(pattern)

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str) and compiled.search(value) is not None:
                yield Problem(where, f"{_short(value)} isn't allowed: {reason}")

    return rule


def between(path: str, least: float, most: float, unit: str = "") -> Rule:
    """The number must lie between the two, both included."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            number = _number(value)
            if number is not None and not least <= number <= most:
                yield Problem(
                    where,
                    f"{value} isn't allowed; allowed: {_plain(least)} to {_plain(most)}"
                    + (f" {unit}" if unit else ""),
                )

    return rule


def sized(path: str, least: int, most: int, what: str = "items") -> Rule:
    """The list or text must have that many items or characters."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            size = len(value) if isinstance(value, str) else len(as_list(value))
            if (isinstance(value, str) or as_list(value)) and not least <= size <= most:
                yield Problem(where, f"has {size} {what}; allowed: {least} to {most}")

    return rule


def exactly_one(*paths: str) -> Rule:
    """One of the inputs must be given, and only one."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        given = [path for path in paths if inputs.is_given(path)]
        if len(given) != 1:
            listed = " and ".join(given) if given else "none of them"
            yield Problem(
                given[1] if given else paths[0],
                f"exactly one of {', '.join(paths)} must be given; given: {listed}",
            )

    return rule


def not_together(*paths: str) -> Rule:
    """At most one of the inputs may be given."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        given = [path for path in paths if inputs.is_given(path)]
        if len(given) > 1:
            yield Problem(
                given[1],
                f"conflicts with {given[0]}: at most one of {', '.join(paths)} is allowed",
            )

    return rule


def needs(path: str, *others: str) -> Rule:
    """When an input is given, so must be the others."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        if inputs.is_given(path):
            for other in others:
                if not inputs.is_given(other):
                    yield Problem(path, f"needs {other}, which isn't given; give it as well")

    return rule


def when(condition: Condition, *rules: Rule) -> Rule:
    """The rules hold only where the condition does."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        if condition(inputs):
            for inner in rules:
                yield from inner(inputs)

    return rule


def equals(path: str, *values: object) -> Condition:
    """The condition that the known value at a path is one of those."""
    return lambda inputs: inputs.get(path) in values


def minor_version(path: str, oldest: int, newest: int, who: str) -> Rule:
    """A version of Kubernetes, with or without its patch, is one that a service offers now."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        found = re.match(r"1\.(\d{1,2})(?:\.|$)", inputs.string(path))
        if found and not oldest <= int(found[1]) <= newest:
            yield Problem(
                path,
                f"1.{found[1]} isn't offered by {who}; allowed: 1.{oldest} to 1.{newest}",
            )

    return rule


def at_most(low: str, high: str) -> Rule:
    """One number must not exceed the other."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        least, most = _number(inputs.get(low)), _number(inputs.get(high))
        if least is not None and most is not None and least > most:
            yield Problem(
                low, f"{_plain(least)} is more than {high}, which is {_plain(most)}; lower it"
            )

    return rule


def required(path: str, reason: str) -> Rule:
    """There must be a value; `reason` says what for."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where in inputs.expand(path):
            if inputs.is_absent(where):
                yield Problem(where, f"is missing: {reason}")

    return rule


def refused(path: str, reason: str, condition: Condition) -> Rule:
    """What the condition describes isn't taken; the problem is told at the path."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        if condition(inputs):
            yield Problem(path, reason)

    return rule


def distinct(path: str, reason: str) -> Rule:
    """No two of the texts may be the same."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        seen: set[str] = set()
        for where, value in inputs.each(path):
            if isinstance(value, str) and value in seen:
                yield Problem(where, f"{value!r} is used twice; {reason}")
            seen.add(str(value))

    return rule


def texts(path: str, check: Callable[[str, str], Iterator[Problem]]) -> Rule:
    """Each text at the path must pass a check of its path and value."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str) and value:
                yield from check(where, value)

    return rule


def for_each(path: str, *rules: Rule) -> Rule:
    """The rules hold of every object at the path, by the paths inside it."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for part in inputs.parts(path):
            for inner in rules:
                for problem in inner(part):
                    yield Problem(joined(part.place, problem.path), problem.reason)

    return rule


def given(path: str) -> Condition:
    """The condition that something stands at a path, be it unknown."""
    return lambda inputs: inputs.is_given(path)


def absent(*paths: str) -> Condition:
    """The condition that nothing stands at any of the paths."""
    return lambda inputs: all(inputs.is_absent(path) for path in paths)


def is_on(path: str) -> Condition:
    """The condition that the switch at a path is on."""
    return lambda inputs: inputs.flag(path) is True


def is_off(path: str) -> Condition:
    """The condition that the switch at a path is surely off, or isn't mentioned."""
    return lambda inputs: inputs.at(path) in (None, False)


def all_of(*conditions: Condition) -> Condition:
    """The condition that each of the others holds."""
    return lambda inputs: all(condition(inputs) for condition in conditions)


def any_of(*conditions: Condition) -> Condition:
    """The condition that one of the others holds."""
    return lambda inputs: any(condition(inputs) for condition in conditions)


def other_than(path: str, *values: object) -> Condition:
    """The condition that the value at a path is known, and none of those."""
    return lambda inputs: inputs.get(path) not in (None, "", *values)


def longer_than(path: str, most: int) -> Condition:
    """The condition that a list has more items than that."""
    return lambda inputs: len(inputs.items(path)) > most


def _among(value: str | int, values: Sequence[str | int]) -> bool:
    return value in values or (not isinstance(value, str) and str(value) in values)


def _near(value: str | int, values: Sequence[str | int]) -> str:
    near = nearest(value, map(str, values))
    return f"; did you mean {near[0]!r}?" if near else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _short(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:77] + "...")
