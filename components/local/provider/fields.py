"""Tables of inputs: what a resource takes, checked in one place with one kind of message."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from falaj.components.local.machine import InvalidInput, InvalidInputsError
from falaj.components.nearest import nearest
from falaj.components.specification.limits import plain_number
from falaj.components.specification.workload_bounds import bound, choice
from falaj.wire.values import UNKNOWN, Unknown, Value, Values, has_unknown

FieldType = Literal["text", "path", "whole", "number", "flag", "texts", "wholes", "lists", "plain"]

KIND_NAMES: Mapping[FieldType, str] = {
    "text": "a text",
    "path": "an absolute path",
    "whole": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts",
    "wholes": "a list of whole numbers",
    "lists": "a map from names to lists of texts",
    "plain": "a map from names to numbers, texts, true or false, or lists of these",
}


@dataclass(frozen=True)
class Field:
    """One input of a resource.

    Attributes:
        kind: its type.
        summary: one sentence for the schema.
        required: whether it must be given.
        default: what stands in when it isn't given; None leaves it out.
        minimum, maximum: limits (inclusive) of a number, or of each number of a list.
        choices: the allowed texts; empty allows every text.
        pattern: what a text, or each text of a list, must match as a whole.
        pattern_hint: the pattern in words.
        replaces: whether a change makes a new resource instead of updating the old one.
    """

    kind: FieldType
    summary: str
    required: bool = False
    default: Value = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    pattern_hint: str = ""
    replaces: bool = False


Table = Mapping[str, Field]


def bounded(
    workload: str,
    option: str,
    summary: str,
    *,
    default: Value = None,
    replaces: bool = False,
    whole: bool | None = None,
) -> Field:
    """A number that may be what the workload says of its option.

    Args:
        workload: as `falaj.components.specification.workload_bounds.bound` takes it.
        option: likewise.
        summary: one sentence for the schema.
        default: what stands in when it isn't given; None: what the workload says, which may leave
            it out.
        replaces: whether a change makes a new resource.
        whole: whether it has to be a whole number. Default: as the workload says.
    """
    found = bound(workload, option)
    usual: Value = found.default if default is None else default
    kind: FieldType = "whole" if (found.whole if whole is None else whole) else "number"
    return Field(
        kind, summary, default=usual, minimum=found.low, maximum=found.high, replaces=replaces
    )


def chosen(workload: str, option: str, summary: str, *, replaces: bool = False) -> Field:
    """A text that is one of the words, by default the default, that the workload says.

    Args:
        workload: as `bounded` takes it.
        option: likewise.
        summary: one sentence for the schema.
        replaces: whether a change makes a new resource.
    """
    found = choice(workload, option)
    return Field("text", summary, default=found.default, choices=found.words, replaces=replaces)


def check(table: Table, given: Mapping[str, Value]) -> Values:
    """The inputs with defaults filled in and None left out.

    Raises:
        InvalidInputsError: a key is unknown or missing, or a value is of the wrong
            type or out of range.
    """
    errors = [
        InvalidInput(key, _unknown_key(key, table)) for key in sorted(given) if key not in table
    ]
    checked: Values = {}
    for key, field in table.items():
        value = given.get(key)
        if value is None:
            value = field.default
        if value is None:
            if field.required:
                errors.append(InvalidInput(key, f"missing; give {KIND_NAMES[field.kind]}"))
            continue
        reason = _refuse(field, value)
        if reason is None:
            checked[key] = value
        else:
            errors.append(InvalidInput(key, f"given {_show(value)}; allowed: {reason}"))
    if errors:
        raise InvalidInputsError(errors)
    return checked


def _unknown_key(key: str, table: Table) -> str:
    close = nearest(key, table)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown input {key!r}; {hint}allowed: {', '.join(sorted(table))}"


def _refuse(field: Field, value: Value) -> str | None:
    """What is allowed, when the value isn't; None when it is."""
    if has_unknown(value) and (isinstance(value, Unknown) or not _is_kind(field.kind, value)):
        return None
    if not _is_kind(field.kind, value):
        return _allowed(field)
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if isinstance(value, Mapping):
        items = [item for texts in value.values() if isinstance(texts, Sequence) for item in texts]
    return _allowed(field) if any(not _fits(field, item) for item in items) else None


