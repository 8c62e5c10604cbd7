"""Whose keys a stack file may hold, and the mistakes in what stands before the colon."""

from __future__ import annotations

from typing import Final

from falaj.stacks.settings.given import Given
from falaj.stacks.settings.problems import NAMESPACE, Problem
from falaj.stacks.settings.splices import difference, rename
from falaj.stacks.settings.suggestions import closest

#: Ours, the engine's, and those of the clouds' providers.
NAMESPACES: Final = (NAMESPACE, "pulumi", "aws", "azure-native", "kubernetes")


def foreign(given: Given) -> list[Problem]:
    """Keys such as ``falja:dataset``."""
    return [
        _problem(key, given) for key in given.values if key.partition(":")[0] not in NAMESPACES
    ]


def _problem(key: str, given: Given) -> Problem:
    namespace, _, name = key.partition(":")
    near = closest(namespace, NAMESPACES)
    hint = f"; did you mean {near}:{name}?" if near else ""
    said = f"{key}: unknown namespace '{namespace}'; allowed: {', '.join(NAMESPACES)}{hint}"
    home = given.homes.get(key)
    if home is None:
        return Problem(said)
    edit = None
    if near:
        after = rename(home.document, home.key, f"{near}:{name}")
        edit = difference(home.document.text, after)
    return Problem(said, home.document, home.offset, edit)
