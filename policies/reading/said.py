"""Values in reasons: short, and never more than a person reads."""

from __future__ import annotations

from collections.abc import Mapping

from falaj.policies.model import is_list, is_unknown, text

_LONGEST = 100


def said(value: object) -> str:
    """A value as a reason names it. Not for what may be secret."""
    if is_unknown(value):
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        given = " ".join(text(value).split()) or "empty"
        return given if len(given) <= _LONGEST else given[: _LONGEST - 1] + "…"
    if isinstance(value, Mapping) or is_list(value):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    return str(value)[:_LONGEST]
