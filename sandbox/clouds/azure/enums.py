"""Values of a fixed set where the SDK's types take any text: a reviewed table."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import checks, data
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem


def _table() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = data.load("enums")["types"]
    return found


def paths(token: str) -> dict[str, list[str]]:
    """Each path of the type that takes one of a list, with the list."""
    return _table().get(token, {})


def tokens() -> list[str]:
    """The types that the table speaks of."""
    return list(_table())


def check(kind: Kind, ask: Ask) -> Iterator[Problem]:
    """A problem for each value that isn't in its list."""
    for path, allowed in paths(kind.token).items():
        for where in _expand(ask, path):
            yield from checks.one_of(where, ask.text(where), allowed)


def _expand(ask: Ask, path: str) -> Iterator[str]:
    head, marker, rest = path.partition("[*]")
    if not marker:
        yield path
        return
    for where, _ in ask.items(head):
        yield from _expand(ask, where + rest)
