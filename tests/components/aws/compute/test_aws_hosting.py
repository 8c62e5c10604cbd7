"""The package for other Pulumi languages: every component, every argument, each described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import falaj.components.aws
from falaj.components.hosting import DescribedComponents, components_of

FOLDER = Path(falaj.components.aws.__file__).parent
NAME = "falaj-aws"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The package's schema."""
    made = DescribedComponents(components_of(falaj.components.aws), NAME, "1.2.3")
    return json.loads(made.schema)


def test_the_plugin_is_named_like_the_components_tokens(schema: dict[str, Any]) -> None:
    plugin = yaml.safe_load((FOLDER / "PulumiPlugin.yaml").read_text(encoding="utf-8"))
    assert plugin["name"] == NAME == schema["name"]
    assert f'"{NAME}"' in (FOLDER / "__main__.py").read_text(encoding="utf-8")


def test_every_exported_component_is_served(schema: dict[str, Any]) -> None:
    exported = {f"{NAME}:index:{each.__name__}" for each in components_of(falaj.components.aws)}
    assert set(schema["resources"]) == exported
    assert len(exported) == 13


def test_everything_is_described(schema: dict[str, Any]) -> None:
    for token, resource in schema["resources"].items():
        assert resource["description"], token
        for kind in ("inputProperties", "properties"):
            for name, found in resource[kind].items():
                assert found.get("description"), f"{token}.{name}"


def test_shared_arguments_are_plain_and_required(schema: dict[str, Any]) -> None:
    for token, resource in schema["resources"].items():
        required = resource["requiredInputs"]
        for name in ("region", "tenant", "owner", "dataClass", "costCenter"):
            assert name in required, f"{token}.{name}"
            assert resource["inputProperties"][name]["plain"] is True, f"{token}.{name}"


def test_tokens_of_components_are_those_of_the_schema(schema: dict[str, Any]) -> None:
    for each in components_of(falaj.components.aws):
        source = (FOLDER / f"{_module(each)}.py").read_text(encoding="utf-8")
        assert f'token("{each.__name__}")' in source
        assert f"{NAME}:index:{each.__name__}" in schema["resources"]


def _module(component: type) -> str:
    return component.__module__.rpartition(".")[2]
