"""Types are read from the SDKs' classes, kept, and read again."""

from __future__ import annotations

# The SDKs write their annotations and enums in the older way.
# ruff: noqa: UP007, UP042, UP045
import enum
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Optional, Union

import pulumi
import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox import property_types
from falaj.sandbox.hints import HintReader
from falaj.sandbox.schema import Package, Tables, dump, load

SUBNET = "aws:ec2/subnet:Subnet"


class Colour(str, enum.Enum):
    RED = "Red"
    BLUE = "Blue"


@pulumi.input_type
class NodeArgs:
    """Holds itself, as JSON schemas and firewall rules do."""

    def __init__(self, *, key_id: pulumi.Input[str], inner: NodeArgs | None = None) -> None:
        pulumi.set(self, "key_id", key_id)
        pulumi.set(self, "inner", inner)

    @property
    @pulumi.getter(name="keyId")
    def key_id(self) -> pulumi.Input[str]: ...

    @property
    @pulumi.getter
    def inner(self) -> pulumi.Input[NodeArgs | None]: ...


def read(hint: Any) -> property_types.Type:
    return HintReader(lambda _: False)._type(hint)


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (pulumi.Input[str], property_types.STRING),
        (pulumi.Input[Optional[bool]], property_types.BOOLEAN),
        (pulumi.Input[Optional[float]], property_types.NUMBER),
        (pulumi.Input[Any], property_types.ANY),
        (Optional[pulumi.Input[int]], property_types.INTEGER),
        (Literal["v1"], property_types.Choice("", ("v1",))),
        (Union[str, Colour], property_types.Choice("Colour", ("Red", "Blue"))),
        (Sequence[pulumi.Input[str]], property_types.ListOf(property_types.STRING)),
        (
            Mapping[str, pulumi.Input[Colour]],
            property_types.MapOf(property_types.Choice("Colour", ("Red", "Blue"))),
        ),
        (Union[int, str], property_types.Either((property_types.INTEGER, property_types.STRING))),
        (
            Union[pulumi.Asset, pulumi.Archive],
            property_types.Either((property_types.ASSET, property_types.ARCHIVE)),
        ),
        (Union[str, Any], property_types.ANY),
        (pulumi.Resource, property_types.STRING),
        (complex, property_types.ANY),
        ({}, property_types.ANY),
    ],
)
def test_annotations_are_read(hint: Any, kind: property_types.Type) -> None:
    assert read(hint) == kind


def test_type_that_holds_itself_is_read_once() -> None:
    reader = HintReader(lambda _: False)
    found = reader.input_object(NodeArgs)
    assert list(reader.objects) == [found.name]
    assert found.properties["keyId"] == property_types.Property(
        property_types.STRING, True, "key_id"
    )
    assert found.properties["inner"] == property_types.Property(
        property_types.Reference(found.name), False, "inner"
    )


def test_package_without_an_sdk_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"pulumi_azure_native isn't installed.*'azure'"):
        Package("azure-native")
    with pytest.raises(EngineError, match=r"'gcp' is no cloud.*allowed: aws, azure-native"):
        Package("gcp")


@pytest.mark.parametrize(
    ("package", "token", "python_class"),
    [
        ("aws", "aws:sns/topic:Topic", "Topic"),
        ("azure-native", "azure-native:network:VirtualNetwork", "VirtualNetwork"),
        ("kubernetes", "kubernetes:core/v1:ConfigMap", "ConfigMap"),
        ("kubernetes", "kubernetes:helm.sh/v3:Release", "Release"),
    ],
)
def test_tokens_lead_to_classes(package: str, token: str, python_class: str) -> None:
    found = Package(package)
    assert found.classes[token][1] == python_class
    resource = found.resource_class(token)
    assert found.arguments_class(resource).__name__.startswith(python_class)


@pytest.mark.parametrize("package", ["aws", "azure-native", "kubernetes"])
def test_settings_of_each_provider_are_known(package: str) -> None:
    tables = Tables(package)
    found = tables.resource(tables.provider_token)
    assert found is not None
    assert {"aws": "region", "azure-native": "subscriptionId", "kubernetes": "kubeconfig"}[
        package
    ] in found.inputs.properties


def test_what_was_read_is_kept_and_a_damaged_file_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path))
    first = Tables("aws")
    found = first.resource(SUBNET)
    (kept,) = tmp_path.rglob("*Subnet.json")
    again = Tables("aws")
    with monkeypatch.context() as context:
        context.setattr(HintReader, "input_object", lambda *_: pytest.fail("read again"))
        assert again.resource(SUBNET) == found
    assert again.objects == first.objects
    for damage in ("", "{", "[]", '{"token": 1}', '{"objects": {"a": {"b": [1]}}}'):
        kept.write_text(damage)
        assert Tables("aws").resource(SUBNET) == found


def test_types_survive_json() -> None:
    tables = Tables("kubernetes")
    found = tables.resource("kubernetes:apps/v1:Deployment")
    assert found is not None
    document = json.loads(json.dumps(dump(found, tables.objects)))
    assert load(document) == (found, tables.objects)


def test_without_a_folder_to_write_to_types_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "file"))
    assert Tables("aws").resource(SUBNET) is not None


def test_outputs_say_which_always_have_a_value() -> None:
    found = Tables("aws").resource(SUBNET)
    assert found is not None
    assert found.outputs["arn"].required
    assert not found.outputs["outpostArn"].required
    assert "urn" not in found.outputs


def test_arguments_of_queries_are_read_from_the_source() -> None:
    package = Package("aws")
    assert package.function_arguments("aws:index/getCallerIdentity:getCallerIdentity") == {"id"}
    assert package.function_arguments("aws:ec2/getNothing:getNothing") is None
    assert package.function_arguments("nonsense") is None
    assert (
        Package("azure-native").function_arguments("azure-native:authorization:getClientConfig")
        == frozenset()
    )


_ASKED_BEFORE_A_PROGRAM: Final = """
from falaj.sandbox.schema import Package, module_named

assert "arn" in Package("aws").function_results("aws:ec2/getSubnet:getSubnet")
assert module_named("pulumi_aws.kms.key").KeyArgs
from pulumi_aws import ec2, kms

print(ec2.get_subnet_output.__name__, kms.Key.__name__)
"""


def test_a_program_has_every_name_of_an_sdk_whose_modules_were_read_before_it() -> None:
    """In an interpreter of its own: another test would have loaded the SDK's packages."""
    command = [sys.executable, "-c", _ASKED_BEFORE_A_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("get_subnet_output Key\n", "")
