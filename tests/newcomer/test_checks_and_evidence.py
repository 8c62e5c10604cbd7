"""The documents' commands for checks, evidence and pages, each where only it made things."""

from __future__ import annotations

import json
import re

import pytest

from falaj.policies.reports.result import read_result
from tests.newcomer import documents
from tests.newcomer.machine import Machine
from tests.newcomer.scenarios import MENTIONED

pytestmark = [pytest.mark.engine, pytest.mark.thorough, pytest.mark.timeout(1_800)]


def test_all_stacks_are_checked(machine: Machine) -> None:
    (check,) = documents.commands("check")
    assert "12 stacks" in machine.run(f'{check} CHECK_OPTIONS="--json out/check.json"')
    result = read_result((machine.clone / "out" / "check.json").read_text())
    # What charts' controllers may do is waived, where the charts are on this machine.
    waived = {each.name for each in result.stacks if each.outcomes}
    assert waived <= {"aws-platform", "azure-platform", "onprem-cluster"}
    assert not any(each.fails for stack in result.stacks for each in stack.outcomes)
    assert machine.clean_status() == ""


def test_evidence_of_one_stack(settled: Machine) -> None:
    (report,) = MENTIONED["report"]
    printed = settled.run(f"{report} STACK=aws-smb")
    assert "evidence of 1 stacks: evidence.html" in printed
    assert "sandbox" in (settled.clone / "evidence.html").read_text().lower()
    assert settled.clean_status() == ""


def test_evidence_is_kept_written_again_and_signed(settled: Machine) -> None:
    check, arabic, make_key, public, sign, verify, other = documents.commands("evidence")
    assert "no findings" in settled.run(check)
    settled.run(arabic)
    page = settled.clone / "evidence.html"
    assert '<html lang="ar" dir="rtl"' in page.read_text(encoding="utf-8")
    settled.run(make_key)
    settled.run(public)
    settled.run(sign)
    assert '<html lang="en" dir="ltr"' in page.read_text(encoding="utf-8")
    settled.run(verify)
    assert "Verified Successfully" in settled.run(other)
    page.write_text(page.read_text(encoding="utf-8").replace("Falaj", "Falai"), encoding="utf-8")
    settled.run(verify, 1)
    settled.run(other, 1)
    assert settled.clean_status() == ""


def test_the_documentation_is_built_with_every_page(machine: Machine) -> None:
    told, build = MENTIONED["docs"]
    assert re.search(r"(?m)^docs +The documentation", machine.run(told))
    assert "out/docs/index.html" in machine.run(build)
    built = machine.clone / "out" / "docs"
    for page in (machine.clone / "docs").rglob("*.md"):
        name = page.relative_to(machine.clone / "docs").with_suffix(".html")
        assert (built / name).is_file(), name
    assert machine.clean_status() == ""


def test_a_program_of_others_is_judged_without_a_stack_of_it(settled: Machine) -> None:
    alone, given = documents.commands("foreign")
    theirs = settled.clone.parent / "their-program"
    theirs.mkdir()
    (theirs / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (theirs / "__main__.py").write_text(
        "import pulumi\nimport pulumi_aws as aws\n"
        "size = pulumi.Config().require_int('size')\naws.sns.Topic('news')\n"
    )
    settled.run("python3 engine/environment.py --extra aws")
    # As the page says of a value that is missing.
    assert "--config theirs:size=VALUE" in settled.run(f".venv/bin/{alone}", 2)
    printed = settled.run(f".venv/bin/{given}", 1)
    assert "no stack file: judged as stack dev" in printed
    assert "encryption-aws-messaging-at-rest" in printed


def test_packs_judge_any_project(settled: Machine) -> None:
    preview, foreign, state, live, formats = documents.commands("packs")
    own = settled.clone.parent / "your-program"
    own.mkdir()
    (own / "Pulumi.yaml").write_text("name: yours\nruntime: python\n")
    (own / "Pulumi.dev.yaml").write_text("config:\n  aws:region: eu-west-1\n")
    (own / "__main__.py").write_text("import pulumi_aws as aws\naws.sns.Topic('news')\n")
    settled.run("python3 engine/environment.py --extra aws")
    state_file = {"version": 3, "deployment": {"resources": []}}
    (settled.clone / "export.json").write_text(json.dumps(state_file))
    lines = [
        f"cd {settled.clone}",
        f"{foreign}; echo FOREIGN $?",
        f"{state}; echo STATE $?",
        f"{live}; echo LIVE $?",
        f"{formats}; echo FORMATS $?",
    ]
    printed = settled.run("make shell <<'END'\n" + "\n".join(lines) + "\nEND")
    assert "FOREIGN 1" in printed, printed
    assert "residency-aws-region" in printed
    assert "STATE 0" in printed, printed
    assert "LIVE" in printed
    assert "FORMATS 0" in printed, printed
    assert all(
        (settled.clone / "out" / f"a.{kind}").is_file() for kind in ("sarif", "xml", "json")
    )
    # In the sandbox's shell as well, and there no account is needed.
    lines = [
        f"cd {settled.clone} && {foreign}; echo FOREIGN $?",
        f"cd {own} && pulumi stack select --create dev && {preview}; echo PREVIEW $?",
    ]
    shell = "make shell STACK=aws-smb SANDBOX=1"
    printed = settled.run(f"{shell} <<'END'\n" + "\n".join(lines) + "\nEND")
    assert "FOREIGN 1" in printed, printed
    assert re.search("PREVIEW (255|1)$", printed, re.MULTILINE), printed
    assert printed.count("residency-aws-region") >= 2, printed
    (settled.clone / "export.json").unlink()
    (live_mentioned,) = MENTIONED["packs"]
    assert live.startswith(live_mentioned)


def test_what_there_is_is_listed_by_the_base(settled: Machine) -> None:
    top, settings, rules, coverage, suppress, some = MENTIONED["reference"]
    assert "The life of a stack" in settled.run(top)
    assert "falaj:gpuPools.NAME.maxNodes" in settled.run(settings)
    assert "falaj:gpuPools.NAME.maxNodes" in settled.run(some)
    assert "residency-aws-region" in settled.run(rules)
    assert "ISO/IEC 27001 Annex A" in settled.run(coverage)
    assert "CKV" in settled.run(suppress)


def test_each_part_explains_itself(settled: Machine) -> None:
    settled.run("python3 engine/environment.py --extra local")
    for command in documents.commands("parts"):
        assert re.search("(?i)usage: ", settled.run(command)), command
