"""A wheel, installed into an environment of its own: everything works outside of a clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.newcomer import documents
from tests.newcomer.documents import PACKAGES
from tests.newcomer.machine import Machine, newcomer, share_compiled
from tests.newcomer.scenarios import MENTIONED

pytestmark = [pytest.mark.engine, pytest.mark.thorough, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.prefix) / "bin" / "uv"
EXTRAS = ("local", "azure")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with newcomer(tmp_path_factory.mktemp("wheel")) as machine:
        machine.run("make environment")
        (build,) = documents.commands("wheel")
        machine.run(build)
        assert machine.clean_status() == ""
        (found,) = (machine.clone / "dist").glob("*.whl")
        assert f"dist/{found.name}" in documents.text()
        return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A person who has an environment with the wheel, an empty home, and no clone."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    machine = Machine(folder / "work", folder / "home")
    environment = folder / "own environment"
    share_compiled(machine, environment)
    machine.run(f"'{UV}' venv --quiet --python '{sys.executable}' '{environment}'")
    wanted = f"falaj[{','.join(EXTRAS)}] @ {wheel.as_uri()}"
    # The versions that were tested; what is installed is what the wheel itself asks for.
    pins = " ".join(f"-c '{ROOT}/requirements/{name}.txt'" for name in ("base", *EXTRAS))
    python = f"--python '{environment}/bin/python'"
    machine.run(f"'{UV}' pip install --quiet {python} {pins} '{wanted}'")
    path = machine.environment["PATH"]
    machine.variables["PATH"] = os.pathsep.join([str(environment / "bin"), path])
    yield machine
    for process in machine.processes():
        process.kill()


def test_it_holds_what_is_needed_under_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        description = archive.read(about).decode()
    # Its description is the README, whose last words say where its links lead.
    assert "Links are paths in the repository." in description
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"falaj"}
    for needed in (
        "falaj/engine/environment.py", "falaj/requirements/local.txt", "falaj/py.typed",
        "falaj/policies/residency/PulumiPolicy.yaml", "falaj/policies/all/PulumiPolicy.yaml",
        "falaj/stacks/settings/stack.schema.json", "falaj/stacks/templates/local/Pulumi.yaml",
        "falaj/stacks/costs/tables/aws.yaml", "falaj/policies/reports/messages.ar.yaml",
    ):  # fmt: skip
        assert needed in names
    assert any(name.endswith("go.mod") for name in names)
    assert any(name.endswith(".Containerfile") for name in names)
    assert not [name for name in names if "/tests/" in name or name.endswith(".cases.yaml")]
    # Whatever git keeps beside the modules is data that some module reads.
    kept = subprocess.run(
        ["git", "ls-files", *PACKAGES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    left_out = {
        name for name in kept if f"falaj/{name}" not in names and not name.endswith(".cases.yaml")
    }
    assert {name for name in left_out if not re.match(r"stacks/Pulumi\.", name)} == set()


def test_nobody_elses_names_are_taken(installed: Machine) -> None:
    for name in PACKAGES:
        found = installed.run(
            f"""python -c 'import importlib.util as u; print(u.find_spec("{name}"))'"""
        )
        assert found.strip() == "None", name


def test_a_local_stack_from_new_to_down(installed: Machine) -> None:
    assert re.fullmatch(r"falaj \d+\.\d+\.\d+\n", installed.run("falaj --version"))
    new, up, _ = MENTIONED["wheel"]
    printed = installed.run(new)
    assert "falaj up" in printed
    folder = installed.clone / "shop"
    # Tests of other documents may use the port of the template at the same time.
    installed.run("falaj config set falaj:service.port 18443", folder=folder)
    # A quarter of the epochs that digits have by default, for what isn't about the model.
    installed.run("falaj config set falaj:training.epochs 20", folder=folder)
    served = installed.run(up, folder=folder)
    assert "Serving digits version 1 at https://localhost:" in served
    # Advice fits where one stands.
    assert "make " not in served.partition("Serving digits")[2]
    assert "accuracy through the endpoint" in installed.run("falaj demo", folder=folder)
    assert "Authorization: Bearer " in installed.run("falaj token", folder=folder)
    preview = installed.run("falaj preview", folder=folder)
    assert re.search(r"Changes +\d+ unchanged", preview)
    assert "stack dev is down" in installed.run("falaj down", folder=folder)
    assert installed.processes() == []


def test_a_project_for_a_cloud_is_checked_and_made_in_the_sandbox(installed: Machine) -> None:
    installed.run("falaj new tier --template smb-tier")
    folder = installed.clone / "tier"
    *_, check = MENTIONED["wheel"]
    assert "no findings" in installed.run(check, folder=folder)
    assert re.search(r"\d+ created", installed.run("falaj up --sandbox", folder=folder))
    pack = "pulumi preview --policy-pack $(falaj policies --path residency)"
    lines = f"{pack} --non-interactive && echo JUDGED"
    shell = installed.run(f"falaj shell --sandbox <<'END'\n{lines}\nEND", folder=folder)
    assert "JUDGED" in shell, shell
    assert "residency" in shell
    assert "stack dev is down" in installed.run("falaj down --sandbox", folder=folder)


def test_a_program_with_components_of_its_own(installed: Machine) -> None:
    folder = installed.clone / "own"
    (folder / "components").mkdir(parents=True)
    (folder / "components" / "__init__.py").write_text("OWN = 'mine'\n")
    program = documents.other("library", "python")
    (folder / "__main__.py").write_text(
        f"import components\n{program}\nassert components.OWN == 'mine'\n"
    )
    (folder / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    printed = installed.run("falaj check --stack dev", 1, folder=folder)
    assert re.search(r"own/dev: \d+ resources judged by \d+ rules", printed)
    # As the page says of this program.
    assert "zero-trust-azure-diagnostics" in printed
    assert "17 resources: 1 violation (x)" in printed


def test_an_extra_that_is_missing_is_named_with_the_command(installed: Machine) -> None:
    installed.run("falaj new other-tier --template smb-tier --set falaj:platform=aws")
    printed = installed.run("falaj check", 2, folder=installed.clone / "other-tier")
    assert "'falaj[aws]'" in printed
    assert "pip install" in printed


def test_as_a_tool(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    machine = Machine(tmp_path / "work", tmp_path / "home")
    share_compiled(machine, tmp_path / "home/.local/share/uv/tools/falaj")
    pins = f"-c '{ROOT}/requirements/base.txt'"
    machine.run(
        f"'{UV}' tool install --quiet --python '{sys.executable}' {pins} "
        f"'falaj @ {wheel.as_uri()}'"
    )
    path = machine.environment["PATH"]
    machine.variables["PATH"] = os.pathsep.join([str(tmp_path / "home/.local/bin"), path])
    assert "The life of a stack" in machine.run("falaj --help")
    assert "H200" in machine.run("falaj catalogue gpus")
    assert "falaj:service" in machine.run("falaj settings service")
    assert Path(machine.run("falaj policies --path residency").strip()).is_dir()
    machine.run("falaj new shop")
    printed = machine.run("falaj up", 2, folder=machine.clone / "shop")
    assert "uv tool install 'falaj[local]'" in printed
