"""The documents' commands for clouds and clusters, each in an environment that it made alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.newcomer import documents
from tests.newcomer.machine import Machine
from tests.newcomer.scenarios import MENTIONED

pytestmark = [pytest.mark.engine, pytest.mark.thorough, pytest.mark.timeout(1_800)]

TEMPLATES = Path(__file__).resolve().parents[2] / "stacks" / "templates"


def finished(printed: str) -> str:
    """What an update came to, in the command's own words."""
    return re.findall(r"(?m)^(?: *resources:| *drift:|Changes  ) +(.*)$", printed)[-1]


def test_a_preview_of_a_cloud_needs_no_account(machine: Machine) -> None:
    (preview,) = documents.commands("preview")
    printed = machine.run(preview)
    assert re.search(r"(?m)^Changes +\d+ to create$", printed)
    assert re.search(r"(?m)^Policies +no violations: ", printed)
    # The page shows what is printed, but for what it leaves out.
    for piece in documents.other("preview", "text").split("…"):
        assert " ".join(piece.split()) in " ".join(printed.split())
    for mentioned in MENTIONED["preview"]:
        command = mentioned.replace("FILE", "../prices.yaml")
        assert "h200" in machine.run(f".venv/bin/{command} --stack aws-cluster --sandbox")
    assert "prices:" in (machine.clone.parent / "prices.yaml").read_text()
    assert machine.clean_status() == ""


def test_two_stacks_stand_beside_each_other(settled: Machine) -> None:
    up, beside, refresh, *downs = documents.commands("cloud")
    assert re.search(r"\d+ created", settled.run(up))
    assert re.search(r"\d+ created", settled.run(beside))
    assert "no drift" in settled.run(refresh)
    assert re.fullmatch(r"\d+ unchanged", finished(settled.run(up)))
    for down in downs:
        assert "is down" in settled.run(down)
    assert settled.clean_status() == ""
    assert "nothing exists in the sandbox" in settled.run(".venv/bin/falaj sandbox list")


def test_preflight_without_credentials_says_so(settled: Machine) -> None:
    (preflight,) = documents.commands("preflight")
    printed = settled.run(preflight, 2)
    assert "could not be asked" in printed
    assert "nothing was confirmed" in printed


def test_the_catalogue_needs_nothing_but_the_base(machine: Machine) -> None:
    machine.run("make environment")
    for command in documents.commands("catalogue"):
        assert "GPU" in machine.run(command)


def test_the_sandbox_is_looked_at_changed_and_made_to_fail(settled: Machine) -> None:
    up, listed, drift, added, fault, told = documents.commands("sandbox")
    settled.run(up)
    assert "aws:kms/key:Key" in settled.run(listed)
    assert "changed" in settled.run(drift)
    assert "drift: 1 updated" in settled.run(up.replace("make up", "make refresh"))
    assert "shop exists: Z" in settled.run(added)
    assert "fault 1" in settled.run(fault)
    assert "lose" in settled.run(told)
    settled.run(".venv/bin/falaj sandbox fault clear")
    settled.run(up.replace("make up", "make down"))
    settled.run(".venv/bin/falaj sandbox reset")


