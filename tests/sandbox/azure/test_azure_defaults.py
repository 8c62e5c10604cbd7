"""What the SDK's own classes fill in is sent as if it had been given, and refused nowhere."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import Any

import pytest
from pulumi import _types as sdk  # pyright: ignore[reportPrivateUsage]

from falaj.sandbox import property_types, schema
from falaj.sandbox.clouds.azure import MODEL
from falaj.sandbox.schema import Tables
from falaj.wire import UNKNOWN
from tests.sandbox.azure.test_azure_problems import changed

TABLES = Tables("azure-native")
REGISTRY = {"resourceGroupName": "rg", "registryName": "images1", "location": "uaenorth"}
FILLED = re.compile(r"if (\w+) is None:\n\s+\1 = (.+)\n")


@cache
def filled_in(name: str) -> dict[str, Any]:
    """The values that a class of the SDK gives to what it isn't given, by the engine's names."""
    module, _, cls = name.rpartition(".")
    arguments = getattr(schema.module_named(module), cls)
    names = sdk.input_type_py_to_pulumi_names(arguments)
    source = inspect.getsource(arguments.__init__)
    return {names[own]: ast.literal_eval(value) for own, value in FILLED.findall(source)}


def completed(kind: property_types.Type, value: Any) -> Any:
    match kind:
        case property_types.ListOf(item) if isinstance(value, list):
            return [completed(item, each) for each in value]
        case property_types.MapOf(item) if isinstance(value, dict):
            return {key: completed(item, each) for key, each in value.items()}
        case property_types.Reference(name) if isinstance(value, dict):
            return completed_object(TABLES.objects[name], value)
        case _:
            return value


def completed_object(kind: property_types.ObjectType, given: dict[str, Any]) -> dict[str, Any]:
    own = {name: completed(kind.properties[name].type, value) for name, value in given.items()}
    return {**filled_in(kind.name), **own}


def test_the_sdk_is_read_as_it_is_written() -> None:
    ingress = "pulumi_azure_native.app._inputs.IngressArgs"
    assert filled_in(ingress)["allowInsecure"] is False
    assert filled_in(ingress)["transport"] == "auto"


def test_no_sample_is_refused_for_what_the_sdk_fills_in(all_samples: Any) -> None:
    wrong: list[Any] = []
    for key, resource in all_samples.made.items():
        known = TABLES.resource(resource.token)
        assert known is not None
        given = completed_object(known.inputs, dict(resource.inputs))
        config = {"location": "uaenorth"}
        world = all_samples.sandbox.store
        found = MODEL.problems(resource.token, given, config)
        found += MODEL.conflicts(resource.token, given, config, world, resource.id)
        wrong += [(key, str(problem)) for problem in found]
    assert wrong == []


@pytest.mark.parametrize(
    ("key", "path", "value"),
    [
        # IngressArgs(transport="tcp", …), FlowLogFormatParametersArgs(type="JSON") and
        # ExportPolicyArgs() of a registry without the SKU Premium, as the engine gets them.
        ("app", "configuration.ingress", {"transport": "tcp", "targetPort": 80,
         "exposedPort": 8443, "external": False, "allowInsecure": False}),
        ("flows", "format", {"type": "JSON", "version": 0}),
        ("registry", "", {"sku": {"name": "Standard"},
         "policies": {"exportPolicy": {"status": "enabled"}, "trustPolicy": {"status": UNKNOWN}}}),
    ],
)  # fmt: skip
def test_what_the_sdk_fills_in_where_it_has_no_meaning_is_taken(
    all_samples: Any, key: str, path: str, value: Any
) -> None:
    found = all_samples.made[key]
    given = changed(found.inputs, path, value) if path else {**REGISTRY, **value}
    assert MODEL.problems(found.token, given, {"location": "uaenorth"}) == []
