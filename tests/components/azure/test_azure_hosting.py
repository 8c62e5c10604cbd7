"""The components on Azure as a package for other languages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pulumi
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

import falaj.components.azure
from falaj.components.hosting import DescribedComponents, components_of

FOLDER = Path(falaj.components.azure.__file__).parent


@pytest.fixture(scope="module", name="schema")
def _schema() -> dict[str, Any]:
    found = DescribedComponents(
        components_of(falaj.components.azure), "falaj-azure", "1.2.3"
    ).schema
    return json.loads(found or "")


def test_a_provider_is_no_component() -> None:
    names = {each.__name__ for each in components_of(falaj.components.azure)}
    assert "RegionProvider" not in names
    assert {"Cluster", "GpuNodePool", "CpuNodePool", "CpuInferenceTier"} <= names


def test_every_component_argument_and_output_is_described(schema: dict[str, Any]) -> None:
    lacking = [
        f"{token}.{kind}.{name}"
        for token, resource in schema["resources"].items()
        for kind in ("inputProperties", "properties")
        for name, definition in resource[kind].items()
        if not definition.get("description")
    ]
    assert not lacking
    assert all(resource["description"] for resource in schema["resources"].values())


def test_components_are_named_as_their_own_tokens(schema: dict[str, Any]) -> None:
    assert schema["name"] == "falaj-azure"
    assert schema["version"] == "1.2.3"
    tokens = {
        f"falaj-azure:index:{each.__name__}" for each in components_of(falaj.components.azure)
    }
    assert set(schema["resources"]) == tokens
    assert all(resource["isComponent"] for resource in schema["resources"].values())


def test_arguments_have_the_types_of_the_specification(schema: dict[str, Any]) -> None:
    pool = schema["resources"]["falaj-azure:index:GpuNodePool"]
    arguments = pool["inputProperties"]
    # What decides is plain; what comes from other components may be known late.
    assert arguments["gpu"] == {**arguments["gpu"], "type": "string", "plain": True}
    assert arguments["count"]["type"] == "number"
    assert arguments["maxNodes"]["type"] == "integer"
    assert arguments["labels"]["additionalProperties"]["type"] == "string"
    assert arguments["taints"]["items"]["type"] == "string"
    assert not arguments["clusterId"].get("plain")
    assert "gpu" in pool["requiredInputs"]
    assert "machine" not in pool["requiredInputs"]
    assert arguments["region"]["description"].startswith("Region in the country")


def test_the_folder_is_a_plugin_that_answers_the_engine(schema: dict[str, Any]) -> None:
    """Started as the engine starts it: with the folder, from elsewhere, and no path set."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(FOLDER), "127.0.0.1:1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd="/", env=environment
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with grpc.insecure_channel(
                f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)]
            ) as channel:
                stub: Any = provider_pb2_grpc.ResourceProviderStub(channel)
                request = provider_pb2.GetSchemaRequest()  # type: ignore[attr-defined]
                answer = stub.GetSchema(request, timeout=60)
        finally:
            process.kill()
    assert set(json.loads(answer.schema)["resources"]) == set(schema["resources"])


def test_the_manifest_names_the_package() -> None:
    manifest = (FOLDER / "PulumiPlugin.yaml").read_text()
    assert "name: falaj-azure" in manifest
    assert issubclass(falaj.components.azure.Cluster, pulumi.ComponentResource)
