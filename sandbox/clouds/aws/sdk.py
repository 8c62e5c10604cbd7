"""What the installed SDK says of a type: its properties, and the values of its lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from falaj.sandbox import property_types
from falaj.sandbox.clouds.aws.kinds import load_table
from falaj.sandbox.clouds.kinds import Rule, one_of
from falaj.sandbox.schema import Tables

_EMPTY: Final[Mapping[property_types.Type, Any]] = {
    property_types.STRING: "",
    property_types.BOOLEAN: False,
    property_types.INTEGER: 0,
    property_types.NUMBER: 0.0,
}


@dataclass(frozen=True)
class Shape:
    """The properties of one resource type, by the engine's names."""

    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]
    unset: Mapping[str, Any]
    """What optional inputs with a plain value are in the outputs when nothing says otherwise."""

    @property
    def regional(self) -> bool:
        """Whether the type takes a region of its own."""
        return "region" in self.inputs

    @property
    def taggable(self) -> bool:
        """Whether the provider adds its default tags to the type."""
        return "tags" in self.inputs and "tagsAll" in self.outputs


@cache
def shape(token: str) -> Shape | None:
    """The type's shape; None for a token that the SDK doesn't have."""
    found = _tables().resource(token)
    if found is None:
        return None
    inputs = found.inputs.properties
    return Shape(
        inputs=frozenset(inputs),
        required=frozenset(name for name, known in inputs.items() if known.required),
        outputs=frozenset(found.outputs) | frozenset(inputs),
        unset={
            name: _EMPTY[known.type]
            for name, known in found.outputs.items()
            if known.required and name in inputs and known.type in _EMPTY
        },
    )


@cache
def _tables() -> Tables:
    return Tables("aws")


def enumerations() -> dict[str, dict[str, list[str | int]]]:
    """For each type, the values of each path."""
    return load_table("enumerations")["types"]


@cache
def enumeration_rules(token: str) -> tuple[Rule, ...]:
    """The rules that the table gives for a type."""
    return tuple(one_of(path, values) for path, values in enumerations().get(token, {}).items())