def test_a_stack_is_drawn_before_and_after_it_is_made(settled: Machine) -> None:
    planned, now, exported, made = documents.commands("draw")
    out = settled.clone / "out"
    assert "the backend has no stack 'aws-smb'" in settled.run(now, 2)
    assert "──▶" in settled.run(f"{planned} --json out/before.json")
    assert (out / "aws-smb.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "An empty stack" in settled.run(now)
    settled.run("make up STACK=aws-smb SANDBOX=1")
    assert "WHAT MAY TALK TO WHAT" in settled.run(f"{now} --json out/after.json")
    export = f"pulumi stack export --file {settled.clone}/out/export.json"
    settled.run(f"make shell STACK=aws-smb SANDBOX=1 <<'END'\n{export}\nEND")
    assert "KEYS AND WHAT THEY ENCRYPT" in settled.run(exported)
    again = made.replace("--width 120", "--width 120 --json out/again.json")
    assert "KEYS AND WHAT THEY ENCRYPT" in settled.run(again)
    names = ("before", "after", "again")
    before, after, planned_again = (
        json.loads((out / f"{name}.json").read_text(encoding="utf-8")) for name in names
    )
    assert {each["id"] for each in before["nodes"]} == {each["id"] for each in after["nodes"]}
    assert before["edges"] == after["edges"]
    assert planned_again["nodes"] == after["nodes"]
    settled.run("make down STACK=aws-smb SANDBOX=1")
    assert settled.clean_status() == ""


def test_a_project_from_a_template(settled: Machine) -> None:
    new, up, down = documents.commands("template")
    assert "falaj up --sandbox --stack dev" in settled.run(new)
    assert re.search(r"\d+ created", settled.run(up))
    assert "stack dev is down" in settled.run(down)


@pytest.mark.parametrize("template", sorted(p.parent.name for p in TEMPLATES.glob("*/*.yaml")))
def test_every_template_through_pulumi_new(settled: Machine, template: str) -> None:
    """`pulumi new` in Falaj's shell, as who knows Pulumi does it."""
    listing, new = MENTIONED["template"]
    assert template in settled.run(f".venv/bin/{listing}")
    folder = settled.clone.parent / template
    folder.mkdir()
    source = settled.clone / "stacks" / "templates" / template
    made = new.replace("FOLDER-OF-A-TEMPLATE", str(source))
    # Others come up and go in test_wheel.py and tests/stacks; here it's the way there.
    lines = [
        f"cd {folder}",
        f"{made} --yes --name {template}-project --stack dev || exit 1",
        "falaj preview || exit 1",
    ]
    shell = "make shell STACK=azure-smb SANDBOX=1"
    if template == "local":
        shell = "make shell"
        # Tests of other documents may use the port of the template at the same time.
        lines.insert(2, "falaj config set falaj:service.port 28443 || exit 1")
    printed = settled.run(f"{shell} <<'END'\n" + "\n".join(lines) + "\nEND")
    assert re.search(r"(?m)^Changes +\d+ to create$", printed), printed
    # Advice fits where one stands: such a folder has no Makefile.
    assert "make " not in printed.partition("[3/3]")[2]


def test_the_components_in_a_program_of_ones_own(machine: Machine) -> None:
    machine.run("make environment")
    (install,) = documents.commands("library")
    machine.run(install)
    folder = machine.clone.parent / "own"
    # A folder with the name of one of Falaj's is the program's own.
    (folder / "components").mkdir(parents=True)
    (folder / "components" / "__init__.py").write_text("OWN = 'mine'\n")
    program = documents.other("library", "python")
    (folder / "__main__.py").write_text(f"import components\n{program}\nprint(components.OWN)\n")
    (folder / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    printed = machine.run("../falaj/.venv/bin/falaj check --stack dev", 1, folder=folder)
    assert re.search(r"own/dev: \d+ resources judged by \d+ rules", printed)
    # As the page says of this program.
    assert "zero-trust-azure-diagnostics" in printed
    assert "17 resources: 1 violation (x)" in printed
    component, rules = MENTIONED["pydoc"]
    assert re.search(r"max_nodes: .*\n.*Default", machine.run(component))
    assert "is_unknown(value" in machine.run(rules)


def test_a_platform_without_a_cluster(settled: Machine) -> None:
    (preview,) = documents.commands("onprem")
    assert re.search(r"\d{3} to create", settled.run(preview))
    (images,) = MENTIONED["onprem"]
    assert "images and charts" in settled.run(f".venv/bin/{images}")


def test_a_teams_workloads_bring_what_they_stand_on(settled: Machine) -> None:
    (preview,) = documents.commands("workloads")
    printed = settled.run(preview)
    assert "aws-workloads stands on aws-cluster" in printed
    assert re.search(r"\d+ to create", printed)
