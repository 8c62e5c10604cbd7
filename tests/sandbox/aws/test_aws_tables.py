"""The model's tables speak of properties that the SDK has."""

from __future__ import annotations

import re

import pytest

from falaj.sandbox import property_types
from falaj.sandbox.clouds.aws.model import kinds
from falaj.sandbox.clouds.aws.relations import quotas
from falaj.sandbox.clouds.aws.sdk import enumerations
from falaj.sandbox.schema import Tables

_MADE_UP = re.compile(r"(hex|letters|digits)\d+|uuid|account|region|partition|suffix|id")


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables("aws")


def missing(tables: Tables, token: str, path: str) -> str | None:
    """Why a path isn't one of the type's inputs; None when it is."""
    found = tables.resource(token)
    assert found is not None, token
    node: property_types.Type | property_types.ObjectType = found.inputs
    for step in path.split("."):
        name = step.removesuffix("[]")
        if not isinstance(node, property_types.ObjectType) or name not in node.properties:
            return f"{token} has no {path}: {name}"
        node = _inside(tables, node.properties[name].type)
        if step.endswith("[]"):
            if not isinstance(node, property_types.ListOf | property_types.MapOf):
                return f"{token}.{path}: {name} is no list"
            node = _inside(tables, node.item)
    return None


def _inside(
    tables: Tables, kind: property_types.Type
) -> property_types.Type | property_types.ObjectType:
    if isinstance(kind, property_types.Reference):
        return tables.objects[kind.name]
    if isinstance(kind, property_types.Either):
        inner = [_inside(tables, member) for member in kind.members]
        return next(
            (m for m in inner if isinstance(m, property_types.ObjectType | property_types.ListOf)),
            inner[0],
        )
    return kind


@pytest.mark.parametrize("token", sorted(kinds()))
def test_paths_of_each_type_exist(tables: Tables, token: str) -> None:
    kind = kinds()[token]
    paths = {*kind.replaces, *kind.unique, *(reference.path for reference in kind.references)}
    if isinstance(kind.id, str):
        paths |= {
            name for name in re.findall(r"\{(\w+)\}", kind.id) if not _MADE_UP.fullmatch(name)
        }
    assert [problem for path in sorted(paths) if (problem := missing(tables, token, path))] == []
    known = tables.resource(token)
    assert known is not None
    assert set(kind.defaults) <= set(known.outputs)


@pytest.mark.parametrize("token", sorted(enumerations()))
def test_paths_of_each_enumeration_exist(tables: Tables, token: str) -> None:
    table = enumerations()[token]
    assert [problem for path in table if (problem := missing(tables, token, path))] == []
    assert all(len(values) == len(set(values)) > 0 for values in table.values())


def test_references_lead_to_described_types() -> None:
    for kind in kinds().values():
        for reference in kind.references:
            assert set(reference.to) <= set(kinds())


def test_quotas_are_of_described_types_and_have_sources() -> None:
    for quota in quotas():
        assert quota.token in kinds()
        assert quota.limit > 0
        assert quota.source
