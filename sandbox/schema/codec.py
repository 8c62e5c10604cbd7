"""Types as JSON and back, so that reading them once from an SDK is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.sandbox.schema import types as ours


def dump(resource: ours.ResourceType, objects: Mapping[str, ours.ObjectType]) -> dict[str, Any]:
    """A resource's type and every object type that it needs."""
    return {
        "token": resource.token,
        "inputs": resource.inputs.name,
        "outputs": _dump_properties(resource.outputs),
        "objects": {name: _dump_properties(kind.properties) for name, kind in objects.items()},
    }


def load(document: Mapping[str, Any]) -> tuple[ours.ResourceType, dict[str, ours.ObjectType]]:
    """What `dump` wrote.

    Raises:
        KeyError, TypeError, ValueError: the document was written by something else.
    """
    objects = {
        name: ours.ObjectType(name, _load_properties(properties))
        for name, properties in document["objects"].items()
    }
    outputs = _load_properties(document["outputs"])
    return ours.ResourceType(document["token"], objects[document["inputs"]], outputs), objects


def _dump_properties(properties: Mapping[str, ours.Property]) -> dict[str, Any]:
    return {
        name: [_dump_type(each.type), each.required, each.python_name]
        for name, each in properties.items()
    }


def _load_properties(document: Mapping[str, Any]) -> dict[str, ours.Property]:
    return {
        name: ours.Property(_load_type(kind), required, python_name)
        for name, (kind, required, python_name) in document.items()
    }


def _dump_type(kind: ours.Type) -> Any:
    match kind:
        case ours.Scalar(name):
            return name
        case ours.Choice(name, values, is_open):
            return ["choice", name, list(values), is_open]
        case ours.ListOf(item):
            return ["list", _dump_type(item)]
        case ours.MapOf(item):
            return ["map", _dump_type(item)]
        case ours.Reference(name):
            return ["object", name]
        case ours.Either(members):
            return ["either", *(_dump_type(member) for member in members)]


def _load_type(document: Any) -> ours.Type:
    match document:
        case str():
            return ours.Scalar(document)
        case ["choice", name, values, is_open]:
            return ours.Choice(name, tuple(values), is_open)
        case ["list", item]:
            return ours.ListOf(_load_type(item))
        case ["map", item]:
            return ours.MapOf(_load_type(item))
        case ["object", name]:
            return ours.Reference(name)
        case ["either", *members]:
            return ours.Either(tuple(_load_type(member) for member in members))
        case _:
            raise ValueError(f"no type: {document!r}")
