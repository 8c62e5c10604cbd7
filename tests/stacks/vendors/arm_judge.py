"""Microsoft's own description of Azure's resources as a judge of what they are given.

The description is that of the management libraries (``azure-mgmt-*``), which Microsoft makes of
its specifications, https://github.com/Azure/azure-rest-api-specs: which properties a resource has
and needs, which are read-only, which values they take, and of what its address consists. The
libraries leave all that to the service; it is judged here, and nothing is sent. Of each library a
release is installed that still states bounds and patterns (`requirements/dev.in`): newer ones
don't.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

import isodate

#: The subscription that the sandbox has (`sandbox/clouds/azure/model.py`).
_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
#: What an operation's address has besides what a resource is given.
_NOT_GIVEN = {"subscription_id": _SUBSCRIPTION}
#: A dot of a property's own name, which libraries write so, apart from one between two.
_DOT = re.compile(r"(?<!\\)\.")
_ENUM = re.compile(r"\bstr or\s+~[\w.]+\.(\w+)")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "bool": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "duration": str,
    "iso-8601": str,
    "date": str,
    "time": str,
    "bytearray": str,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "duration": isodate.parse_duration,
    "iso-8601": datetime.fromisoformat,
}
_SIZES = (
    ("min_length", "characters", lambda size, bound: size < bound, "fewest"),
    ("max_length", "characters", lambda size, bound: size > bound, "most"),
    ("min_items", "members", lambda size, bound: size < bound, "fewest"),
    ("max_items", "members", lambda size, bound: size > bound, "most"),
    ("minimum", "", lambda size, bound: size < bound, "least"),
    ("maximum", "", lambda size, bound: size > bound, "most"),
    ("minimum_ex", "", lambda size, bound: size <= bound, "too little"),
    ("maximum_ex", "", lambda size, bound: size >= bound, "too much"),
)


@dataclass(frozen=True)
class Operation:
    """What makes a resource, in a library."""

    module: str
    """As in ``network``, or ``compute.v2024_11_01`` of a library that has several versions."""
    method: str
    """As in ``SubnetsOperations.begin_create_or_update``."""

    @property
    def _method(self) -> Callable[..., Any]:
        group, _, name = self.method.partition(".")
        module = importlib.import_module(f"azure.mgmt.{self.module}.operations")
        return getattr(getattr(module, group), name)

    @property
    def takes(self) -> type:
        """The class of the body."""
        for parameter in inspect.signature(self._method).parameters.values():
            # Libraries take a model, or an open file with the same.
            models = [
                each
                for each in (parameter.annotation, *typing.get_args(parameter.annotation))
                if inspect.isclass(each) and hasattr(each, "_attribute_map")
            ]
            if models:
                return models[0]
        raise AssertionError(f"{self.method} takes no body")

    @property
    def _builder(self) -> Callable[..., Any]:
        """The function that makes the request: the only one that the method calls by this name."""
        method = inspect.unwrap(self._method)
        home = sys.modules[method.__module__]
        names = {
            name
            for code in (method.__code__, inspect.unwrap(self._initial(home)).__code__)
            for name in code.co_names
            if re.fullmatch(r"build_\w+_request", name)
        }
        assert len(names) == 1, f"{self.method} makes {sorted(names)}"
        return getattr(home, names.pop())

    def _initial(self, home: ModuleType) -> Callable[..., Any]:
        """Of an operation that takes long, what sends its first request."""
        group, _, name = self.method.partition(".")
        own = getattr(home, group)
        return getattr(own, f"_{name.removeprefix('begin_')}_initial", getattr(own, name))

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what its address consists of, besides the subscription."""
        return tuple(
            name
            for name, each in inspect.signature(self._builder).parameters.items()
            if each.kind is each.POSITIONAL_OR_KEYWORD and name not in _NOT_GIVEN
        )

    def request(self, parts: Mapping[str, str]) -> tuple[str, str, list[str]]:
        """The address and API version of a resource, and what is said against the address."""
        builder = self._builder
        home = sys.modules[builder.__module__]
        said: list[str] = []

        def url(name: str, data: Any, _: str, **rules: Any) -> Any:
            said.extend(_bounds(rules, data, name))
            return data

        needed = inspect.signature(builder).parameters
        given = {**{n: v for n, v in _NOT_GIVEN.items() if n in needed}, **parts}
        with patch.object(home._SERIALIZER, "url", url):
            request = builder(**given)
        address = urlsplit(request.url)
        return unquote(address.path), parse_qs(address.query)["api-version"][0], said


@dataclass(frozen=True)
class Attribute:
    """A property of a model."""

    name: str
    """As people know it: `x-ms-client-name` of the specification, or its own."""
    keys: tuple[str, ...]
    """Where it stands in the body."""
    type: str
    rules: Mapping[str, Any]
    choices: tuple[str, ...]
    """The values that Microsoft lists; empty: not a list's."""
    models: ModuleType

    def model(self, name: str, value: Any) -> type:
        """The class of a model, or of its kind that a value says it is of."""
        model: type = getattr(self.models, name)
        for attribute, kinds in vars(model).get("_subtype_map", {}).items():
            key = attributes(model)[attribute].keys[-1]
            kind = value.get(key) if isinstance(value, Mapping) else None
            if kind in kinds:
                return self.model(kinds[kind], value)
        return model


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


