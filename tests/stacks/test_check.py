"""`falaj check` and the packs in a real engine: shipped stacks, programs of others, states."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.reports.result import CheckResult, read_result
from falaj.policies.reports.wording import Wording
from falaj.sandbox.store import Store
from tests.stacks.conftest import ROOT, Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]

PROGRAMS = ROOT / "tests" / "policies" / "programs"


def check(project: Project, *arguments: str, out: Path) -> tuple[int, str, CheckResult]:
    project.stack = ""
    done = project.falaj("check", "--json", str(out), *arguments)
    return done.returncode, done.stdout, read_result(out.read_text())


def made(project: Project) -> list[str]:
    store = Store(project.home / "sandbox" / "cloud.sqlite")
    try:
        return [each.urn for each in store.all()]
    finally:
        store.close()


def found(result: CheckResult) -> set[tuple[str, str]]:
    """Which rule failed at which resource."""
    return {
        (each.rule, each.urn.rpartition("::")[2])
        for stack in result.stacks
        for each in stack.outcomes
        if each.fails
    }


@pytest.mark.thorough
def test_shipped_stacks_are_clean_without_a_waiver(project: Project, tmp_path: Path) -> None:
    """Those that the sandbox answers, and one of this machine: each says which it is."""
    before = project.home / "sandbox"
    # `make check` judges all twelve, in tests/newcomer.
    names = ["local", "aws-smb", "onprem-workloads"]
    project.stack = "local"
    project.configure()
    file = project.file
    try:
        status, printed, result = check(
            project,
            *(part for name in names for part in ("--stack", name)),
            *("--sarif", str(tmp_path / "out" / "a.sarif"), "--junit", str(tmp_path / "a.xml")),
            *("--html", str(tmp_path / "a.html"), "--lang", "ar"),
            out=tmp_path / "a.json",
        )
    finally:
        file.unlink()
    assert status == 0, printed
    assert {each.name: each.answered_by for each in result.stacks} == {
        "local": "machine",
        "aws-smb": "sandbox",
        "onprem-workloads": "sandbox",
    }
    assert not any(each.outcomes for each in result.stacks)
    for stack in result.stacks:
        assert re.fullmatch(r"\d+\.\d+\.\d+", stack.pulumi_version)
        assert len(stack.resources) > 5
        assert all(each.source and each.source.file for each in stack.resources if each.place)
        places = {each.place for each in stack.resources} - {"", "none", "global"}
        assert len(places) == (1 if stack.name == "aws-smb" else 0), places
    assert json.loads((tmp_path / "out" / "a.sarif").read_text())["version"] == "2.1.0"
    assert "<testsuites" in (tmp_path / "a.xml").read_text()
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "<html" in page
    assert Wording("ar").plain("band.mixed") in page
    # It has a home of its own, and leaves the person's alone.
    assert not before.exists()
    assert not list(project.root.glob("stacks/*.part"))


@pytest.mark.parametrize(
    "program",
    [
        "plain_aws",
        pytest.param("plain_azure", marks=pytest.mark.thorough),
        pytest.param("plain_kubernetes", marks=pytest.mark.thorough),
    ],
)
def test_a_program_of_ones_own_that_is_right(
    project: Project, program: str, tmp_path: Path
) -> None:
    status, printed, result = check(
        project, "--project", str(PROGRAMS / program), "--stack", "good", out=tmp_path / "a.json"
    )
    assert status == 0, printed
    assert len(result.stacks[0].resources) > 3
    assert (result.stacks[0].answered_by, result.stacks[0].other_providers) == ("sandbox", ())
    assert "Sandbox: nothing real was looked at" in printed


@pytest.mark.parametrize(
    ("program", "mistakes"),
    [
        pytest.param(
            "plain_aws",
            {"web": "zero-trust", "data": "encryption", "copy": "residency"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "plain_azure",
            {"data": "residency", "web": "zero-trust"},
            marks=pytest.mark.thorough,
        ),
        ("plain_kubernetes", {"server": "kubernetes"}),
    ],
)
def test_a_program_of_ones_own_with_mistakes(
    project: Project, program: str, mistakes: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "a.json"
    status, printed, result = check(
        project, "--project", str(PROGRAMS / program), "--stack", "bad", out=out
    )
    assert status == 1, printed
    failed = found(result)
    for name, pack in mistakes.items():
        rules = [rule for rule, at in failed if at == name and rule.startswith(pack)]
        assert rules, f"{name} {pack}: {failed}"
        for rule in rules:
            assert rule in printed
    # Where to look: the line of the program that declared it.
    lines = (PROGRAMS / program / "__main__.py").read_text().splitlines()
    for resource in result.stacks[0].resources:
        if resource.name in mistakes and resource.source:
            assert resource.source.file == "__main__.py"
            assert f'"{resource.name}"' in "".join(
                lines[resource.source.line - 1 : resource.source.line + 1]
            )
    assert {each.name for each in result.stacks[0].resources if each.source} >= set(mistakes)
    if program == "plain_kubernetes":
        evidence_is_made_of_it_later(project, program, out)


def evidence_is_made_of_it_later(project: Project, program: str, out: Path) -> None:
    page = out.with_name("e.html")
    done = project.falaj("report", "--from", str(out), "--out", str(page))
    assert done.returncode == 1, done.stdout
    assert "plain-kubernetes" in page.read_text()
    other = out.with_name("b.json")
    shutil.copy(PROGRAMS / program / "Pulumi.yaml", other)
    done = project.falaj("report", "--from", str(other), "--out", str(page))
    assert done.returncode == 2
    assert "Traceback" not in done.stdout


def own_program(project: Project, text: str, name: str) -> Path:
    folder = project.root.parent / name
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config:\n  aws:region: me-central-1\n")
    (folder / "__main__.py").write_text(text)
    venv = f"{{name: python, options: {{virtualenv: {project.root / '.venv'}}}}}"
    (folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: {venv}\n")
    return folder


TAGS = (
    'tags = {"falaj:owner": "o", "falaj:tenant": "t1", "falaj:data-class": "confidential", '
    '"falaj:cost-center": "c", "falaj:environment": "production"}\n'
)
ABROAD = (
    "import pulumi_aws as aws\n"
    + TAGS
    + 'aws.sns.Topic("first", tags=tags)\naws.sns.Topic("second", region="eu-west-1", tags=tags)\n'
)
UNKNOWN_KEY = (
    "import pulumi_aws as aws\n"
    + TAGS
    + 'queue = aws.sqs.Queue("queue", region="me-central-1", tags=tags)\n'
    'aws.cloudwatch.LogGroup("logs", kms_key_id=queue.arn, retention_in_days=365, tags=tags)\n'
)


@pytest.mark.parametrize(
    ("name", "text", "pack", "said"),
    [
        ("abroad", ABROAD, "residency", "eu-west-1"),
        ("unseen", UNKNOWN_KEY, "encryption", "kmsKeyId"),
    ],
)
def test_plain_pulumi_up_is_blocked_in_its_preview(
    project: Project, name: str, text: str, pack: str, said: str
) -> None:
    folder = own_program(project, text, name)
    project.in_sandbox(folder, ["pulumi", "stack", "init", "dev"])
    packs = ["--policy-pack", str(project.root / "policies" / pack)]
    done = project.in_sandbox(
        folder, ["pulumi", "up", "--yes", "-s", "dev", "--non-interactive", *packs]
    )
    assert done.returncode != 0
    assert re.search(rf"\[mandatory\].*{pack}-", done.stdout), done.stdout
    assert said in done.stdout
    assert not [urn for urn in made(project) if f"::{name}::" in urn]


def test_values_known_only_in_the_update_block_there_as_well(project: Project) -> None:
    """With the preview left out: what was unknown is judged before it is made."""
    folder = own_program(
        project,
        "import pulumi_aws as aws\n" + TAGS + 'first = aws.sns.Topic("first", tags=tags)\n'
        'aws.sns.Topic("second", region=first.arn.apply(lambda _: "eu-west-1"), tags=tags)\n',
        "late",
    )
    project.in_sandbox(folder, ["pulumi", "stack", "init", "dev"])
    packs = ["--policy-pack", str(project.root / "policies" / "residency")]
    up = ["pulumi", "up", "--yes", "-s", "dev", "--non-interactive", *packs]
    done = project.in_sandbox(folder, up)
    assert done.returncode != 0
    assert "INDETERMINATE" in done.stdout
    assert not [urn for urn in made(project) if "::late::" in urn]
    done = project.in_sandbox(folder, [*up, "--skip-preview"])
    assert done.returncode != 0
    assert "eu-west-1" in done.stdout
    assert not [urn for urn in made(project) if urn.endswith("::second")]


OWN_RULES = """
rules:
  - id: governance-acme-display-name
    title: Topics say what they are for
    severity: low
    types: ["aws:sns/topic:Topic"]
    remediation: Set displayName.
    requirements: [{path: displayName, denied: [test], absent: nobody knows what it is for}]
