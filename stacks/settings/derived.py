"""Sections of a stack file that are made from a component's arguments, so that both stay one.

A component's arguments are a TypedDict whose docstrings are the reference. The section has the
same keys in camelCase, refuses unknown ones at every depth, and gives the component its spelling.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Collection
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
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

from falaj.components.local.arguments import PATH, KeptArgs, SupervisedArgs
from falaj.components.specification.arguments import (
    Argument,
    SameAs,
    arguments_of,
    hints,
    is_late,
    stated_beside,
    stated_in,
)
from falaj.components.specification.placed import PlacedArgs
from falaj.stacks.settings.section import Section

_Arguments = TypeVar("_Arguments")


def section_of(
    arguments: type,
    name: str,
    leaving_out: Collection[str] = frozenset(),
    optional: Collection[str] = frozenset(),
    *,
    with_defaults: bool = False,
    **instead: Any,
) -> type[Section]:
    """The section that has a component's arguments as its keys.

    Args:
        arguments: the TypedDict of the arguments.
        name: the section's name, for messages.
        leaving_out: arguments that the blueprint gives.
        optional: needed arguments that it knows where the stack leaves them out.
        with_defaults: whether keys that are left out have the arguments' defaults here already,
            which checks of the stack then see.
        instead: types of arguments that a stack file can say more exactly than the component.
    """
    stated = arguments_of(arguments)
    fields: dict[str, Any] = {}
    for key, hint in hints(arguments).items():
        if key in leaving_out:
            continue
        plain = instead.get(key) or _plain(hint)
        default = stated[key].default if with_defaults else None
        if stated[key].required and key not in optional:
            fields[key] = (plain, ...)
        else:
            fields[key] = (plain | None, None) if default is None else (plain, default.value)
    made = create_model(
        name,
        __base__=StatedSection if with_defaults else Section,
        __doc__=arguments.__doc__,
        **fields,
    )
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


class StatedSection(Section):
    """A section whose keys a component's arguments state."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def local_section(
    arguments: type,
    leaving_out: Collection[str] = (),
    taking: Collection[str] = (),
    **instead: Any,
) -> type[StatedSection]:
    """The section of a component on this machine: its arguments, with their defaults.

    Args:
        arguments: the TypedDict of the arguments.
        leaving_out: arguments that the blueprint gives, beside absolute paths, options that have a
            section of their own, and what the stack says of all its components.
        taking: the arguments that a stack has alone. Default: all others.
        instead: types of arguments that a stack file can say more exactly than the component.
    """
    stated = arguments_of(arguments)
    shared = {*KeptArgs.__annotations__, *SupervisedArgs.__annotations__}
    given = {
        name
        for name, each in stated.items()
        if name in shared or each.limit is PATH or _is_option(each)
    }
    left = set(stated) - set(taking) if taking else given | set(leaving_out)
    made = section_of(arguments, arguments.__name__, left, with_defaults=True, **instead)
    return cast("type[StatedSection]", made)


def _is_option(argument: Argument) -> bool:
    """Whether a section of options has it, under a shorter name than the component's own."""
    return argument.same_as is not None and argument.same_as.name != argument.name


def arguments(section: BaseModel, kind: type[_Arguments]) -> _Arguments:
    """What a stack says in a section of the arguments of ``kind``, as the component takes it."""
    given = section.model_dump(exclude_none=True)
    return cast("_Arguments", {name: given[name] for name in hints(kind) if name in given})


def flattened(section: BaseModel | None, kind: type[_Arguments]) -> _Arguments:
    """What a stack says in a section of options, as arguments of ``kind``, which are flat.

    Args:
        section: the section, made of the class of options that ``kind`` names. None: nothing.
        kind: a TypedDict with arguments that are `SameAs` the options.
    """
    given = {} if section is None else section.model_dump(exclude_none=True)
    found = {
        name: given[option]
        for each in type(section).__mro__
        if isinstance(options := each.__dict__.get("described_by"), type)
        for name, option in stated_in(kind, options).items()
        if option in given
    }
    return cast("_Arguments", found)


@cache
def nested_section(arguments: type) -> type[Section]:
    """The section of options within a component's arguments."""
    return section_of(arguments, arguments.__name__)


def _plain(hint: Any) -> Any:
    """An argument's type as a stack file can hold it: no outputs, sections for TypedDicts.

    That nothing may be given for it, too, its key says.
    """
    origin, inner = get_origin(hint), get_args(hint)
    found = hint
    if origin in (NotRequired, Required):
        found = _plain(inner[0])
    elif origin is Annotated:
        same = (stated_beside(each) for each in inner[1:] if isinstance(each, SameAs))
        found = Annotated[(_plain(inner[0]), *inner[1:], *itertools.chain.from_iterable(same))]
    elif origin in (Union, types.UnionType):
        kept = tuple(_plain(each) for each in inner if each is not NoneType and not is_late(each))
        found = Union[kept]  # noqa: UP007 - made from a list of types
    elif is_typeddict(hint):
        found = nested_section(hint)
    elif origin is list:
        found = list[_plain(inner[0])]
    elif origin is dict:
        found = dict[_plain(inner[0]), _plain(inner[1])]
    return found
