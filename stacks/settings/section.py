"""The base of every group of keys in a stack file."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

DataClass = Literal["public", "internal", "confidential", "restricted"]


class Section(BaseModel):
    """A group of keys: unknown ones are refused, names are written in camelCase."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        # Without this, `epochs: true` would count as 1.
        field = cls.model_fields[info.field_name or ""]
        allowed = (field.annotation, *get_args(field.annotation))
        if isinstance(value, bool) and bool not in allowed:
            raise PydanticCustomError("wrong_type", "another type")
        return value
