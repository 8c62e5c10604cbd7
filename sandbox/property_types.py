"""The types of properties, as the sandbox has them: what `schema` keeps and `hints` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    """``string``, ``integer``, ``number``, ``boolean``, ``asset``, ``archive`` or ``any``."""

    kind: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a list of values; others are let through where the list is `open`."""

    name: str
    values: tuple[str | int | float | bool, ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one type."""

    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """Any keys, values of one type."""

    item: Type


@dataclass(frozen=True, slots=True)
class Reference:
    """An object type, by its name in the table of object types."""

    name: str


@dataclass(frozen=True, slots=True)
class Either:
    """A value of any of several types."""

    members: tuple[Type, ...]


Type: TypeAlias = "Scalar | Choice | ListOf | MapOf | Reference | Either"

ANY: Final = Scalar("any")
STRING: Final = Scalar("string")
INTEGER: Final = Scalar("integer")
NUMBER: Final = Scalar("number")
BOOLEAN: Final = Scalar("boolean")
ASSET: Final = Scalar("asset")
ARCHIVE: Final = Scalar("archive")


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its type, whether it must be given, and its name in Python."""

    type: Type
    required: bool
    python_name: str


@dataclass(frozen=True, slots=True)
class ObjectType:
    """The properties of an object, by the engine's names."""

    name: str
    properties: Mapping[str, Property]
    open: bool = False
    """Whether other properties are taken as well."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """What a resource takes and gives."""

    token: str
    inputs: ObjectType
    outputs: Mapping[str, Property] = field(default_factory=dict[str, Property])
    """For an output, `required` says that it always has a value."""
