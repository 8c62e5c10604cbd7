"""Types and paths in tables of rules exist in the installed SDK: a misspelt one sees nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from falaj.policies.rules.residency import (
    ai,
    copies,
    databases,
    endpoints,
    images,
    networks,
    sharing,
    streams,
)
from falaj.sandbox import property_types
from falaj.sandbox.schema import Tables
from tests.each import for_each

MODULES = (ai, copies, databases, endpoints, images, networks, sharing, streams)
#: What earlier versions of the SDK had, and states still have; and spellings within documents.
FORMER = {
    ("aws:redshift/cluster:Cluster", "snapshotCopy.destinationRegion"),
    ("aws:docdb/cluster:Cluster", "replicationSourceIdentifier"),
    ("aws:ssm/document:Document", "permissions.account_ids"),
    ("aws:ssm/document:Document", "permissions.accountIds"),
}


def tables() -> Iterator[tuple[str, str]]:
    """Types with the paths that a module's tables name for them."""
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, dict):
                for token, paths in value.items():
                    if isinstance(token, str) and token.startswith("aws:"):
                        named = [paths] if isinstance(paths, str) else list(paths)
                        for path in named:
                            if isinstance(path, str) and path and " " not in path:
                                yield token, path


@cache
def sdk() -> Tables:
    return Tables("aws")


def below(kind: Any, key: str) -> Any:
    """The type of a key below a type; None where there is no such key."""
    if isinstance(kind, property_types.ListOf | property_types.MapOf):
        return below(kind.item, key)
    if isinstance(kind, property_types.Either):
        return next((found for each in kind.members if (found := below(each, key))), None)
    if isinstance(kind, property_types.Reference):
        found = sdk().objects[kind.name].properties.get(key)
        return found.type if found else None
    return None


#: Tables whose values are reasons or names, by their first word.
PATHS = sorted({each for each in tables() if each[1][0].islower()} - FORMER)


def test_paths_of_tables_exist() -> None:
    for_each(PATHS, exists)


def exists(named: tuple[str, str]) -> None:
    token, path = named
    resource = sdk().resource(token)
    assert resource is not None, token
    first, *rest = path.split(".")
    assert first in resource.inputs.properties or first in resource.outputs, path
    here: Any = resource.inputs.properties[first].type
    for key in rest:
        here = below(here, key)
        assert here is not None, f"{path}: no {key}"


def test_the_tables_are_seen() -> None:
    assert len(PATHS) > 80
