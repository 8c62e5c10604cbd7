"""What a component's arguments are: read off the TypedDict that states each of them once.

An argument's type, its limit and its default stand in its annotation::

    max_nodes: NotRequired[Annotated[int, Between(1, 450), Default(1)]]

The check of the arguments, the section of a stack file, its schema and reference, the help and the
schema for other languages are made of that.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import annotated_types

from falaj.components.specification.limits import ByCloud, Limit, OneOf, TextRule, plain_number

if TYPE_CHECKING:
    import pulumi

    Input = pulumi.Input
else:
    _T = TypeVar("_T")
    #: The SDK's own, for providers, which do without the SDK.
    Input = _T | Awaitable[_T] | ForwardRef("Output[_T]")

_CLOUDS = {"aws": "AWS", "azure": "Azure"}


@dataclass(frozen=True)
class Default:
    """What an argument is when it is left out, where that is always the same value."""

    value: Any

    @property
    def description(self) -> str:
        """The value as it is written in a stack file."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(value := self.value, list | tuple):
            return ", ".join(map(str, cast("list[Any]", value)))
        if isinstance(self.value, int | float):
            return plain_number(self.value)
        return str(self.value)


@dataclass(frozen=True)
class Usual(Default):
    """What holds of what is left out, as whoever does the work says: nobody fills it in."""


@dataclass(frozen=True)
class Example:
    """A value to begin with, where the limit has none."""

    value: Any


@dataclass(frozen=True)
class Words:
    """Of a list whose texts are a command line's: in order, and one may come twice."""


@dataclass(frozen=True)
class Replaces:
    """That another value makes a new resource in place of the old one."""


@dataclass(frozen=True)
class SameAs:
    """That an argument is one of another class, under the same name or one of its own here.

    Limit, default and meaning stand there; a text below it here says what else holds. A key of a
    stack's settings, whose type says the limit, has the meaning from there, and the default where
    it has none. One that is an option of a section has a name of its own beside it, as in
    ``drift_alpha``.
    """

    arguments: type
    name: str


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a component."""

    name: str
    type: Any
    """Its type without limits, and without what stands for outputs."""
    required: bool
    late: bool
    """Whether it may be an output: known only when the engine runs."""
    limit: Limit | None
    """The rule for the value, or for each of a list's or of those by name."""
    names: TextRule | None
    """The rule for the names, where it holds values by name."""
    length: annotated_types.Len | None
    """How many a list may have, or values by name."""
    default: Default | None
    """None: there is none, or leaving the argument out means more than a value."""
    usual: Default | None
    """The default, or what holds without one because whoever does the work says so."""
    example: Example | None
    replaces: bool = False
    """Whether another value makes a new resource."""
    is_command: bool = False
    """Whether a list's texts are the words of a command line."""
    same_as: SameAs | None = None
    """Where it is stated, if not here."""

    @property
    def allowed(self) -> str:
        """The limits in words: of a list, or values by name, how many and which."""
        limit = "" if self.limit is None else _words(self.limit)
        if get_origin(self.type) not in (list, dict):
            return limit
        count = "" if self.length is None else _count(self.length)
        if count and isinstance(self.limit, OneOf):
            return f"{count} of {limit}"
        return ", ".join(filter(None, (count, limit and f"each {limit}")))

    @property
    def rule(self) -> str:
        """What is allowed and what it is when left out, in sentences; may be empty."""
        sentences: list[str] = []
        if self.limit is not None or self.length is not None:
            sentences.append(f"Allowed: {self.allowed}.")
        if self.usual is not None and self.usual.value not in ([], {}):
            sentences.append(f"Default: {self.usual.description}.")
        return " ".join(sentences)


@cache
def arguments_of(kind: type) -> Mapping[str, Argument]:
    """The arguments of a TypedDict, those that it inherits among them."""
    required = cast("frozenset[str]", getattr(kind, "__required_keys__", frozenset[str]()))
    return {name: _argument(name, hint, name in required) for name, hint in hints(kind).items()}


def needed_of(kind: type) -> tuple[str, ...]:
    """The arguments of a TypedDict that have to be given, by name.

    Its ``__required_keys__`` are all of them where its module's annotations are texts.
    """
    return tuple(sorted(name for name, each in arguments_of(kind).items() if each.required))


def stated_in(kind: type, options: type) -> Mapping[str, str]:
    """The arguments of ``kind`` that ``options`` state, with the names that they have there."""
    found = {name: each.same_as for name, each in arguments_of(kind).items()}
    return {
        name: same.name
        for name, same in found.items()
        if same is not None and same.arguments is options
    }


