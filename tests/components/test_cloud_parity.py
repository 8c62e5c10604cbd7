"""The clouds have the same components with the same arguments, and install apart."""

from __future__ import annotations

import inspect
import os
import pydoc
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pulumi
import pytest

import falaj.components.aws
import falaj.components.azure
from falaj.stacks.program import without_plugins

ROOT = Path(__file__).resolve().parents[2]

NAMES = (
    "Network", "KeyRing", "ObjectStore", "TrainingFileSystem", "Registry", "Identity",
    "WorkloadIdentity", "AuditTrail", "Cluster", "GpuNodePool", "CpuNodePool",
    "CpuInferenceTier", "Budget",
)  # fmt: skip


def classes(module: ModuleType) -> dict[str, type[Any]]:
    return {
        name: found
        for name, found in inspect.getmembers(module)
        if inspect.isclass(found) and issubclass(found, pulumi.ComponentResource)
    }


def outputs(component: type[Any]) -> dict[str, Any]:
    # Not those of the SDK's base classes, which name types that can't be resolved.
    own = [each for each in component.__mro__ if each.__module__.startswith("falaj.")]
    found = {name: kind for each in own for name, kind in inspect.get_annotations(each).items()}
    assert found
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_one_and_the_same(name: str) -> None:
    aws, azure = classes(falaj.components.aws)[name], classes(falaj.components.azure)[name]
    args = [get_type_hints(cls.__init__)["args"] for cls in (aws, azure)]
    assert args[0] is args[1]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_the_same_names_and_types(name: str) -> None:
    aws, azure = classes(falaj.components.aws)[name], classes(falaj.components.azure)[name]
    assert outputs(aws) == outputs(azure)


def test_there_is_nothing_that_only_one_cloud_has() -> None:
    assert set(classes(falaj.components.aws)) == set(NAMES)
    assert set(classes(falaj.components.azure)) == set(NAMES)


@pytest.mark.parametrize("cloud", ["aws", "azure"])
@pytest.mark.parametrize("name", NAMES)
def test_every_component_explains_itself(cloud: str, name: str) -> None:
    component = classes(getattr(falaj.components, cloud))[name]
    text = inspect.getdoc(component) or ""
    assert len(text) > 200
    assert f"{name}(" in text, "an example"


def modules_after(statement: str) -> str:
    program = f"{statement}; import sys; print(chr(10).join(sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "statement",
    ["import falaj.components", "import falaj.components.catalogue", "import falaj.stacks.program",
     "import falaj.components.specification.gpu_node_pool"],
)  # fmt: skip
def test_neither_cloud_is_needed(statement: str) -> None:
    loaded = modules_after(statement).splitlines()
    assert not {"pulumi_aws", "pulumi_azure_native", "boto3", "azure"} & set(loaded)


def test_a_stack_of_one_machine_loads_nothing_of_clouds() -> None:
    loaded = modules_after(
        "import falaj.stacks.program, falaj.stacks.blueprints.local"
    ).splitlines()
    assert "falaj.stacks.settings.local" in loaded
    of_clouds = ("falaj.stacks.cloud_program", "falaj.stacks.blueprints.cloud",
                 "falaj.stacks.settings.cloud", "falaj.sandbox")  # fmt: skip
    assert not [each for each in loaded if each.startswith(of_clouds)]


def test_a_stack_of_a_cloud_loads_no_settings_of_one_machine() -> None:
    loaded = modules_after("import falaj.stacks.program, falaj.stacks.cloud_program").splitlines()
    assert "falaj.stacks.settings.cloud" in loaded
    assert "falaj.stacks.settings.local" not in loaded


#: What a program of a cloud loads of ours beside components, once its settings were taken.
OF_A_CLOUD = {
    "policies": {"choices"},
    "sandbox": {"activation", "sdks"},
    "stacks": {
        "blueprints", "blueprints.cloud", "cloud_program", "errors", "invalid_component",
        "placement", "program", "sandbox_guard",
        "settings", "settings.cloud", "settings.derived", "settings.document", "settings.given",
        "settings.load", "settings.problems", "settings.section", "settings.source",
        "settings.splices", "settings.suggestions", "validation",
    },
}  # fmt: skip


def test_a_program_of_a_cloud_loads_no_rules_and_nothing_to_refuse_with() -> None:
    """Reasons, corrections and rules are for runs in which something is wrong."""
    loaded = modules_after(
        "import falaj.stacks.program, falaj.stacks.cloud_program\n"
        "from pathlib import Path\nimport yaml\n"
        "from falaj.components import catalogue\n"
        "from falaj.stacks.settings import validate\n"
        "from falaj.stacks.validation import validate_in_cloud\n"
        f"root = Path({str(ROOT)!r})\n"
        "said = yaml.safe_load((root / 'stacks' / 'Pulumi.aws-cluster.yaml').read_text())\n"
        "said['config'].pop('falaj:foundation')\n"
        "settings = validate(said['config'], root, stack='aws-cluster')\n"
        "validate_in_cloud(settings, catalogue.parse('aws/me-central-1'), {})"
    ).splitlines()
    for package, known in OF_A_CLOUD.items():
        own = f"falaj.{package}."
        found = {each.removeprefix(own) for each in loaded if each.startswith(own)}
        assert found == known, (package, found ^ known)
    assert "falaj.components.catalogue.region_names" not in loaded


@pytest.mark.parametrize("given", [None, "logfire"])
def test_plugins_are_left_alone_once_settings_were_checked(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    name = "PYDANTIC_DISABLE_PLUGINS"
    monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv(name, given)
    with without_plugins():
        assert os.environ[name] == "__all__"
    assert os.environ.get(name) == given


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_program_loads_the_components_that_it_uses(cloud: str) -> None:
    package = f"falaj.components.{cloud}"
    own = f"{package}."
    assert not [each for each in modules_after(f"import {package}").splitlines() if own in each]
    loaded = modules_after(f"from {package} import KeyRing").splitlines()
    assert f"{own}key_ring" in loaded
    assert f"{own}network" not in loaded


def test_a_service_of_the_sdk_is_loaded_where_it_is_used() -> None:
    loaded = modules_after("from falaj.components.aws import Network").splitlines()
    # Only a network with a way out has one.
    assert "pulumi_aws.networkfirewall.firewall" not in loaded


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_package_shows_its_components_and_nothing_else(cloud: str) -> None:
    package = getattr(falaj.components, cloud)
    assert set(package.__all__) <= set(dir(package))
    assert "GpuNodePool" in pydoc.plain(pydoc.render_doc(package))
    with pytest.raises(AttributeError, match="has no attribute 'GpuNodPool'"):
        _ = package.GpuNodPool


@pytest.mark.parametrize(
    ("cloud", "other"), [("aws", "pulumi_azure_native"), ("azure", "pulumi_aws")]
)
def test_one_cloud_does_not_need_the_other(cloud: str, other: str) -> None:
    assert other not in modules_after(f"from falaj.components.{cloud} import *").splitlines()
