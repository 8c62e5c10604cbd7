"""What the Containerfiles may say, and whether what they copy is enough to run."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from falaj.components.kubernetes.bill_of_materials import images
from falaj.stacks.errors import StackError
from falaj.stacks.images.build import (
    BUILD_BASE,
    FOLDER,
    OPENVINO_REQUIREMENTS,
    RECIPES,
    ROOT,
    Recipe,
    copy_sources,
    recipes,
)
from falaj.stacks.images.wheels import pinned

STAGED = {
    "requirements.txt", "falaj", "finish.py", "sbom.cdx.json", "wheels", "without_cuda.py",
}  # fmt: skip
PACKAGES = metadata.packages_distributions()


def instructions(recipe: Recipe) -> list[tuple[str, str]]:
    text = (FOLDER / recipe.containerfile).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def problems(found: list[tuple[str, str]]) -> list[str]:
    """What no Containerfile of ours may say."""
    said: list[str] = []
    stages = [text for word, text in found if word == "FROM"]
    said += [f"FROM {each}" for each in stages if not re.match(r"^\$\{[A-Z_]+\}( AS \w+)?$", each)]
    for word, text in found:
        if word == "ADD" or "http" in text:
            said.append(f"{word} {text}")
        if word == "ARG" and "=" in text:
            said.append(f"a base has a default: {text}")
        if (
            word == "COPY"
            and not text.startswith("--from=build ")
            and text.split()[0] not in STAGED
        ):
            said.append(f"not staged: {text}")
        if word in ("ENTRYPOINT", "CMD", "RUN"):
            try:
                json.loads(re.sub(r"^--mount=\S+ ", "", text))
            except json.JSONDecodeError:
                said.append(f"{word} goes through a shell: {text}")
    last = found[max(i for i, (word, _) in enumerate(found) if word == "FROM") :]
    users = [text for word, text in last if word == "USER"]
    if users != ["65532:65532"]:
        said.append(f"runs as {users}")
    return said


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_containerfiles_keep_to_the_rules(recipe: Recipe) -> None:
    assert problems(instructions(recipe)) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("ADD", "x y"), "ADD x y"),
        (("FROM", "python:latest"), "FROM python:latest"),
        (("ARG", "RUN_BASE=python"), "a base has a default"),
        (("RUN", "pip install x"), "RUN goes through a shell"),
        (("CMD", "python"), "CMD goes through a shell"),
        (("COPY", "secrets /secrets"), "not staged"),
        (("USER", "0"), "runs as"),
    ],
)
def test_the_rules_find_what_they_forbid(line: tuple[str, str], said: str) -> None:
    found = [*instructions(RECIPES["falaj-inference"]), line]
    assert any(said in each for each in problems(found))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_names_are_in_the_bill_of_materials(recipe: Recipe) -> None:
    assert {recipe.name, recipe.run_base, BUILD_BASE} <= images().keys()
    assert images()[recipe.name].is_ours


@pytest.mark.parametrize("machine", ["amd64", "arm64"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_wheel_is_hashed_and_pinned_once(recipe: Recipe, machine: str) -> None:
    wheels = recipe.wheels(machine)
    names = [each.name for each in wheels]
    assert len(names) == len(set(names)) > 10
    assert all(each.hashes for each in wheels)


@pytest.mark.parametrize("machine", ["amd64", "arm64"])
def test_openvino_is_added_where_it_is_asked_for(machine: str) -> None:
    """With what it asks for, in the versions that the image has anyway."""
    (plain,) = recipes(["falaj-inference"])
    (larger,) = recipes(["falaj-inference"], openvino=True)
    before = {each.name: each.version for each in plain.wheels(machine)}
    after = {each.name: each.version for each in larger.wheels(machine)}
    assert after.keys() - before.keys() == {"openvino"}
    assert before.items() <= after.items()
    for each in pinned(ROOT / "requirements" / OPENVINO_REQUIREMENTS, machine):
        assert after[each.name] == each.version
    assert [each.has_openvino for each in recipes([], openvino=True)].count(True) == 1


def test_openvino_for_images_that_serve_nothing() -> None:
    with pytest.raises(StackError, match="--openvino: given for falaj-workspace; allowed with"):
        recipes(["falaj-workspace"], openvino=True)


def test_every_package_of_the_workloads_is_in_an_image() -> None:
    packages = {path.parent.name for path in (ROOT / "workloads").glob("*/__init__.py")}
    assert packages <= {name for each in RECIPES.values() for name in each.packages}


#: What images leave out unless it is asked for: without it, ONNX Runtime runs the models.
ELSEWHERE = {"openvino"}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_everything_that_is_imported_is_in_the_image(recipe: Recipe, tmp_path: Path) -> None:
    copy_sources(recipe, tmp_path)
    wheels = pinned(ROOT / "requirements" / recipe.requirements, "amd64")
    installed = {_normal(each.name) for each in wheels}
    missing: set[str] = set()
    for path in tmp_path.rglob("*.py"):
        for name in _imports(path):
            top = name.partition(".")[0]
            if top == "falaj":
                module = tmp_path / name.replace(".", "/")
                if not (module.is_dir() or module.with_suffix(".py").is_file()):
                    missing.add(name)
            elif top not in sys.stdlib_module_names:
                given = {_normal(each) for each in PACKAGES.get(top, [top])}
                if not given & installed:
                    missing.add(top)
    assert missing == ELSEWHERE


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each image a tree as its Containerfile makes it: sources, and links to just its wheels.

    The wheels' files are this environment's, of the pinned versions, so that no index is needed.
    """
    owners: dict[str, set[str]] = {}
    for installed in metadata.distributions():
        for top in {each.parts[0] for each in installed.files or []}:
            owners.setdefault(top, set()).add(_normal(installed.name))
    trees: dict[str, Path] = {}
    for recipe in RECIPES.values():
        tree = trees[recipe.name] = tmp_path_factory.mktemp(recipe.name)
        copy_sources(recipe, tree / "app")
        (tree / "lib").mkdir()
        file = ROOT / "requirements" / recipe.requirements
        text = file.read_text(encoding="utf-8")
        for wheel in pinned(file, "amd64"):
            installed = metadata.distribution(wheel.name)
            # One that is pinned by the interpreter's patch is here by this one's.
            pins = re.findall(rf"^{re.escape(wheel.name)}==([^ ;\\]+)", text, re.MULTILINE)
            assert installed.version.partition("+")[0] in pins, wheel.name
            for each in installed.files or []:
                # One link for what no other wheel adds to: torch alone has ten thousand files.
                alone = owners[each.parts[0]] == {_normal(wheel.name)}
                name = each.parts[0] if alone else each
                target = tree / "lib" / name
                if ".." not in each.parts and "__pycache__" not in each.parts:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if not target.exists():
                        target.symlink_to(Path(str(installed.locate_file(name))))
    return trees


COMMANDS = [
    ("falaj-inference", "falaj.workloads.inference serve --help"),
    ("falaj-inference", "falaj.workloads.registry --help"),
    ("falaj-inference", "falaj.workloads.repair --help"),
    ("falaj-training", "falaj.workloads.training run --help"),
    ("falaj-training", "falaj.workloads.optimization --help"),
    ("falaj-training", "torch.distributed.run --help"),
    ("falaj-training-cpu", "falaj.workloads.training dataset --help"),
    ("falaj-workspace", "falaj.workloads.workspace serve --help"),
    ("falaj-workspace", "falaj.workloads.training run --help"),
    ("falaj-workspace", "jupyterlab.labapp --help"),
    ("falaj-workspace", "ipykernel_launcher --help"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[" ".join(each) for each in COMMANDS])
def test_commands_run_with_what_the_image_has_and_nothing_else(
    environment: dict[str, Path], name: str, command: str, tmp_path: Path
) -> None:
    tree = environment[name]
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "-m", *command.split()],
        env={"PYTHONPATH": f"{tree}/app:{tree}/lib", "HOME": str(tmp_path),
             "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tree / "app", capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "usage" in done.stdout.lower() or "Options" in done.stdout
