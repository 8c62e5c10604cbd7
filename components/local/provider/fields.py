"""Tables of inputs: what a resource takes, checked in one place with one kind of message."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, is_typeddict

from falaj.components.local.arguments import PATH
from falaj.components.local.machine import InvalidInput, InvalidInputsError
from falaj.components.nearest import nearest
from falaj.components.specification.arguments import Argument, arguments_of, plain_of
from falaj.components.specification.given_values import without_user
from falaj.components.specification.limits import Limit, OneOf, TextRule
from falaj.components.specification.property_names import camel
from falaj.wire.values import UNKNOWN, Unknown, Value, Values, has_unknown

FieldType = Literal[
    "text", "path", "whole", "number", "flag", "texts", "wholes", "lists", "maps", "plain"
]

KIND_NAMES: Mapping[FieldType, str] = {
    "text": "a text",
    "path": "an absolute path",
    "whole": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts",
    "wholes": "a list of whole numbers",
    "lists": "a map from names to lists of texts",
    "maps": "a map from names to maps",
    "plain": "a map from names to numbers, texts, true or false, or lists of these",
}


@dataclass(frozen=True)
class Field:
    """One input of a resource.

    Attributes:
        kind: its type.
        required: whether it must be given.
        default: what stands in when it isn't given; None leaves it out.
        limit: what a value, or each of a list's, may be.
        replaces: whether a change makes a new resource instead of updating the old one.
        inner: what each value of a map of maps holds.
    """

    kind: FieldType
    required: bool = False
    default: Value = None
    limit: Limit | None = None
    replaces: bool = False
    inner: Mapping[str, Field] | None = None


Table = Mapping[str, Field]

_KINDS: Mapping[Any, FieldType] = {
    str: "text",
    int: "whole",
    float: "number",
    bool: "flag",
    list[str]: "texts",
    list[int]: "wholes",
    dict[str, list[str]]: "lists",
    Mapping[str, Any]: "plain",
}


def table_of(arguments: type, filled: Iterable[str] = ()) -> Table:
    """The inputs of a resource, by the engine's names.

    Args:
        arguments: the TypedDict that states what its component takes.
        filled: inputs that the check fills in, texts of which a change makes a new resource.
    """
    table = {camel(name): _field(each) for name, each in arguments_of(arguments).items()}
    return table | dict.fromkeys(filled, Field("text", replaces=True))


def _field(argument: Argument) -> Field:
    hint, inner = plain_of(argument.type), None
    if get_origin(hint) is dict and is_typeddict(options := get_args(hint)[1]):
        kind, inner = "maps", table_of(options)
    else:
        kind = "path" if argument.limit is PATH else _KINDS[hint]
    default = argument.default.value if argument.default else None
    return Field(kind, argument.required, default, argument.limit, argument.replaces, inner)


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
        if reason is None and field.inner is not None and isinstance(value, Mapping):
            checked[key], wrong = _check_each(key, field.inner, value)
            errors += wrong
        elif reason is None:
            checked[key] = value
        else:
            errors.append(InvalidInput(key, f"given {_show(value)}; allowed: {reason}"))
    if errors:
        raise InvalidInputsError(errors)
    return checked


def _check_each(
    key: str, inner: Table, given: Mapping[str, Value]
) -> tuple[Values, list[InvalidInput]]:
    """Each map of a map of maps, checked as the inputs are; and what is wrong with them."""
    checked: Values = {}
    errors: list[InvalidInput] = []
    for name, value in given.items():
        if not isinstance(value, Mapping):
            checked[name] = value  # not known yet
            continue
        try:
            checked[name] = check(inner, value)
        except InvalidInputsError as error:
            errors += [
                InvalidInput(key, f"{name}.{each.property}: {each.reason}")
                for each in error.errors
            ]
    return checked, errors


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
    if kind == "maps":
        return isinstance(value, Mapping) and all(isinstance(v, Mapping) for v in value.values())
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
    if isinstance(item, str) and field.kind == "path":
        return Path(item).is_absolute()
    if isinstance(item, int | float) and not math.isfinite(item):
        return False
    is_plain = isinstance(item, str | int | float) and not isinstance(item, bool)
    return field.limit is None or not is_plain or field.limit.allows(item)


def _allowed(field: Field) -> str:
    kind, limit = KIND_NAMES[field.kind], field.limit
    match limit:
        case OneOf():
            return (
                f"{kind} out of {limit.description}"
                if field.kind == "lists"
                else limit.description
            )
        case TextRule():
            return kind if field.kind == "path" else f"{kind} of {limit.rule}"
        case None:
            return kind
        case _:
            return f"{kind} {limit.description}"


def _show(value: Value) -> str:
    text = without_user(repr(value))
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
