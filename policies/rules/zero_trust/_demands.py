"""What is demanded of one setting, and how to ask it of a resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    View,
    indeterminate,
    is_false,
    is_list,
    is_true,
    is_unknown,
    number,
    select,
    text,
    violation,
)


def aws(*names: str) -> frozenset[str]:
    """Tokens of AWS types from ``ec2/securityGroup``."""
    return frozenset(map(token, names))


def token(name: str) -> str:
    """The token of an AWS type from ``ec2/securityGroup``."""
    last = name.rpartition("/")[2]
    return f"aws:{name}:{last[0].upper()}{last[1:]}"


@dataclass(frozen=True)
class Setting:
    """A setting that has to have a good value."""

    path: str
    is_good: Callable[[Any], bool]
    wanted: str
    """What is allowed, as the end of a sentence: ``it has to be private``."""
    absent: str = ""
    """What the service does without it, as a clause; empty where that is fine."""


def ask(properties: Mapping[str, Any], setting: Setting, base: str = "") -> Iterator[Finding]:
    """What is wrong with one setting of a resource, in every place where it stands.

    Args:
        properties: of the resource, or a part of them.
        setting: what is demanded.
        base: the part's own path, with a dot at its end.
    """
    found = list(select(properties, setting.path, absent=True))
    for path, value in found or [(setting.path, ABSENT)]:
        at = base + path
        if is_unknown(value):
            yield indeterminate(at, f"its value can't be known yet; {setting.wanted}")
        elif value is ABSENT:
            if setting.absent:
                yield violation(at, f"{setting.absent}; {setting.wanted}")
        elif not setting.is_good(value):
            yield violation(at, f"it is {told(value)}; {setting.wanted}")


def check_of(settings: Mapping[str, Sequence[Setting]]) -> Callable[[Resource, View], Any]:
    """A rule's check over a table of settings by type."""

    def check(resource: Resource, view: View) -> Iterator[Finding]:
        for setting in settings.get(resource.kind, ()):
            yield from ask(resource.properties, setting)

    return check


def told(value: object) -> str:
    """A value in a sentence; only what can't be a secret is repeated."""
    if is_list(value):
        return "a list without what is wanted" if value else "an empty list"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    said = text(value)
    return repr(said) if 0 < len(said) <= 40 else "something else"


def true(value: object) -> bool:
    """A demand for true."""
    return is_true(value)


def false(value: object) -> bool:
    """A demand for false."""
    return is_false(value)


def not_true(value: object) -> bool:
    """A demand for anything but true."""
    return not is_true(value) and number(value) != 1


def one_of(*allowed: str) -> Callable[[object], bool]:
    """A demand for one of some words, in any letter case."""
    lower = {each.lower() for each in allowed}
    return lambda value: text(value).lower() in lower


def none_of(*refused: str) -> Callable[[object], bool]:
    """A demand for anything but some words, in any letter case."""
    lower = {each.lower() for each in refused}
    return lambda value: text(value).lower() not in lower


def given(value: object) -> bool:
    """A demand for anything at all."""
    return not is_list(value) or bool(value)
