"""Between the engine's messages to an analyzer and what rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as messages

from falaj.policies.decoding import plain_mapping, require_depth
from falaj.policies.model import Options, Provider, Resource, Stack


def properties_of(struct: struct_pb2.Struct) -> dict[str, Any]:
    """The properties in a message, as rules see them. Raises PolicyError where too deep."""
    return plain_mapping({key: _value(field, 1) for key, field in struct.fields.items()})


def _value(field: struct_pb2.Value, depth: int) -> Any:
    require_depth(depth)
    kind = field.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _value(each, depth + 1) for key, each in field.struct_value.fields.items()}
    if kind == "list_value":
        return [_value(each, depth + 1) for each in field.list_value.values]
    if kind == "number_value":
        number = field.number_value
        return int(number) if number.is_integer() else number
    return None if kind in ("null_value", None) else getattr(field, kind)


def resource_of(request: messages.AnalyzeRequest) -> Resource:
    """The resource of a request about one."""
    return Resource(
        request.type,
        request.name,
        properties_of(request.properties),
        urn=request.urn,
        provider=_provider(request),
        options=_options(request.options),
        parent=request.options.parent,
    )


def stack_of(
    request: messages.AnalyzeStackRequest, seen: Mapping[str, Resource], name: str, project: str
) -> Stack:
    """The stack of a request about a whole one, with the dependencies of its properties.

    The engine sends what providers answered, in which a preview has an unknown for everything that
    a cloud may fill in. What the program asked for was `seen` before, resource by resource.
    """
    return Stack(tuple(_member(each, seen) for each in request.resources), name, project)


def _member(given: messages.AnalyzerResource, seen: Mapping[str, Resource]) -> Resource:
    answered = properties_of(given.properties)
    dependencies = {key: tuple(found.urns) for key, found in given.propertyDependencies.items()}
    before = seen.get(given.urn)
    if before is not None:
        return replace(before, outputs=answered, parent=given.parent, dependencies=dependencies)
    return Resource(
        given.type,
        given.name,
        answered,
        urn=given.urn,
        provider=_provider(given),
        options=_options(given.options),
        parent=given.parent,
        dependencies=dependencies,
        outputs=answered,
    )


def _provider(
    request: messages.AnalyzeRequest | messages.AnalyzerResource,
) -> Provider | None:
    if not request.HasField("provider"):
        return None
    given = request.provider
    return Provider(given.type, properties_of(given.properties), given.name, given.urn)


def _options(given: messages.AnalyzerResourceOptions) -> Options:
    return Options(protect=given.protect, ignore_changes=tuple(given.ignoreChanges))
