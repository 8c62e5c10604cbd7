"""From the annotations of an SDK's classes to our types.

An SDK carries its package's schema only as Python: input classes whose getters are annotated with
``Input[...]``, enums, and constructors that tell what must be given.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any, Final

import pulumi
from pulumi import _types as sdk  # pyright: ignore[reportPrivateUsage]

from falaj.sandbox.schema import types as ours

_SCALARS: Final[dict[Any, ours.Type]] = {
    str: ours.STRING,
    int: ours.INTEGER,
    float: ours.NUMBER,
    bool: ours.BOOLEAN,
    Any: ours.ANY,
    dict: ours.MapOf(ours.ANY),
    list: ours.ListOf(ours.ANY),
    object: ours.ANY,
}


class HintReader:
    """Reads classes of one SDK; `objects` collects the object types met on the way.

    Args:
        is_open: whether values outside an enum's list are taken, by the enum's name.
    """

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self.objects: dict[str, ours.ObjectType] = {}
        self._is_open = is_open
        self._waiting: list[type] = []

    def input_object(self, cls: type) -> ours.ObjectType:
        """The properties of an input class; the object types that they need are read as well."""
        found = self._object(cls)
        while self._waiting:
            waiting = self._waiting.pop()
            if _full_name(waiting) not in self.objects:
                self._object(waiting)
        return found

    def outputs(self, resource: type) -> dict[str, ours.Property]:
        """The output properties of a resource's class, without the types of nested objects."""
        names = sdk.resource_pulumi_to_py_names(resource)
        hints = _hints(resource)
        found: dict[str, ours.Property] = {}
        for name, python_name in names.items():
            if name == "urn":
                continue
            hint = hints.get(name)
            found[name] = ours.Property(_shape(hint), not _is_optional(hint), python_name)
        return found

    def _object(self, cls: type) -> ours.ObjectType:
        name = _full_name(cls)
        # Before its properties are read: a type may hold itself.
        properties: dict[str, ours.Property] = {}
        found = self.objects[name] = ours.ObjectType(name, properties)
        hints = _hints(cls)
        python_names = sdk.input_type_py_to_pulumi_names(cls)
        parameters = inspect.signature(cls.__init__).parameters
        for python_name, wire_name in python_names.items():
            parameter = parameters.get(python_name)
            required = parameter is not None and parameter.default is inspect.Parameter.empty
            read = self._type(hints.get(wire_name, Any))
            properties[wire_name] = ours.Property(read, required, python_name)
        return found

    def _type(self, hint: Any) -> ours.Type:  # noqa: PLR0911 - one for each kind of annotation
        try:
            if hint in _SCALARS:
                return _SCALARS[hint]
        except TypeError:  # not hashable: nothing that we know
            return ours.ANY
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return ours.Choice("", arguments)
        if origin in (list, abc.Sequence):
            return ours.ListOf(self._type(arguments[0]) if arguments else ours.ANY)
        if origin in (dict, abc.Mapping):
            return ours.MapOf(self._type(arguments[1]) if len(arguments) > 1 else ours.ANY)
        if inspect.isclass(hint):
            return self._class(hint)
        return ours.ANY

    def _class(self, cls: type) -> ours.Type:
        if sdk.is_input_type(cls):
            if _full_name(cls) not in self.objects:
                self._waiting.append(cls)
            return ours.Reference(_full_name(cls))
        if issubclass(cls, enum.Enum):
            values = tuple(member.value for member in cls)
            return ours.Choice(cls.__name__, values, self._is_open(_full_name(cls)))
        if issubclass(cls, pulumi.Asset):
            return ours.ASSET
        if issubclass(cls, pulumi.Archive):
            return ours.ARCHIVE
        if issubclass(cls, pulumi.Resource):
            return ours.STRING  # a reference to a resource reaches a provider as its id
        return ours.ANY

    def _union(self, arguments: tuple[Any, ...]) -> ours.Type:
        members: list[ours.Type] = []
        for argument in arguments:
            if argument is type(None) or _is_plumbing(argument):
                continue
            read = self._type(argument)
            if read not in members:
                members.append(read)
        # A list of values beside `str` is that list: the service refuses what is not on it.
        if any(isinstance(member, ours.Choice) for member in members):
            members = [member for member in members if member != ours.STRING]
        if not members or ours.ANY in members:
            return ours.ANY
        return members[0] if len(members) == 1 else ours.Either(tuple(members))


def _is_plumbing(argument: Any) -> bool:
    """Whether a member of a union is one of `Input`'s wrappers, or repeats another member."""
    if argument is pulumi.Output or typing.get_origin(argument) is pulumi.Output:
        return True
    if isinstance(argument, typing.ForwardRef):
        return argument.__forward_arg__.startswith("Output[")
    if typing.get_origin(argument) in (abc.Awaitable, abc.Coroutine):
        return True
    return typing.is_typeddict(argument)


def _hints(cls: type) -> dict[str, Any]:
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
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_optional(argument) for argument in typing.get_args(hint))
    return False


def _shape(hint: Any) -> ours.Type:
    """What kind of value an output has, not what is inside."""
    if typing.get_origin(hint) is pulumi.Output:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        hint = members[0] if members else Any
    origin = typing.get_origin(hint)
    if origin in (list, abc.Sequence):
        return ours.ListOf(ours.ANY)
    if origin in (dict, abc.Mapping) or (inspect.isclass(hint) and sdk.is_output_type(hint)):
        return ours.MapOf(ours.ANY)
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return ours.Choice(hint.__name__, tuple(member.value for member in hint))
    try:
        return _SCALARS.get(hint, ours.ANY)
    except TypeError:
        return ours.ANY


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
