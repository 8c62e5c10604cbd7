"""Preview of the largest stack against a bare program with as many resources; time to import."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.engine.debug_lines import LEFT_OUT
from falaj.sandbox.inprocess import Declared
from falaj.sandbox.schema import Tables
from falaj.wire import Unknown
from tests.stacks.conftest import Project
from tests.stacks.in_mocks import SIX, declare, shipped

pytestmark = pytest.mark.benchmark_suite

ROUNDS = 7
#: Registers what it reads with the SDK's own classes: nothing of Falaj is imported.
BARE = """
import importlib
import json
import pathlib
import pulumi

found = json.loads((pathlib.Path(__file__).parent / "resources.json").read_text())

def class_of(module, name):
    return getattr(importlib.import_module(module), name)

module, name, properties = found["provider"]
provider = class_of(module, name)("cloud", **properties)
for number, (module, name, properties) in enumerate(found["resources"]):
    options = pulumi.ResourceOptions(provider=provider)
    if module:
        class_of(module, name)(f"r{number}", opts=options, **properties)
    else:
        pulumi.ComponentResource(name, f"r{number}", properties)
"""


def plain(value: object) -> object:
    """Inputs as a program writes them: what is unknown is left out."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if not isinstance(item, Unknown)}
    if isinstance(value, list):
        return [plain(item) for item in value if not isinstance(item, Unknown)]
    return value


def written(tables: Tables, resource: Declared) -> list[object]:
    """The SDK's class, by the service's package as programs name it (``aws.kms.Key``), and the
    keyword arguments that a program would write."""
    if not resource.custom:
        return ["", resource.type, plain(dict(resource.inputs))]
    kind = tables.resource(resource.type)
    assert kind is not None
    inputs = dict(resource.inputs)
    if resource.type == tables.provider_token:
        cls = tables.package.provider_class()
        # What else is there are the SDK's own defaults.
        inputs = {key: inputs[key] for key in ("region", "location") if key in inputs}
    else:
        cls = tables.package.resource_class(resource.type)
    arguments = {
        kind.inputs.properties[key].python_name: value
        for key, value in inputs.items()
        if key in kind.inputs.properties and value is not None
    }
    service = cls.__module__.rpartition(".")[0]
    return [service, cls.__name__.removesuffix("Args"), plain(arguments)]


def bare_project(folder: Path, resources: list[Declared]) -> None:
    """A project that registers the same resources, without components or checks of arguments."""
    provider = next(r for r in resources if r.type.startswith("pulumi:providers:"))
    tables = Tables(provider.type.rpartition(":")[2])
    others = [r for r in resources if r is not provider and not r.type.startswith("pulumi:")]
    document = {
        "provider": written(tables, provider),
        "resources": [written(tables, r) for r in others],
    }
    folder.mkdir()
    (folder / "resources.json").write_text(json.dumps(document))
    (folder / "__main__.py").write_text(BARE)
    (folder / "Pulumi.yaml").write_text(
        f"name: bare\nruntime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}\n"
    )
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")


@pytest.mark.timeout(1800)
def test_preview_of_the_largest_stack(project: Project, benchmark: BenchmarkFixture) -> None:
    declared = {stack: declare(shipped(stack), stack).resources for stack in SIX}
    stack = max(declared, key=lambda name: len(declared[name]))
    document = shipped(stack)
    document.pop("falaj:foundation", None)
    project.stack = stack
    project.configure_cloud(document)
    folder = project.root.parent / "bare"
    bare_project(folder, declared[stack])
    project.falaj("preview", "--sandbox")
    project.in_sandbox(folder, ["pulumi", "stack", "init", "dev"])

    def seconds(where: Path, name: str, **variables: str) -> float:
        given = [f"{key}={value}" for key, value in variables.items()]
        command = ["pulumi", "preview", "-s", name, "--non-interactive"]
        started = time.perf_counter()
        done = project.in_sandbox(where, ["env", *given, *command])
        assert done.returncode == 0, done.stdout
        return time.perf_counter() - started

    shadow = project.home / "sandbox" / "projects" / "falaj"
    bare: list[float] = []
    asked: list[float] = []

    def beside() -> None:
        asked.append(seconds(shadow, stack, **LEFT_OUT))
        bare.append(seconds(folder, "dev"))

    seconds(folder, "dev")
    benchmark.pedantic(lambda: seconds(shadow, stack), setup=beside, rounds=ROUNDS, iterations=1)
    ours, theirs = benchmark.stats.stats.median, statistics.median(bare)
    as_asked = statistics.median(asked)
    print(
        f"\npreview of {stack}, {len(declared[stack])} resources: {ours:.2f} s; a bare program "
        f"that registers as many: {theirs:.2f} s; {ours / theirs:.2f} times; without the SDK's "
        f"debug lines, as `falaj preview` asks for it: {as_asked:.2f} s, "
        f"{as_asked / theirs:.2f} times"
    )


@pytest.mark.parametrize(
    "module", ["falaj.components.catalogue", "falaj.components.aws", "falaj.components.azure"]
)
def test_time_to_import(module: str, benchmark: BenchmarkFixture) -> None:
    peers: list[float] = []

    def seconds(statement: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - started

    benchmark.pedantic(
        lambda: seconds(f"import {module}"),
        setup=lambda: peers.append(seconds("import pulumi")),
        rounds=7,
        iterations=1,
    )
    own, least = benchmark.stats.stats.median, statistics.median(peers)
    print(
        f"\nimport {module}: {own:.2f} s; import pulumi alone: {least:.2f} s; {own / least:.1f}x"
    )
