"""Sections of a stack file that are made from a component's arguments, so that both stay one.

A component's arguments are a TypedDict whose docstrings are the reference. The section has the
same keys in camelCase, refuses unknown ones at every depth, and gives the component its spelling.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Collection
from functools import cache
from typing import (
    Annotated,
    Any,
    ForwardRef,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import pulumi
from pydantic import create_model

from falaj.components.kubernetes import InClusterArgs
from falaj.stacks.settings.section import Section


def section_of(
    arguments: type,
    name: str,
    leaving_out: Collection[str] = frozenset(),
    **instead: Any,
) -> type[Section]:
    """The section that has a component's arguments as its keys.

    Args:
        arguments: the TypedDict of the arguments.
        name: the section's name, for messages.
        leaving_out: arguments that the blueprint gives.
        instead: types of arguments that a stack file can say more exactly than the component.
    """
    required = cast("frozenset[str]", getattr(arguments, "__required_keys__", frozenset[str]()))
    fields: dict[str, Any] = {}
    for key, hint in _hints(arguments).items():
        if key in leaving_out:
            continue
        plain = instead.get(key) or _plain(hint)
        needed = key in required and get_origin(hint) is not NotRequired
        fields[key] = (plain, ...) if needed else (plain | None, None)
    made = create_model(name, __base__=Section, __doc__=arguments.__doc__, **fields)
    made.described_by = arguments
    return made


def component_section(arguments: type, name: str, **instead: Any) -> type[Section]:
    """The section of a component in a cluster: its own arguments, not those that all share."""
    shared = {*InClusterArgs.__annotations__, "images"}
    return section_of(arguments, name, shared, **instead)


@cache
def nested_section(arguments: type) -> type[Section]:
    """The section of options within a component's arguments."""
    return section_of(arguments, arguments.__name__)


def _hints(arguments: type) -> dict[str, Any]:
    """The types of a TypedDict's keys, also where its module's annotations are texts."""
    hints = arguments.__annotations__
    if any(isinstance(hint, ForwardRef | str) for hint in hints.values()):
        return get_type_hints(arguments, include_extras=True)
    return hints


def _plain(hint: Any) -> Any:
    """An argument's type as a stack file can hold it: no outputs, sections for TypedDicts."""
    origin, inner = get_origin(hint), get_args(hint)
    found = hint
    if origin in (NotRequired, Required):
        found = _plain(inner[0])
    elif origin is Annotated:
        found = Annotated[(_plain(inner[0]), *inner[1:])]
    elif origin in (Union, types.UnionType):
        kept = tuple(_plain(each) for each in inner if not _is_late(each))
        found = Union[kept]  # noqa: UP007 - made from a list of types
    elif is_typeddict(hint):
        found = nested_section(hint)
    elif origin is list:
        found = list[_plain(inner[0])]
    elif origin is dict:
        found = dict[_plain(inner[0]), _plain(inner[1])]
    return found


def _is_late(hint: Any) -> bool:
    """Whether a type stands for what is known only when the engine runs.

    The SDK's `Input` names its `Output` by a string.
    """
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__.startswith("Output[")
    return (get_origin(hint) or hint) in (pulumi.Output, Awaitable)
