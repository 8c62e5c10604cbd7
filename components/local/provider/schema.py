"""The package's schema for other Pulumi languages and for ``pulumi package get-schema``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from falaj.components.local.provider import fields
from falaj.components.local.provider.handler import Handler

_TEXT = {"type": "string"}
_TYPES: Mapping[fields.FieldType, Mapping[str, Any]] = {
    "text": _TEXT,
    "path": _TEXT,
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": _TEXT},
    "wholes": {"type": "array", "items": {"type": "integer"}},
    "lists": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": _TEXT},
    },
}


def document(
    package: str, version: str, configuration: fields.Table, handlers: Sequence[Handler]
) -> dict[str, Any]:
    """The schema as JSON-ready values; see https://www.pulumi.com/docs/iac/guides/building-extending/packages/schema/."""
    return {
        "name": package,
        "version": version,
        "provider": {"inputProperties": {"site": _input(configuration["site"])}},
        "resources": {
            f"{package}:index:{handler.type_name}": _resource(handler) for handler in handlers
        },
    }


def _resource(handler: Handler) -> dict[str, Any]:
    inputs = {key: _input(entry) for key, entry in handler.table.items()}
    outputs = {
        key: {"$ref": "pulumi.json#/Any", "description": summary}
        for key, summary in handler.outputs.items()
    }
    return {
        "description": handler.summary,
        "inputProperties": inputs,
        "requiredInputs": [key for key, entry in handler.table.items() if entry.required],
        "properties": {**inputs, **outputs},
    }


def _input(entry: fields.Field) -> dict[str, Any]:
    described = {**_TYPES[entry.kind], "description": entry.summary}
    if isinstance(entry.default, str | int | float | bool):
        described["default"] = entry.default
    return described
