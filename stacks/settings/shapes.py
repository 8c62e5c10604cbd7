"""What a key of the settings takes: read off a model's annotations, said in words.

Messages, the reference, the schema for editors and corrections all go by the same shapes.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from falaj.components.specification.arguments import (
    Argument,
    Default,
    Example,
    Replaces,
    SameAs,
    Words,
    arguments_of,
)
from falaj.components.specification.limits import Between, OneOf, TextRule, plain_number
from falaj.stacks.settings.problems import Path

#: What stands for any name in the path of a key: ``gpuPools.NAME.gpu``.
NAME: Final = "NAME"


@dataclass(frozen=True)
class Text:
    """Text, of a form where there is a rule."""

    rule: TextRule | None = None
    least: int = 0


@dataclass(frozen=True)
class Choice:
    """One of a few texts or numbers."""

    values: tuple[str | int, ...]


@dataclass(frozen=True)
class Number:
    """A number."""

    whole: bool
    range: Between | None = None


@dataclass(frozen=True)
class Flag:
    """True or false."""


@dataclass(frozen=True)
class Items:
    """A list."""

    of: Shape
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class ByName:
    """Values by names that the stack chooses."""

    names: Shape
    of: Shape
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class Keys:
    """A section."""

    model: type[BaseModel]


@dataclass(frozen=True)
class Either:
    """One of several shapes."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class AnyValue:
    """Whatever YAML has."""


Shape: TypeAlias = "Text | Choice | Number | Flag | Items | ByName | Keys | Either | AnyValue"
_PLAIN: Final[dict[Any, Shape]] = {
    str: Text(),
    int: Number(whole=True),
    float: Number(whole=False),
    bool: Flag(),
    Any: AnyValue(),
    object: AnyValue(),
}


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    """As it is written."""
    attribute: str
    """As Python spells it."""
    shape: Shape
    required: bool
    default: Any
    """None where leaving it out means more than a value."""
    example: Any = None
    """A value to begin with, where any of the shape's won't do."""


@cache
def keys_of(model: type[BaseModel]) -> tuple[Key, ...]:
    """The keys of a section, in the order of its fields."""
    stated: dict[str, Argument] = {}
    for each in reversed(model.__mro__):
        arguments = each.__dict__.get("described_by")
        # One that is named by its path states no defaults: it is loaded for descriptions alone.
        if isinstance(arguments, type) and is_typeddict(arguments):
            found = arguments_of(arguments)
            fields: Mapping[str, FieldInfo] = getattr(each, "model_fields", {})
            stated |= {name: found[name] for name in fields if name in found}
        else:
            # What a section says in an argument's place has a default of its own.
            for name in inspect.get_annotations(each):
                stated.pop(name, None)
    return tuple(
        _key(name, field, stated.get(name) or _same(field))
        for name, field in model.model_fields.items()
    )


def key_of_model(model: type[BaseModel], name: str) -> Key | None:
    """The key of that name; None where the section has none."""
    return next((key for key in keys_of(model) if name in (key.name, key.attribute)), None)


def _same(field: FieldInfo) -> Argument | None:
    """The argument that a key says it is."""
    same = next((each for each in field.metadata if isinstance(each, SameAs)), None)
    return arguments_of(same.arguments)[same.name] if same else None


def _key(attribute: str, field: FieldInfo, argument: Argument | None) -> Key:
    required = field.is_required()
    default = None if required else field.get_default(call_default_factory=True)
    shape = _limited(shape_of(field.annotation), field.metadata)
    sample = next(iter(field.examples or ()), None)
    if argument and default is None and argument.usual:
        default = argument.usual.value
    if argument and argument.example:
        sample = argument.example.value
    return Key(field.alias or attribute, attribute, shape, required, default, sample)


