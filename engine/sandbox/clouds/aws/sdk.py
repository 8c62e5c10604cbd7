"""What the installed SDK says of a type: its inputs and outputs by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from engine.sandbox.schema.tables import Tables


@dataclass(frozen=True)
class Shape:
    """The properties of one resource type, by the engine's names."""

    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]

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
    )


@cache
def _tables() -> Tables:
    return Tables("aws")
