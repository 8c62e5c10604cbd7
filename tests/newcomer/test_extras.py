"""Each extra alone is enough for the modules that belong to it, and says all that they import."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from falaj.engine.extras import EXTRAS, extras_of, names
from tests.newcomer.documents import PACKAGES
from tests.newcomer.machine import Machine

ROOT = Path(__file__).resolve().parents[2]
#: Programs that run elsewhere, with what their own machine has: not imported from here.
ALONE = (
    "falaj.components.aws.serving", "falaj.components.azure.serving", "falaj.workloads.images",
)  # fmt: skip
#: Imported only where somebody has them, which the code asks for first.
IF_THERE: Mapping[str, str] = {
    "tensorflow": "Horovod's launcher and jobs of a team's own image",
    "horovod": "a team's own image has it",
    "pip": "every environment of ours is made with it",
    **dict.fromkeys(
        ("jupyterlab", "jupyter_server", "jupyter_server_terminals", "tornado", "traitlets"),
        "the workspace's image has it",
    ),
}
#: Named for what other distributions import when they are asked to.
FOR_OTHERS: Mapping[str, str] = {"onnxscript": "torch's exporter to ONNX"}


def modules() -> dict[str, Path]:
    """Every module of ours by its name; folders that are programs count by their `__main__`."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "templates" in parts or "__pycache__" in parts:
                continue
            name = ".".join(("falaj", *(part for part in parts if part != "__init__")))
            if name.isascii() and "-" not in name:
                found[name] = path
    return found


MODULES = modules()


def is_alone(name: str) -> bool:
    return name.startswith(ALONE)


@cache
def declared(extra: str) -> set[str]:
    """Distributions that pyproject.toml names for an extra, or for the base."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def pinned(extra: str) -> set[str]:
    """Distributions that the requirement file of an extra names, or that of the base."""
    text = (ROOT / "requirements" / f"{extra or 'base'}.in").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "-c"))]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@cache
def imported(path: Path) -> frozenset[str]:
    """Top-level names of other distributions that a module imports, wherever in it."""
    return frozenset(imported_by(ast.parse(path.read_text(encoding="utf-8"))))


def imported_by(tree: ast.Module) -> Iterator[str]:
    """Top-level names of other distributions that are imported in a tree."""
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [node.module]
        for name in found:
            top = name.partition(".")[0]
            if top != "falaj" and top not in sys.stdlib_module_names:
                yield top


def is_for_an_image(path: Path) -> bool:
    """Whether it can't be imported without what only an image of ours has."""
    at_once = ast.Module([
        node for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ], [])  # fmt: skip
    return not IF_THERE.keys().isdisjoint(imported_by(at_once))


def test_the_extras_are_those_of_the_distribution() -> None:
    used = {extra for needed in EXTRAS.values() for extra in needed}
    assert used == set(names())
    for name in EXTRAS:
        assert name == "falaj" or (ROOT / name.replace(".", "/")).exists() or name in MODULES


@pytest.mark.parametrize("extra", ["", *names()])
def test_requirement_files_and_the_distribution_name_the_same(extra: str) -> None:
    tools = {"setuptools"} if not extra else set[str]()  # installs the project itself
    assert pinned(extra) - tools == declared(extra)


def test_everything_that_a_module_imports_is_named_by_its_extras() -> None:
    owners = importlib.metadata.packages_distributions()
    missing: set[tuple[str, str]] = set()
    for name, path in MODULES.items():
        if is_alone(name):
            continue
        allowed = set.union(declared(""), *(declared(extra) for extra in extras_of(name)))
        for top in imported(path):
            given = {canonicalize_name(each) for each in owners.get(top, ())}
            if not given & allowed and top not in IF_THERE:
                missing.add((name, top))
    assert missing == set()


def test_everything_that_is_named_is_imported_or_run() -> None:
    owners = importlib.metadata.packages_distributions()
    used = {
        canonicalize_name(each)
        for path in MODULES.values()
        for top in imported(path)
        for each in owners.get(top, ())
    }
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES.values())
    for extra in ("", *names()):
        for distribution in declared(extra) - used - FOR_OTHERS.keys():
            module = distribution.replace("-", "_").partition("_")[0]
            assert re.search(rf"\b{module}\b", text), f"{distribution} of {extra or 'the base'}"


def locked(extra: str) -> set[str]:
    """Distributions that an environment with one extra has, by its locks."""
    files = ("bootstrap", "base", extra) if extra else ("bootstrap", "base")
    lines = [
        line for name in files for line in (ROOT / f"requirements/{name}.txt").read_text().split()
    ]
    return {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}


#: Imports modules where only some distributions are to be had; prints those that want others.
PROGRAM = """
import importlib, json, sys

modules, absent = map(json.loads, sys.stdin)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
missing = []
for name in modules:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f"{name}: {error}")
print("\\n".join(missing))
"""


def wanting(extra: str, *, without: str = "") -> str:
    """Of modules that need an extra, or none, those that its locks are not enough for.

    What the base's are enough for needs no more of an extra's: they hold the base's.
    """
    modules = [
        name
        for name, path in MODULES.items()
        if extras_of(name) == frozenset({extra} - {""})
        and not is_alone(name)
        and not is_for_an_image(path)
        and not name.endswith("__main__")
    ]
    assert modules, "an extra that no module needs"
    allowed = locked(extra) - {without} | {"falaj"}
    absent = [
        top
        for top, owners in importlib.metadata.packages_distributions().items()
        if allowed.isdisjoint(map(canonicalize_name, owners))
    ]
    assert "pytest" in absent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT.parent, check=True, text=True,
        input=f"{json.dumps(modules)}\n{json.dumps(absent)}\n", stdout=subprocess.PIPE,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize("extra", ["", *names()])
def test_the_locks_of_one_extra_are_enough_for_its_modules(extra: str) -> None:
    """As in an environment that has nothing else; `make up` in a fresh one is another test."""
    assert wanting(extra) == ""


def test_a_distribution_that_no_lock_names_is_found_missing() -> None:
    assert "falaj.components.aws.network: No module named 'pulumi_aws'" in wanting(
        "aws", without="pulumi-aws"
    )


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
def test_an_environment_without_extras_runs_the_command(machine: Machine) -> None:
    machine.run("python3 engine/environment.py")
    machine.run(".venv/bin/falaj engine --help")
    assert "pulumi-aws" not in machine.run(".venv/bin/uv pip list")
