"""``falaj settings``: every key of a stack file, what is allowed and the default."""

from __future__ import annotations

from typing import Any

import click
from pydantic import BaseModel

from falaj.stacks.command.console import say, table
from falaj.stacks.settings import NAMESPACE
from falaj.stacks.settings.errors import (
    allowed_values,
    model_of,
    property_schema,
    section_of_mapping,
)
from falaj.stacks.settings.load import sections


@click.command()
def settings() -> int:
    """Describe the keys of a stack's file: what is allowed, and the defaults."""
    for name, section in sections().items():
        say(f"{name}:")
        say(table([("key", "default", "allowed"), *_rows(section, f"{NAMESPACE}:")]))
        say()
    return 0


def _rows(section: type[BaseModel], prefix: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        inner, entry = model_of(field.annotation), section_of_mapping(field.annotation)
        if inner is not None:
            rows += _rows(inner, f"{prefix}{key}.")
        elif entry is not None:
            rows += _rows(entry, f"{prefix}{key}.NAME.")
        else:
            default = (
                "" if field.is_required() else _shown(field.get_default(call_default_factory=True))
            )
            rows.append((prefix + key, default, allowed_values(property_schema(section, key))))
    return rows


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
