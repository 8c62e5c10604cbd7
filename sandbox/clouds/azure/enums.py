"""Values of a fixed set where the SDK's types take any text: a reviewed table."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import checks, data
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs
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


def check(kind: AzureKind, inputs: Inputs) -> Iterator[Problem]:
    """A problem for each value that isn't in its list."""
    for path, allowed in paths(kind.token).items():
        for where in _expand(inputs, path):
            yield from checks.one_of(where, inputs.optional_string(where), allowed)


def _expand(inputs: Inputs, path: str) -> Iterator[str]:
    head, marker, rest = path.partition("[*]")
    if not marker:
        yield path
        return
    for where, _ in inputs.items(head):
        yield from _expand(inputs, where + rest)
