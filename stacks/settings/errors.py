"""Turns what pydantic found into messages with the key's path, the value and what is allowed."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from falaj.components.nearest import nearest


def describe(error: ValidationError, model: type[BaseModel], namespace: str, stack: str) -> str:
    """One paragraph for each problem, in the order of the file."""
    return "\n".join(
        dict.fromkeys(_one(problem, model, namespace, stack) for problem in error.errors())
    )


def keys(model: type[BaseModel]) -> list[str]:
    """The names that a section accepts, as they are written in the stack file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _one(problem: ErrorDetails, model: type[BaseModel], namespace: str, stack: str) -> str:
    location = _location(problem["loc"], model)
    path = f"{namespace}:{_dotted(location)}"
    given = _shown(problem["input"])
    kind = problem["type"]
    if kind == "extra_forbidden":
        allowed = keys(_section(model, location[:-1]))
        close = nearest(location[-1], allowed)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{path}: unknown key{hint}\n  allowed here: {', '.join(sorted(allowed))}"
    if kind == "missing":
        return f"{path}: missing"
    flag = "--path " if len(location) > 1 else ""
    return (
        f"{path}: given {given}; allowed: "
        f"{_allowed(problem, _section(model, location[:-1]), location[-1])}\n"
        f"  set it with: pulumi config set {flag}{path} VALUE -s {stack}"
    )


def _location(loc: Iterable[int | str], model: type[BaseModel]) -> list[int | str]:
    """Drop the branch names that pydantic adds to paths through optional values."""
    kept: list[int | str] = []
    annotation: Any = model
    for part in loc:
        inner = _inner(annotation, part)
        if inner is not _NOTHING or isinstance(part, int) or not kept or _is_section(annotation):
            kept.append(part)
            annotation = inner
    return kept


#: Stands for "there is nothing below": None is the annotation of an absent value.
_NOTHING: Any = object()


def _is_section(annotation: Any) -> bool:
    return model_of(annotation) is not None


def _inner(annotation: Any, part: int | str) -> Any:
    """The annotation of what lies below ``part``: a key of a section, of a mapping, or an item."""
    section = model_of(annotation)
    if section is not None:
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return _NOTHING
    for choice in _choices(annotation):
        origin, arguments = get_origin(choice), get_args(choice)
        if origin is dict and part != "[key]":
            return arguments[1]
        if origin is list and isinstance(part, int):
            return arguments[0]
    return _NOTHING


def _choices(annotation: Any) -> tuple[Any, ...]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _choices(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(inner for choice in get_args(annotation) for inner in _choices(choice))
    return (annotation,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The section that an annotation stands for, also an optional one; None for a plain value."""
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def _section(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    annotation: Any = model
    found = model
    for part in path:
        annotation = _inner(annotation, part)
        found = model_of(annotation) or found
    return found


def _dotted(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "secure" in cast("dict[str, Any]", value):
        return "an encrypted value"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _allowed(problem: ErrorDetails, section: type[BaseModel], key: int | str) -> str:
    context = problem.get("ctx") or {}
    if "expected" in context:
        return str(context["expected"])
    if "pattern" in context:
        return f"text that matches {context['pattern']}"
    if problem["type"] == "value_error":
        return "a value that is not empty"
    schema = property_schema(section, key)
    return allowed_values(schema) if schema else problem["msg"].lower()


def property_schema(section: type[BaseModel], key: int | str) -> dict[str, Any]:
    """The JSON schema of one key, without the branch that stands for an absent value."""
    schema: dict[str, Any] = section.model_json_schema()["properties"].get(key, {})
    branches = cast("list[dict[str, Any]]", schema.get("anyOf", []))
    return next((branch for branch in branches if branch.get("type") != "null"), schema)


def allowed_values(schema: dict[str, Any]) -> str:
    """What a key accepts, in words: its type and its limits."""
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "text",
        "array": "a list",
    }
    text = words.get(str(schema.get("type")), "a section of keys")
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None:
        word = "above" if "exclusiveMinimum" in schema else "from"
        text += f" {word} {low} {'up to' if word == 'above' else 'to'} {high}"
    if "pattern" in schema:
        text += f" that matches {schema['pattern']}"
    return text
