"""Reads the types of resources from an SDK's classes: what their annotations say.

Apart from `schema`, which keeps what was read: this loads the Pulumi SDK, and that the classes.
"""

from __future__ import annotations

import enum
import inspect
import sys
import typing
from collections import abc
from collections.abc import Callable
from types import UnionType
from typing import Any, Final

import pulumi
from pulumi import _types as sdk  # pyright: ignore[reportPrivateUsage]

from falaj.sandbox.property_types import (
    ANY,
    ARCHIVE,
    ASSET,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    Choice,
    Either,
    ListOf,
    MapOf,
    ObjectType,
    Property,
    Reference,
    Type,
)

_SCALARS: Final[dict[Any, Type]] = {
    str: STRING,
    int: INTEGER,
    float: NUMBER,
    bool: BOOLEAN,
    Any: ANY,
    dict: MapOf(ANY),
    list: ListOf(ANY),
    object: ANY,
}


class HintReader:
    """Reads classes of one SDK; `objects` collects the object types met on the way.

    Args:
        is_open: whether values outside an enum's list are taken, by the enum's name.
    """

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self.objects: dict[str, ObjectType] = {}
        self._is_open = is_open
        self._waiting: list[type] = []

    def input_object(self, cls: type) -> ObjectType:
        """The properties of an input class; the object types that they need are read as well."""
        found = self._object(cls)
        while self._waiting:
            waiting = self._waiting.pop()
            if _full_name(waiting) not in self.objects:
                self._object(waiting)
        return found

    def outputs(self, resource: type) -> dict[str, Property]:
        """The output properties of a resource's class, without the types of nested objects."""
        names = sdk.resource_pulumi_to_py_names(resource)
        hints = hints_of(resource)
        found: dict[str, Property] = {}
        for name, python_name in names.items():
            if name == "urn":
                continue
            hint = hints.get(name)
            found[name] = Property(shape(hint), not _is_optional(hint), python_name)
        return found

    def _object(self, cls: type) -> ObjectType:
        name = _full_name(cls)
        # Before its properties are read: a type may hold itself.
        properties: dict[str, Property] = {}
        found = self.objects[name] = ObjectType(name, properties)
        hints = hints_of(cls)
        python_names = sdk.input_type_py_to_pulumi_names(cls)
        parameters = inspect.signature(cls.__init__).parameters
        for python_name, wire_name in python_names.items():
            parameter = parameters.get(python_name)
            required = parameter is not None and parameter.default is inspect.Parameter.empty
            read = self._type(hints.get(wire_name, Any))
            properties[wire_name] = Property(read, required, python_name)
        return found

    def _type(self, hint: Any) -> Type:  # noqa: PLR0911 - one for each kind of annotation
        try:
            if hint in _SCALARS:
                return _SCALARS[hint]
        except TypeError:  # not hashable: nothing that we know
            return ANY
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is typing.Union or origin is UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return Choice("", arguments)
        if origin in (list, abc.Sequence):
            return ListOf(self._type(arguments[0]) if arguments else ANY)
        if origin in (dict, abc.Mapping):
            return MapOf(self._type(arguments[1]) if len(arguments) > 1 else ANY)
        if inspect.isclass(hint):
            return self._class(hint)
        return ANY

    def _class(self, cls: type) -> Type:
        if sdk.is_input_type(cls):
            if _full_name(cls) not in self.objects:
                self._waiting.append(cls)
            return Reference(_full_name(cls))
        if issubclass(cls, enum.Enum):
            values = tuple(member.value for member in cls)
            return Choice(cls.__name__, values, self._is_open(_full_name(cls)))
        if issubclass(cls, pulumi.Asset):
            return ASSET
        if issubclass(cls, pulumi.Archive):
            return ARCHIVE
        if issubclass(cls, pulumi.Resource):
            return STRING  # a reference to a resource reaches a provider as its id
        return ANY

    def _union(self, arguments: tuple[Any, ...]) -> Type:
        members: list[Type] = []
        for argument in arguments:
            if argument is type(None) or _is_plumbing(argument):
                continue
            read = self._type(argument)
            if read not in members:
                members.append(read)
        # A list of values beside `str` is that list: the service refuses what is not on it.
        if any(isinstance(member, Choice) for member in members):
            members = [member for member in members if member != STRING]
        if not members or ANY in members:
            return ANY
        return members[0] if len(members) == 1 else Either(tuple(members))


def _is_plumbing(argument: Any) -> bool:
    """Whether a member of a union is one of `Input`'s wrappers, or repeats another member."""
    if argument is pulumi.Output or typing.get_origin(argument) is pulumi.Output:
        return True
    if isinstance(argument, typing.ForwardRef):
        return argument.__forward_arg__.startswith("Output[")
    if typing.get_origin(argument) in (abc.Awaitable, abc.Coroutine):
        return True
    return typing.is_typeddict(argument)


def hints_of(cls: type) -> dict[str, Any]:
    """The annotations of a class's getters, by the engine's names."""
    namespace = dict(vars(sys.modules[cls.__module__]))
    local = {"Output": pulumi.Output, "T": type(None)}
    found: dict[str, Any] = {}
    for name, getter in _getters(cls).items():
        try:
            hint = typing.get_type_hints(getter, globalns=namespace, localns=local)["return"]
        except (NameError, KeyError, AttributeError, TypeError):
            hint = Any  # better unchecked than refused: the SDK's own annotation is at fault
        found[name] = hint
    return found


def _getters(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for value in vars(base).values():
            getter = value.fget if isinstance(value, property) else None
            name = getattr(getter, "_pulumi_name", None)
            if getter is not None and name is not None:
                found[name] = getter
    return found


def _is_optional(hint: Any) -> bool:
    if hint is None or hint is Any or hint is type(None):
        return True
    if typing.get_origin(hint) is pulumi.Output:
        return _is_optional(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return any(_is_optional(argument) for argument in typing.get_args(hint))
    return False


def shape(hint: Any) -> Type:
    """What kind of value an output has, not what is inside."""
    if typing.get_origin(hint) is pulumi.Output:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, UnionType):
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        hint = members[0] if members else Any
    origin = typing.get_origin(hint)
    if origin in (list, abc.Sequence):
        return ListOf(ANY)
    if origin in (dict, abc.Mapping) or (inspect.isclass(hint) and sdk.is_output_type(hint)):
        return MapOf(ANY)
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return Choice(hint.__name__, tuple(member.value for member in hint))
    try:
        return _SCALARS.get(hint, ANY)
    except TypeError:
        return ANY


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