_SIMPLE: Mapping[FieldType, tuple[type, ...]] = {
    "text": (str,),
    "path": (str,),
    "flag": (bool,),
    "whole": (int,),
    "number": (int, float),
}


def _is_kind(kind: FieldType, value: Value) -> bool:
    if kind in _SIMPLE:
        # For Python true is a whole number; for a person it isn't.
        return isinstance(value, _SIMPLE[kind]) and (kind == "flag") == isinstance(value, bool)
    if kind == "plain":
        return isinstance(value, Mapping) and all(map(_is_plain, value.values()))
    if kind == "lists":
        return isinstance(value, Mapping) and all(_is_kind("texts", v) for v in value.values())
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    inner: FieldType = "text" if kind == "texts" else "whole"
    return all(isinstance(item, Unknown) or _is_kind(inner, item) for item in value)


def _is_plain(value: Value) -> bool:
    """Whether a value is a number, a text or a truth value, known or not, or a list of these."""
    items = value if isinstance(value, list) else [value]
    return all(isinstance(each, str | int | float | Unknown) for each in items)


def _fits(field: Field, item: Value) -> bool:
    if isinstance(item, str):
        if field.kind == "path" and not Path(item).is_absolute():
            return False
        if field.choices and item not in field.choices:
            return False
        return not field.pattern or re.fullmatch(field.pattern, item) is not None
    if isinstance(item, int | float):
        if not math.isfinite(item):
            return False
        low = field.minimum is None or item >= field.minimum
        return low and (field.maximum is None or item <= field.maximum)
    return True


def _allowed(field: Field) -> str:
    if field.choices:
        choices = ", ".join(field.choices)
        return f"{KIND_NAMES[field.kind]} out of {choices}" if field.kind == "lists" else choices
    text = KIND_NAMES[field.kind]
    if field.pattern_hint:
        text += f" of {field.pattern_hint}"
    low = None if field.minimum is None else plain_number(field.minimum)
    high = None if field.maximum is None else plain_number(field.maximum)
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    if low is not None:
        return f"{text} of at least {low}"
    return text if high is None else f"{text} of at most {high}"


def _show(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def text(values: Mapping[str, Value], key: str) -> str:
    """A text that `check` has let through (or that the state holds)."""
    value = values.get(key)
    if not isinstance(value, str):
        raise KeyError(f"{key} is not a text but {type(value).__name__}")
    return value


def whole(values: Mapping[str, Value], key: str) -> int:
    """A whole number that `check` has let through (or that the state holds)."""
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise KeyError(f"{key} is not a number but {type(value).__name__}")
    return int(value)


def number(values: Mapping[str, Value], key: str) -> float:
    """A number that `check` has let through (or that the state holds)."""
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise KeyError(f"{key} is not a number but {type(value).__name__}")
    return float(value)


def flag(values: Mapping[str, Value], key: str) -> bool:
    """A truth value; what isn't there is false."""
    return values.get(key) is True


def texts(values: Mapping[str, Value], key: str) -> list[str]:
    """A list of texts; what isn't there is empty."""
    value = values.get(key)
    if value is None or isinstance(value, str) or not isinstance(value, Sequence):
        return []
    return [item for item in cast("Sequence[Value]", value) if isinstance(item, str)]


def optional(values: Mapping[str, Value], key: str) -> str | int | float | None:
    """A text or number that may be left out."""
    value = values.get(key)
    return value if isinstance(value, str | int | float) else None


def known(values: Mapping[str, Value], *keys: str) -> bool:
    """Whether all of these values are known and there."""
    return all(values.get(key, UNKNOWN) is not UNKNOWN for key in keys)


# Inputs that several resource types share.

SITE = Field("path", "Folder of the stack's site (Workspace.path).", required=True, replaces=True)

#: A DNS label (RFC 1123): it ends up in folder names, URLs and certificate names.
NAME_PATTERN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME_HINT = "up to 63 lower-case letters, digits and inner hyphens"

RETAIN = Field(
    "flag",
    "Keep it when it is replaced or destroyed; a later one with the same content adopts it.",
    default=False,
)

KEYRING = Field("path", "Folder of the key ring (KeyRing.path); without it nothing is sealed.")
