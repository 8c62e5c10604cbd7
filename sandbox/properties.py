"""Small operations on properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.sandbox.clouds.model import Properties
from falaj.sandbox.schema import types
from falaj.wire import UNKNOWN


def filled(given: Properties, defaults: Properties) -> dict[str, Any]:
    """What is given, with defaults where nothing is, at any depth of objects."""
    result = dict(given)
    for name, value in defaults.items():
        own = given.get(name)
        if own is None:
            result[name] = value
        elif isinstance(own, Mapping) and isinstance(value, Mapping):
            result[name] = filled(own, value)
    return result


def leaves(values: Properties, path: str = "") -> dict[str, str]:
    """Every value that is no object, in a comparable form, by its path."""
    found: dict[str, str] = {}
    for name, value in values.items():
        where = f"{path}/{name}"
        if isinstance(value, Mapping):
            found |= leaves(value, where)
        else:
            found[where] = repr(value)
    return found


def without_nulls(values: Properties) -> dict[str, Any]:
    """Properties without those that are null, at any depth: to a service they aren't there."""
    return {name: _inside(value) for name, value in values.items() if value is not None}


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_nulls(value)
    if isinstance(value, list):
        return [_inside(entry) for entry in value]
    return value


def plausible(kind: types.Type, text: str) -> Any:
    """A value for an output that always has one, where the model gives none."""
    found: Any = None
    match kind:
        case types.Choice(_, values, _):
            found = values[0]
        case types.ListOf():
            found = []
        case types.MapOf() | types.Reference():
            found = {}
        case types.Scalar("boolean"):
            found = False
        case types.Scalar("integer" | "number"):
            found = 0
        case types.Scalar("string"):
            found = text
        case _:
            pass
    return found


def previewed(inputs: Properties) -> dict[str, Any]:
    """Inputs as a preview gives them back: a list of identities is a mapping in outputs.

    It is the one property that azure-native's SDK takes in another form than it gives it, in
    every type that has an ``identity``; who the identities are is known once they are there.
    """
    found = dict(inputs)
    identity = inputs.get("identity")
    if isinstance(identity, Mapping) and isinstance(identity.get("userAssignedIdentities"), list):
        found["identity"] = {**identity, "userAssignedIdentities": UNKNOWN}
    return found
