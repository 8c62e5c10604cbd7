"""Sections of a stack file that are made from a component's arguments, so that both stay one.

A component's arguments are a TypedDict whose docstrings are the reference. The section has the
same keys in camelCase, refuses unknown ones at every depth, and gives the component its spelling.
"""

from __future__ import annotations

import types
from collections.abc import Collection
from functools import cache
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

from pydantic import BaseModel, create_model

from falaj.components.specification.arguments import arguments_of, hints, is_late
from falaj.components.specification.placed import PlacedArgs
from falaj.stacks.settings.section import Section

_Arguments = TypeVar("_Arguments")


def section_of(
    arguments: type,
    name: str,
    leaving_out: Collection[str] = frozenset(),
    optional: Collection[str] = frozenset(),
    **instead: Any,
) -> type[Section]:
    """The section that has a component's arguments as its keys.

    Args:
        arguments: the TypedDict of the arguments.
        name: the section's name, for messages.
        leaving_out: arguments that the blueprint gives.
        optional: needed arguments that it knows where the stack leaves them out.
        instead: types of arguments that a stack file can say more exactly than the component.
    """
    stated = arguments_of(arguments)
    fields: dict[str, Any] = {}
    for key, hint in hints(arguments).items():
        if key in leaving_out:
            continue
        plain = instead.get(key) or _plain(hint)
        required = stated[key].required and key not in optional
        fields[key] = (plain, ...) if required else (plain | None, None)
    made = create_model(name, __base__=Section, __doc__=arguments.__doc__, **fields)
    made.described_by = arguments
    return made


def cloud_section(
    arguments: type,
    leaving_out: Collection[str] = (),
    taking: Collection[str] = (),
    optional: Collection[str] = (),
) -> type[Section]:
    """The section of a component in a cloud: its own plain arguments, not what all share.

    Args:
        arguments: the TypedDict of the arguments.
        leaving_out: plain arguments that the blueprint gives.
        taking: arguments that may be outputs, which the stack gives all the same.
        optional: needed arguments that the blueprint knows where the stack leaves them out.
    """
    late = {name for name, each in arguments_of(arguments).items() if each.late}
    given = {*PlacedArgs.__annotations__, *late, *leaving_out} - set(taking)
    return section_of(arguments, arguments.__name__, given, optional)


def component_section(arguments: type, name: str, **instead: Any) -> type[Section]:
    """The section of a component in a cluster: its own arguments, not those that all share."""
    from falaj.components.kubernetes import InClusterArgs  # noqa: PLC0415 - of such stacks alone

    shared = {*InClusterArgs.__annotations__, "images", "allowed_domains"}
    return section_of(arguments, name, shared, **instead)


def arguments(section: BaseModel, kind: type[_Arguments]) -> _Arguments:
    """What a stack says in a section, as the component of ``kind`` takes it."""
    del kind  # for the type checker alone
    return cast("_Arguments", section.model_dump(exclude_none=True))


@cache
def nested_section(arguments: type) -> type[Section]:
    """The section of options within a component's arguments."""
    return section_of(arguments, arguments.__name__)


def _plain(hint: Any) -> Any:
    """An argument's type as a stack file can hold it: no outputs, sections for TypedDicts."""
    origin, inner = get_origin(hint), get_args(hint)
    found = hint
    if origin in (NotRequired, Required):
        found = _plain(inner[0])
    elif origin is Annotated:
        found = Annotated[(_plain(inner[0]), *inner[1:])]
    elif origin in (Union, types.UnionType):
        kept = tuple(_plain(each) for each in inner if not is_late(each))
        found = Union[kept]  # noqa: UP007 - made from a list of types
    elif is_typeddict(hint):
        found = nested_section(hint)
    elif origin is list:
        found = list[_plain(inner[0])]
    elif origin is dict:
        found = dict[_plain(inner[0]), _plain(inner[1])]
    return found