"""


def test_a_rule_of_ones_own_judges_and_is_reported(project: Project, tmp_path: Path) -> None:
    text = "import pulumi_aws as aws\n" + TAGS
    text += (
        'aws.sns.Topic("first", tags=tags)\naws.sns.Topic("second", display_name="b", tags=tags)'
    )
    folder = own_program(project, text, "ruled")
    (folder / "rules.yaml").write_text(OWN_RULES)
    with (folder / "Pulumi.dev.yaml").open("a") as settings:
        settings.write("  falaj:policies:\n    rules: [rules.yaml]\n")
    asked = ("--project", str(folder), "--stack", "dev")
    status, printed, result = check(project, *asked, out=tmp_path / "a.json")
    assert status == 1, printed
    own = {(rule, at) for rule, at in found(result) if "acme" in rule}
    assert own == {("governance-acme-display-name", "first")}
    assert "nobody knows what it is for" in printed
    assert "warning" not in printed
    (rule,) = [each for each in result.rules if each.id == "governance-acme-display-name"]
    assert (rule.pack, rule.severity) == ("governance", "low")
    # A type that nothing has is warned of.
    (folder / "rules.yaml").write_text(OWN_RULES.replace("topic:Topic", "topik:Topik"))
    _, printed, _ = check(project, *asked, out=tmp_path / "c.json")
    assert "warning: the rule governance-acme-display-name names the type aws:sns/topik" in printed
    # A table that can't be used keeps the stack from being called clean.
    (folder / "rules.yaml").write_text(OWN_RULES.replace("low", "lowest"))
    status, printed, _ = check(project, *asked, out=tmp_path / "b.json")
    assert status == 2, printed
    assert "severity: Input should be 'critical'" in printed


def test_a_falaj_stack_that_violates_is_not_begun(project: Project) -> None:
    project.stack = "aws-smb"
    settings = project.file.read_text()
    project.file.write_text(settings + '  falaj:policies:\n    requiredTags: ["falaj:secret"]\n')
    try:
        done = project.falaj("up", "--sandbox")
        assert done.returncode != 0
        assert "falaj:secret" in done.stdout
        assert not [urn for urn in made(project) if urn.startswith("urn:pulumi:aws-smb::")]
    finally:
        project.file.write_text(settings)
        project.falaj("down", "--sandbox")


def export(resources: list[dict[str, Any]]) -> str:
    return json.dumps({"version": 3, "deployment": {"resources": resources}})


def test_an_exported_state(project: Project, tmp_path: Path) -> None:
    urn = "urn:pulumi:live::shop::"
    provider = f"{urn}pulumi:providers:aws::uae"
    state = tmp_path / "export.json"
    state.write_text(
        export(
            [
                {"urn": provider, "type": "pulumi:providers:aws", "id": "i", "custom": True,
                 "inputs": {"region": "me-central-1"}},
                {"urn": f"{urn}aws:ebs/volume:Volume::disk", "type": "aws:ebs/volume:Volume",
                 "id": "vol-1", "custom": True, "provider": f"{provider}::i",
                 "inputs": {"availabilityZone": "me-central-1a", "size": 10}},
            ]
        )
    )  # fmt: skip
    status, printed, result = check(project, "--state", str(state), out=tmp_path / "a.json")
    assert status == 1, printed
    assert (result.stacks[0].name, result.stacks[0].answered_by) == ("live", "exported-state")
    assert any(rule.startswith("encryption") and at == "disk" for rule, at in found(result))


def refused(project: Project, *arguments: str) -> str:
    project.stack = ""
    done = project.falaj("check", *arguments)
    assert done.returncode == 2, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stack", "nowhere"], "there is no stack 'nowhere'"),
        (["--state", "missing.json"], "missing.json can't be read"),
        (["--state", "Pulumi.yaml"], "can't be read"),
        (["--state", "a", "--live"], "exclude each other"),
        (["--jobs", "0"], "--jobs"),
        (["--live", "--stack", "aws-smb"], "the backend has no stack"),
    ],
)
def test_what_cannot_be_checked_says_why(
    project: Project, arguments: list[str], said: str
) -> None:
    assert said in refused(project, *arguments)


def test_a_program_that_fails_could_not_be_checked(project: Project, tmp_path: Path) -> None:
    folder = own_program(project, "raise ValueError('the table is missing')\n", "broken")
    out = tmp_path / "a.json"
    status, printed, result = check(project, "--project", str(folder), out=out)
    assert status == 2, printed
    assert "the table is missing" in "".join(result.stacks[0].errors)
    assert "could not be checked" in printed
    assert result.stacks[0].answered_by == "nobody"


def test_the_file_of_a_stack_that_runs_here_is_left_as_it_is(
    project: Project, tmp_path: Path
) -> None:
    """A check has a backend and a passphrase of its own: their salt would lock the stack."""
    project.stack = "local"
    project.configure()
    file = project.file
    salt = "encryptionsalt: v1:mlY4cTEAQtU=:v1:aJWoQQgysN2Hi5GI:2kL90T2avbrbX/vbnF2GybyHzEq9Cg==\n"
    file.write_text(file.read_text() + salt)
    before = file.read_bytes()
    try:
        with socket.create_server(("127.0.0.1", project.port)):
            status, printed, result = check(
                project, "--stack", "local", out=tmp_path / "result.json"
            )
        after = file.read_bytes()
    finally:
        file.unlink()
    assert status == 0, printed
    assert result.stacks[0].resources
    assert after == before


DYNAMIC = (
    "import pulumi_aws as aws\nfrom pulumi import dynamic\n" + TAGS + "\n\n"
    "class Own(dynamic.ResourceProvider):\n"
    "    def create(self, props):\n"
    '        return dynamic.CreateResult("id", props)\n\n\n'
    "class Thing(dynamic.Resource):\n    pass\n\n\n"
    'Thing(Own(), "own", {})\n'
    'aws.sns.Topic("first", region="me-central-1", tags=tags)\n'
)


@pytest.mark.thorough
def test_a_provider_of_the_programs_own_is_not_taken_for_the_sandbox(
    project: Project, tmp_path: Path
) -> None:
    folder = own_program(project, DYNAMIC, "own")
    _, printed, result = check(project, "--project", str(folder), out=tmp_path / "a.json")
    (stack,) = result.stacks
    assert not stack.errors, printed
    assert (stack.answered_by, stack.other_providers) == ("sandbox-and-others", ("pulumi-python",))
    assert "Sandbox in part: other providers answered as well (pulumi-python)" in printed


@pytest.mark.thorough
def test_a_state_that_the_sandbox_wrote_is_told_from_a_real_one(
    project: Project, tmp_path: Path
) -> None:
    text = "import pulumi_aws as aws\n" + TAGS + 'aws.sns.Topic("first", tags=tags)\n'
    folder = own_program(project, text, "written")
    project.in_sandbox(folder, ["pulumi", "stack", "init", "dev"])
    done = project.in_sandbox(folder, ["pulumi", "up", "--yes", "-s", "dev", "--skip-preview"])
    assert done.returncode == 0, done.stdout
    state, out = tmp_path / "state.json", tmp_path / "a.json"
    project.in_sandbox(folder, ["pulumi", "stack", "export", "-s", "dev", "--file", str(state)])
    _, _, from_file = check(project, "--state", str(state), out=out)
    assert from_file.stacks[0].answered_by == "sandbox-state"
    assert from_file.stacks[0].state_written is not None
    assert from_file.pulumi_versions == []
    # A shell of the sandbox has its backend for the real one.
    falaj = [sys.executable, "-m", "falaj.stacks.command", "check", "--project", str(folder)]
    done = project.in_sandbox(folder, [*falaj, "--live", "--stack", "dev", "--json", str(out)])
    found = read_result(out.read_text())
    assert found.stacks[0].answered_by == "sandbox-state", done.stdout
    assert found.pulumi_versions != []
