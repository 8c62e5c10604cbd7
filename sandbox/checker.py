"""Checks inputs against an SDK's types, and says where and why they are wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from falaj.components.nearest import nearest
from falaj.sandbox import property_types, schema
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.schema import Tables
from falaj.wire import ARCHIVE, ASSET, SIGNATURE, Unknown
from falaj.wire.documents import is_mapping

_SHOWN: Final = 60
_LISTED: Final = 12
#: Maps of amounts by resource, and the single amounts beside them.
_QUANTITY: Final = re.compile(
    r"""(?x) \b (?: (?: limits | requests | hard | capacity | allocatable | podFixed | default
        | defaultRequest | max | min | maxLimitRequestRatio ) (?: \.[^.\["\]]+ | \["[^"]+"\] )
        | sizeLimit | divisor | maximumVolumeSize | minimumVolumeSize ) $"""
)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Checker:
    """Checks the resources, settings and queries of one package."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def resource(self, token: str, inputs: Mapping[str, Any]) -> list[Problem]:
        """All that is wrong with a resource's inputs, by path; an unknown type is one problem."""
        found = self._tables.resource(token) or self._tables.custom(token)
        if found is None:
            return [self._unknown_token(token)]
        return _by_path(self._object(found.inputs, inputs, ""))

    def settings(self, given: Mapping[str, Any]) -> list[Problem]:
        """All that is wrong with the provider's own settings."""
        found = self._tables.resource(self._tables.provider_token)
        return [] if found is None else _by_path(self._object(found.inputs, given, ""))

    def query(self, token: str, arguments: Mapping[str, Any]) -> list[Problem]:
        """Arguments that a query of the SDK doesn't have; a query of no SDK is let through."""
        names = self._tables.package.function_arguments(token)
        if names is None:
            return []
        return [_unknown_name(name, names, name, {}) for name in arguments if name not in names]

    def _object(
        self, kind: property_types.ObjectType, given: Mapping[str, Any], path: str
    ) -> Iterable[Problem]:
        for name, value in given.items():
            if name.startswith("__"):  # the engine's own
                continue
            where = join(path, name)
            # Kubernetes' x-kubernetes-… are written with underscores in its SDKs alone.
            known = kind.properties.get(name) or kind.properties.get(name.replace("-", "_"))
            if known is None and kind.open:
                continue
            if known is None:
                python_names = {p.python_name: n for n, p in kind.properties.items()}
                yield _unknown_name(name, kind.properties, where, python_names)
            elif value is not None:
                yield from self._value(known.type, value, where)
        for name, known in kind.properties.items():
            if known.required and given.get(name) is None:
                yield Problem(
                    join(path, name),
                    f"missing required property {name!r} ({known.python_name} in Python); "
                    f"give {_expected(known.type)}",
                )

    def _value(self, kind: property_types.Type, value: Any, path: str) -> Iterable[Problem]:
        if isinstance(value, Unknown):
            return
        match kind:
            case property_types.Scalar(name):
                if not _is_scalar(name, value) and not self._is_quantity(value, path):
                    yield _wrong_type(kind, value, path)
            case property_types.Choice():
                yield from self._choice(kind, value, path)
            case property_types.Either(members):
                yield from self._either(members, value, path)
            case property_types.ListOf(item):
                yield from (
                    self._list(item, value, path)
                    if _is_list(value)
                    else [_wrong_type(kind, value, path)]
                )
            case property_types.MapOf() | property_types.Reference() if not _is_object(value):
                yield _wrong_type(kind, value, path)
            case property_types.MapOf(item):
                for key, entry in value.items():
                    if entry is not None:
                        yield from self._value(item, entry, join(path, key))
            case property_types.Reference(name):
                yield from self._object(self._tables.objects[name], value, path)

    def _choice(self, kind: property_types.Choice, value: Any, path: str) -> Iterable[Problem]:
        # Azure's services mostly don't tell letter case apart (clouds/azure/spelling.py).
        any_case = self._tables.package.name == "azure-native"
        meant = schema.listed(value, kind.values, any_case=any_case)
        if any(type(meant) is type(one) and meant == one for one in kind.values):
            return
        if kind.open and isinstance(value, str):
            return
        if is_mapping(value) or _is_list(value):
            yield _wrong_type(kind, value, path)
            return
        allowed = ", ".join(str(one) for one in kind.values[:_LISTED])
        if len(kind.values) > _LISTED:
            allowed += f" and {len(kind.values) - _LISTED} more"
        near = nearest(value, map(str, kind.values))
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield Problem(path, f"{describe(value)} is not one of: {allowed}{hint}")

    def _is_quantity(self, value: Any, path: str) -> bool:
        """Whether a number stands where Kubernetes takes a quantity, which the SDK types as text.

        https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
        """
        return (
            self._tables.package.name == "kubernetes"
            and _is_scalar("number", value)
            and _QUANTITY.search(path) is not None
        )

    def _list(
        self, item: property_types.Type, entries: Sequence[Any], path: str
    ) -> Iterable[Problem]:
        for index, entry in enumerate(entries):
            where = f"{path}[{index}]"
            if entry is None:
                yield Problem(where, "an entry of a list can't be null")
            else:
                yield from self._value(item, entry, where)

    def _either(
        self, members: tuple[property_types.Type, ...], value: Any, path: str
    ) -> Sequence[Problem]:
        """No problem if one type fits; else those of the type that fits best by its kind."""
        best: list[Problem] | None = None
        for member in members:
            problems = list(self._value(member, value, path))
            if not problems:
                return []
            same_kind = all(problem.path != path for problem in problems)
            if same_kind and (best is None or len(problems) < len(best)):
                best = problems
        return best or [_wrong_type(property_types.Either(members), value, path)]

    def _unknown_token(self, token: str) -> Problem:
        package = self._tables.package
        near = nearest(token, package.classes, most=3, alike=0.8)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return Problem(
            "",
            f"unknown resource type {token!r}: {package.module} {package.version} "
            f"doesn't have it{hint}",
        )


def join(path: str, key: str) -> str:
    """The path of a property inside another, quoted where its name is no plain word."""
    if not _PLAIN_KEY.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def describe(value: Any) -> str:
    """A value in an error message, by its kind and shortened."""
    if value is None:
        return "null"
    if is_mapping(value):
        return "an object with " + (", ".join(sorted(map(str, value))[:5]) or "nothing in it")
    if _is_list(value):
        return f"a list of {len(value)}"
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return f"the {'string' if isinstance(value, str) else 'number'} {shown}"


def _by_path(problems: Iterable[Problem]) -> list[Problem]:
    """In one order in each run: the engine sends properties in another each time."""
    return sorted(problems, key=lambda problem: problem.path)


def _unknown_name(
    name: str, known: Iterable[str], where: str, python_names: Mapping[str, str]
) -> Problem:
    names = list(known)
    if name in python_names:
        return Problem(
            where, f"unknown property {name!r}: here it is written {python_names[name]!r}"
        )
    lower = {each.lower(): each for each in names}
    near = [lower[m] for m in nearest(name.lower(), lower)]
    if near:
        return Problem(where, f"unknown property {name!r}; did you mean {near[0]!r}?")
    allowed = ", ".join(sorted(names)) if names else "none"
    return Problem(where, f"unknown property {name!r}; allowed: {allowed}")


def _wrong_type(kind: property_types.Type, value: Any, path: str) -> Problem:
    return Problem(path, f"expected {_expected(kind)}, given {describe(value)}")


def _expected(kind: property_types.Type) -> str:  # noqa: PLR0911 - one for each kind
    match kind:
        case property_types.Scalar(name):
            return _SCALAR_NAMES[name]
        case property_types.Choice(_, values, is_open):
            if is_open:
                return "a string"
            shown = ", ".join(str(one) for one in values[:_LISTED])
            return f"one of: {shown}" if len(values) <= _LISTED else f"one of: {shown} …"
        case property_types.ListOf():
            return "a list"
        case property_types.MapOf():
            return "a mapping"
        case property_types.Reference(name):
            short = name.rpartition(".")[2].removesuffix("Args")
            return f"an object ({short})"
        case property_types.Either(members):
            return " or ".join(dict.fromkeys(_expected(member) for member in members))


_SCALAR_NAMES: Final = {
    "any": "any value",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "asset": "an asset",
    "archive": "an archive",
}


def _is_scalar(name: str, value: Any) -> bool:
    if name == "any":
        return True
    if name == "string":
        return isinstance(value, str)
    if name == "boolean":
        return isinstance(value, bool)
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    mark = value.get(SIGNATURE) if is_mapping(value) else None
    return mark == (ASSET if name == "asset" else ARCHIVE)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_object(value: Any) -> bool:
    return is_mapping(value) and SIGNATURE not in value