def stated_beside(same: SameAs) -> tuple[Any, ...]:
    """What stands beside the type of an argument, where it is stated."""
    hint = hints(same.arguments)[same.name]
    while get_origin(hint) in (NotRequired, Required):
        hint = get_args(hint)[0]
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def with_defaults(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The plain arguments of ``kind``: what is given of them, else the default, else None."""
    return {
        name: given[name] if given.get(name) is not None else each.default and each.default.value
        for name, each in arguments_of(kind).items()
        if not each.late
    }


@cache
def hints(kind: type) -> Mapping[str, Any]:
    """The annotations of a TypedDict, also where its module's annotations are texts."""
    found = kind.__annotations__
    if any(isinstance(hint, ForwardRef | str) for hint in found.values()):
        return get_type_hints(kind, include_extras=True)
    return found


def without_limits(hint: Any) -> Any:
    """An annotation as the SDK reads it, which knows no `Annotated`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return without_limits(inner[0])
    if origin in (NotRequired, Required):
        return origin[without_limits(inner[0])]
    if origin in (list, dict):
        return cast("Any", origin)[tuple(without_limits(each) for each in inner)]
    if origin in (Union, UnionType):
        return Union[tuple(without_limits(each) for each in inner)]  # noqa: UP007 - of a list
    return hint


def plain_of(hint: Any) -> Any:
    """A type without what stands for outputs and for leaving it out, where one is left then."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kinds = [each for each in get_args(hint) if each is not NoneType and not is_late(each)]
    return kinds[0] if len(kinds) == 1 else hint


def is_late(hint: Any) -> bool:
    """Whether a type stands for what is known only when the engine runs.

    The SDK's `Input` names its `Output` by a string.
    """
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__.startswith("Output[")
    kind = get_origin(hint) or hint
    # Providers ask, too, who do without the SDK: what isn't loaded is in no hint.
    sdk = sys.modules.get("pulumi")
    return kind is Awaitable or (sdk is not None and kind is sdk.Output)


def _argument(name: str, hint: Any, required: bool) -> Argument:
    marks = list(_marks(hint))

    def of(kind: Callable[..., Any]) -> Any:
        return next((each for each in marks if isinstance(each, cast("type", kind))), None)

    usual: Default | None = of(Default)

    bare = without_limits(hint)
    while get_origin(bare) in (NotRequired, Required):
        required = required and get_origin(bare) is Required
        bare = get_args(bare)[0]
    late = any(is_late(each) for each in get_args(bare))
    return Argument(
        name=name,
        type=bare,
        required=required,
        late=late,
        limit=of(Limit),
        names=_rule_of_names(hint),
        length=of(annotated_types.Len),
        default=None if isinstance(usual, Usual) else usual,
        usual=usual,
        example=of(Example),
        replaces=of(Replaces) is not None,
        is_command=of(Words) is not None,
        same_as=of(SameAs),
    )


def _marks(hint: Any) -> Iterator[Any]:
    """What annotations say beside the type, the outermost first, and of values within it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from inner[1:]
        for each in inner[1:]:
            if isinstance(each, SameAs):
                yield from _marks(hints(each.arguments)[each.name])
        yield from _marks(inner[0])
    elif origin in (NotRequired, Required, list):
        yield from _marks(inner[0])
    elif origin is dict:
        yield from _marks(inner[1])
    elif (plain := plain_of(hint)) is not hint:
        yield from _marks(plain)


def _rule_of_names(hint: Any) -> TextRule | None:
    """What holds of the names of values by name."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (NotRequired, Required, Annotated):
        return _rule_of_names(inner[0])
    marks = _marks(inner[0]) if origin is dict else ()
    return next((each for each in marks if isinstance(each, TextRule)), None)


def _count(length: annotated_types.Len) -> str:
    if length.max_length is None:
        return "at least one" if length.min_length == 1 else f"{length.min_length} or more"
    if not length.min_length:
        return f"up to {length.max_length}"
    return f"{length.min_length} to {length.max_length}"


def _words(limit: Limit) -> str:
    if not isinstance(limit, ByCloud):
        return limit.description
    return ", ".join(f"{value}{_only(limit, value)}" for value in limit.values)


def _only(limit: ByCloud, value: str | int) -> str:
    having = [cloud for cloud, values in limit.by_cloud if value in values]
    return "" if len(having) == len(limit.by_cloud) else f" ({_CLOUDS[having[0]]} only)"