def shape_of(annotation: Any) -> Shape:  # noqa: PLR0911 - one for each shape
    """The shape of an annotation; None among the choices of a union means leaving it out."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _limited(shape_of(arguments[0]), arguments[1:])
    if origin is Literal:
        return Choice(arguments)
    if origin in (Union, types.UnionType):
        shapes = tuple(shape_of(each) for each in arguments if each is not type(None))
        return shapes[0] if len(shapes) == 1 else Either(shapes)
    if origin in (list, tuple):
        return Items(shape_of(arguments[0]))
    if origin is dict:
        return ByName(shape_of(arguments[0]), shape_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Keys(annotation)
    if annotation not in _PLAIN:
        raise TypeError(f"no setting can be of the type {annotation!r}")
    return _PLAIN[annotation]


def _limited(shape: Shape, metadata: Sequence[Any]) -> Shape:
    for each in _unpacked(metadata):
        if isinstance(each, FieldInfo):
            shape = _limited(_form(shape, each), each.metadata)
        elif isinstance(each, TextRule):
            shape = Text(each)
        elif isinstance(each, OneOf):
            shape = Choice(each.values)
        elif isinstance(each, Between) and isinstance(shape, Number):
            shape = replace(shape, range=each)
        elif isinstance(each, annotated_types.MinLen):
            if isinstance(shape, Text | Items | ByName):
                shape = replace(shape, least=each.min_length)
        elif isinstance(each, annotated_types.MaxLen):
            if isinstance(shape, Items | ByName):
                shape = replace(shape, most=each.max_length)
        elif isinstance(each, annotated_types.Ge) and isinstance(shape, Number):
            shape = replace(shape, range=Between(cast("float", each.ge), math.inf))
        elif not isinstance(each, Default | Example | Replaces | SameAs | Words) and not hasattr(
            each, "pattern"
        ):
            raise TypeError(f"{each!r} is no limit that settings know")
    return shape


def _unpacked(metadata: Sequence[Any]) -> Iterator[Any]:
    for each in metadata:
        if isinstance(each, annotated_types.GroupedMetadata):
            yield from each
        else:
            yield each


def _form(shape: Shape, field: FieldInfo) -> Shape:
    """The form of a text whose pattern the policies' own settings state."""
    patterns = [each.pattern for each in field.metadata if getattr(each, "pattern", None)]
    if not patterns:
        return shape
    description, examples = field.description, field.examples
    if not description or not examples:
        raise TypeError(f"{patterns[0]} needs a description and an example beside it")
    return Text(TextRule(patterns[0], description, str(examples[0])))


def below(shape: Shape, part: str | int) -> Shape | None:
    """The shape of what lies below a key or position; None where there is nothing."""
    if isinstance(shape, Keys) and isinstance(part, str):
        key = key_of_model(shape.model, part)
        return key.shape if key else None
    if isinstance(shape, ByName) and isinstance(part, str):
        return shape.of
    if isinstance(shape, Items) and isinstance(part, int):
        return shape.of
    if isinstance(shape, Either):
        found = tuple(inner for each in shape.shapes if (inner := below(each, part)) is not None)
        return None if not found else found[0] if len(found) == 1 else Either(found)
    return AnyValue() if isinstance(shape, AnyValue) else None


def at(shape: Shape, path: Path) -> Shape | None:
    """The shape at a path; None where there is nothing."""
    here: Shape | None = shape
    for part in path:
        if here is None:
            return None
        here = below(here, part)
    return here


def section_at(shape: Shape, path: Path) -> type[BaseModel] | None:
    """The section that a path leads to; None where it leads to something else."""
    found = at(shape, path)
    options = found.shapes if isinstance(found, Either) else (found,)
    return next((each.model for each in options if isinstance(each, Keys)), None)


def choices(shape: Shape) -> Iterator[Shape]:
    """A shape itself, or those that it is one of."""
    if isinstance(shape, Either):
        for each in shape.shapes:
            yield from choices(each)
    else:
        yield shape