@cache
def attributes(model: type) -> Mapping[str, Attribute]:
    """The properties of a model, by the library's names."""
    package = importlib.import_module(model.__module__.rpartition(".models.")[0] + ".models")
    documents = " ".join(
        inspect.cleandoc(each.__doc__ or "") for each in reversed(model.__mro__) if each.__doc__
    )
    types = dict(re.findall(r":vartype (\w+):\s+(.+?)(?=\s+:\w+|\s*$)", documents, re.DOTALL))
    found: dict[str, Attribute] = {}
    for name, each in model._attribute_map.items():
        choices = _ENUM.search(types.get(name, ""))
        enum = getattr(package, choices[1]) if choices else ()
        rules: Mapping[str, Any] = {
            rule: value
            for cls in reversed(model.__mro__)
            for rule, value in getattr(cls, "_validation", {}).get(name, {}).items()
        }
        keys = tuple(key.replace("\\.", ".") for key in _DOT.split(each["key"]))
        found[name] = Attribute(
            _camel(name), keys, each["type"], rules, tuple(kind.value for kind in enum), package
        )
    return found


def arranged(model: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """A provider's values in the form of a body.

    Properties are found by the name that people know, or their own. What isn't found keeps its
    name, for `problems` to report.
    """
    known = attributes(model).values()
    body: dict[str, Any] = {}
    for name, value in values.items():
        attribute = _named(known, name)
        place = body
        *parents, last = attribute.keys if attribute else (name,)
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = _value(attribute, attribute.type, value) if attribute else value
    return body


def _named(known: Collection[Attribute], name: str) -> Attribute | None:
    """The property that a name means; of two of one name that which can be given."""
    low = name.lower()
    found = [
        *(each for each in known if each.name.lower() == low),
        *(each for each in known if each.keys[-1].lower() == low),
    ]
    return min(found, key=lambda each: bool(each.rules.get("readonly")), default=None)


def _value(attribute: Attribute, kind: str, value: Any) -> Any:
    if kind[0] == "[" and isinstance(value, list):
        return [_value(attribute, kind[1:-1], each) for each in value]
    if kind[0] == "{":
        if isinstance(value, list):
            # Identities are a list to the provider, which alone matters of them.
            value = {each: {} for each in value}
        if isinstance(value, Mapping):
            return {key: _value(attribute, kind[1:-1], each) for key, each in value.items()}
    elif kind not in _TYPES and kind != "object" and isinstance(value, Mapping):
        return arranged(_kind(attribute, kind, value), value)
    return value


def _kind(attribute: Attribute, name: str, value: Mapping[str, Any]) -> type:
    """Of a provider's value: what it says of its kind has the name that people know."""
    model: type = getattr(attribute.models, name)
    for key, kinds in vars(model).get("_subtype_map", {}).items():
        own = attributes(model)[key]
        said = value.get(own.name, value.get(own.keys[-1]))
        if said in kinds:
            return _kind(attribute, kinds[said], value)
    return model


def problems(model: type, body: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """All that Microsoft's description of a model says against a body."""
    known = attributes(model)
    yield from _unknown(model, body, [each.keys for each in known.values()], path)
    for attribute in known.values():
        value: Any = body
        for key in attribute.keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        here = f"{path}.{'.'.join(attribute.keys)}"
        if value is None:
            if attribute.rules.get("required") and not attribute.rules.get("constant"):
                yield f"{here} is missing"
            continue
        if attribute.rules.get("readonly"):
            yield f"{here} is read-only"
            continue
        yield from _bounds(attribute.rules, value, here)
        yield from _judged(attribute, attribute.type, value, here)


def _unknown(
    model: type, body: Mapping[str, Any], keys: list[tuple[str, ...]], path: str
) -> Iterator[str]:
    if ("",) in keys:
        # A model that takes further properties, of any name.
        return
    for name, value in body.items():
        below = [each[1:] for each in keys if each[0] == name]
        if not below:
            yield f"{path}.{name} is unknown to {model.__name__}"
        elif () not in below and isinstance(value, Mapping):
            yield from _unknown(model, value, below, f"{path}.{name}")


def _judged(attribute: Attribute, kind: str, value: Any, path: str) -> Iterator[str]:
    if kind[0] == "[":
        if not isinstance(value, list):
            yield f"{path} is {value!r:.80}, not a list"
            return
        for index, each in enumerate(value):
            yield from _judged(attribute, kind[1:-1], each, f"{path}[{index}]")
    elif kind[0] == "{":
        if not isinstance(value, Mapping):
            yield f"{path} is {value!r:.80}, not an object"
            return
        for key, each in value.items():
            yield from _judged(attribute, kind[1:-1], each, f"{path}[{key!r}]")
    elif kind in _TYPES:
        yield from _simple(attribute, kind, value, path)
    elif kind != "object":
        if not isinstance(value, Mapping):
            yield f"{path} is {value!r:.80}, not an object"
            return
        yield from problems(attribute.model(kind, value), value, path)


def _simple(attribute: Attribute, kind: str, value: Any, path: str) -> Iterator[str]:
    wanted = _TYPES[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        yield f"{path} is {value!r:.80}, not of the type {kind}"
    elif attribute.choices and value not in attribute.choices:
        yield f"{path} is {value!r}, which is none of {', '.join(attribute.choices)}"
    elif kind in _READERS:
        try:
            _READERS[kind](value)
        except ValueError as error:
            yield f"{path} is {value!r}, not of the type {kind}: {error}"


def _bounds(rules: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    for rule, unit, broken, word in _SIZES:
        if rule not in rules:
            continue
        size = value if isinstance(value, int | float) else len(value)
        if broken(size, rules[rule]):
            yield f"{path} has {size} {unit}".rstrip() + f", of which {rules[rule]} is the {word}"
    pattern = rules.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        yield f"{path} is {value!r}, which {pattern} doesn't match"
