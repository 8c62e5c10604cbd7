"""Values of lists as Azure itself writes them, in whatever letter case they were given.

Resource Manager's services mostly compare the values of an enumeration without letter case and
answer with their own spelling: ``tcp`` of a security rule comes back as ``Tcp``. No document says
which of them are stricter, and the sandbox refuses nothing that may be right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from falaj.sandbox import property_types, schema
from falaj.sandbox.clouds.azure import checks
from falaj.sandbox.clouds.inputs import as_list, as_map
from falaj.sandbox.clouds.model import Properties
from falaj.sandbox.schema import Tables


@cache
def _tables() -> Tables:
    return Tables("azure-native")


def canonical(token: str, inputs: Properties) -> Properties:
    """The inputs of a type, with the values of its lists as the lists have them."""
    found = _tables().resource(token)
    spelt: Any = inputs if found is None else _object(found.inputs, inputs)
    for path, allowed in checks.enumerated_paths(token).items():
        spelt = _at(spelt, path.replace("[*]", ".[*]").split("."), allowed)
    return spelt


def _object(kind: property_types.ObjectType, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _value(kind.properties[name].type, value) if name in kind.properties else value
        for name, value in given.items()
    }


def _value(kind: property_types.Type, value: Any) -> Any:
    match kind:
        case property_types.Choice(_, values):
            return schema.listed(value, values, any_case=True)
        case property_types.Either(members):
            for member in members:
                value = _value(member, value)
            return value
        case property_types.ListOf(item) if as_list(value):
            return [_value(item, each) for each in value]
        case property_types.MapOf(item) if as_map(value):
            return {key: _value(item, each) for key, each in value.items()}
        case property_types.Reference(name) if as_map(value):
            return _object(_tables().objects[name], value)
        case _:
            return value


_EVERY: Final = "[*]"


def _at(value: Any, steps: Sequence[str], allowed: Sequence[str]) -> Any:
    """The value, with what stands at the path spelt as its list has it."""
    if not steps:
        return schema.listed(value, allowed, any_case=True)
    step, rest = steps[0], steps[1:]
    if step == _EVERY:
        items = as_list(value)
        return [_at(each, rest, allowed) for each in items] if items else value
    inside = as_map(value)
    return {**inside, step: _at(inside[step], rest, allowed)} if step in inside else value
