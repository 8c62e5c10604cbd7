"""``falaj settings``: every key of a stack file, what is allowed and the default."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from stacks.command.console import say, table
from stacks.settings import NAMESPACE, LocalSettings
from stacks.settings_errors import allowed_values, model_of, property_schema


def settings() -> int:
    """Print the reference; returns the exit status."""
    rows = [("key", "default", "allowed"), *_rows(LocalSettings, f"{NAMESPACE}:")]
    say(table(rows))
    return 0


def _rows(section: type[BaseModel], prefix: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        inner = model_of(field.annotation)
        if inner is not None:
            rows += _rows(inner, f"{prefix}{key}.")
        else:
            default = "" if field.is_required() else _shown(field.default)
            rows.append((prefix + key, default, allowed_values(property_schema(section, key))))
    return rows


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
