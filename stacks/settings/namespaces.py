"""Whose keys a stack file may hold, and the mistakes in what stands before the colon."""

from __future__ import annotations

import dataclasses
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


def as_meant(given: Given) -> Given:
    """What a stack says, with the keys whose namespace was meant to be ours among ours.

    What is told of them is `foreign`'s; this keeps them from being told as missing as well.
    """
    values, homes = dict(given.values), dict(given.homes)
    for key in given.values:
        namespace, _, name = key.partition(":")
        meant = f"{NAMESPACE}:{name}"
        if namespace in NAMESPACES or closest(namespace, NAMESPACES) != NAMESPACE:
            continue
        if meant in values:
            continue
        values[meant] = values.pop(key)
        if key in homes:
            homes[meant] = homes.pop(key)
    return dataclasses.replace(given, values=values, homes=homes)


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
