"""The base of every group of keys in a stack file."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from falaj.stacks.settings.given import Given

_TRUTHS = {"true": True, "false": False}


def _kinds(annotation: Any) -> set[Any]:
    """A type, those that it is one of, and what they are without their limits."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    return {annotation, *(kind for each in get_args(annotation) for kind in _kinds(each))}


class Section(BaseModel):
    """A group of keys: unknown ones are refused, names are written in camelCase."""

    model_config = ConfigDict(
        defer_build=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
    )
    described_by: ClassVar[type | str | None] = None
    """What describes fields without a text of their own: a component's arguments, or a model; by
    its path where it is not to be loaded with the settings."""
    _given: Given = PrivateAttr(default_factory=lambda: Given({}))

    @classmethod
    def unset(cls) -> Self:
        """What holds where a stack doesn't have this section: its fields' defaults.

        A model that is made as others are builds its checks, at the import of what it stands in;
        a program needs those of its own kind alone.
        """
        return cls.model_construct()

    @property
    def provenance(self) -> Given:
        """Where the stack says all this; of the outermost section alone."""
        return self._given

    def read_from(self, given: Given) -> None:
        """Remember where the stack says all this, for messages of later checks."""
        self._given = given

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Take true and false for truth values alone, and nothing else for them.

        Without this, `epochs: true` would count as 1, and `retain: on` as true, which the engine
        and editors read as text.
        """
        field = cls.model_fields[info.field_name or ""]
        allowed = _kinds(field.annotation)
        if isinstance(value, bool) and not {bool, Any} & set(allowed):
            raise PydanticCustomError("wrong_type", "another type")
        if bool in allowed and isinstance(value, str | int) and not isinstance(value, bool):
            if str not in allowed and value not in _TRUTHS:
                raise PydanticCustomError("wrong_type", "another type")
            return _TRUTHS.get(value, value) if isinstance(value, str) else value
        return value