def takes(shape: Shape, value: Any) -> bool:  # noqa: PLR0911 - one for each shape
    """Whether a value is of a shape, as far as that can be seen without the component."""
    match shape:
        case Text(rule, least):
            return isinstance(value, str) and (rule.allows(value) if rule else len(value) >= least)
        case Choice(values):
            return not isinstance(value, bool) and value in values
        case Number(whole, limits):
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            fits = plain and (not whole or float(value).is_integer())
            return fits and (limits is None or limits.allows(value))
        case Flag():
            return isinstance(value, bool)
        case Items(of, least, most):
            listed = cast("list[Any]", value) if isinstance(value, list) else None
            if listed is None or len(listed) < least or (most is not None and len(listed) > most):
                return False
            return all(takes(of, each) for each in listed)
        case ByName(names, of, least, most):
            if not isinstance(value, dict):
                return False
            entries = cast("dict[Any, Any]", value).items()
            if len(entries) < least or (most is not None and len(entries) > most):
                return False
            return all(takes(names, name) and takes(of, each) for name, each in entries)
        case Keys(model):
            known = {key.name for key in keys_of(model)}
            return isinstance(value, dict) and known.issuperset(cast("dict[Any, Any]", value))
        case Either(shapes):
            return any(takes(each, value) for each in shapes)
        case AnyValue():
            return True


def describe(shape: Shape) -> str:  # noqa: PLR0911 - one for each shape
    """What is allowed, for people."""
    match shape:
        case Text(rule, least):
            return rule.description if rule else "text that is not empty" if least else "text"
        case Choice(values):
            return ", ".join(map(str, values))
        case Number(whole, limits):
            kind = "a whole number" if whole else "a number"
            return f"{kind} {limits.description}" if limits else kind
        case Flag():
            return "true or false"
        case Items(of, least, most):
            return f"a list of {_count(least, most)}{_plural(of)}"
        case ByName(names, of, _, most):
            inner = f"{describe(of)} by name" + (f", at most {most}" if most is not None else "")
            named = (
                f"; a name is {names.rule.rule}" if isinstance(names, Text) and names.rule else ""
            )
            named = f"; names: {describe(names)}" if isinstance(names, Choice) else named
            return f"{inner}{named}"
        case Keys():
            return "a section of keys"
        case Either(shapes):
            return ", or ".join(dict.fromkeys(map(describe, shapes)))
        case AnyValue():
            return "any value"


def _count(least: int, most: int | None) -> str:
    if most is not None:
        return f"{least} to {most} " if least else f"at most {most} "
    return "at least one " if least == 1 else f"at least {least} " if least else ""


def _plural(shape: Shape) -> str:
    match shape:
        case Text(rule, _):
            return f"texts, each {rule.description}" if rule else "texts"
        case Choice():
            return f"any of {describe(shape)}"
        case Number(_, limits):
            return f"numbers {limits.description}" if limits else "numbers"
        case Keys():
            return "sections of keys"
        case _:
            return f"values, each {describe(shape)}"


def example(shape: Shape, name: str = "") -> Any:  # noqa: PLR0911 - one for each shape
    """A value that is allowed; of a plain text, the key's name."""
    match shape:
        case Text(rule, _):
            return rule.example if rule else name or "text"
        case Choice(values):
            return values[0]
        case Number(whole, limits):
            low = limits.low if limits else 1
            low = low if not (limits and limits.above) else min(1, limits.high)
            return int(low) if whole or float(low).is_integer() else low
        case Flag():
            return False
        case Items(of, least, _):
            return [example(of, name)] if least else []
        case ByName(names, of, least, _):
            return {example(names, "main"): example(of, name)} if least else {}
        case Keys(model):
            needed = (key for key in keys_of(model) if key.required)
            return {key.name: key.example or example(key.shape, key.name) for key in needed}
        case Either(shapes):
            return example(shapes[0], name)
        case AnyValue():
            return name


def shown_default(value: Any) -> str:
    """A default as it is written; empty where leaving a key out says more than a value."""
    if value is None or value in ([], (), {}) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return plain_number(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast("list[Any]", value)))
    return str(value)
