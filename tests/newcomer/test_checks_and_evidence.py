"""The documents' commands for checks, evidence and pages, each where only it made things."""

from __future__ import annotations

import json
import re

import pytest

from tests.newcomer import documents
from tests.newcomer.machine import Machine
from tests.newcomer.scenarios import MENTIONED

pytestmark = [pytest.mark.engine, pytest.mark.thorough, pytest.mark.timeout(1_800)]


def test_all_stacks_are_checked(machine: Machine) -> None:
    (check,) = documents.commands("check")
    assert "12 stacks" in machine.run(check)
    assert machine.clean_status() == ""


def test_evidence_of_one_stack(machine: Machine) -> None:
    (report,) = MENTIONED["report"]
    printed = machine.run(f"{report} STACK=aws-smb")
    assert "evidence of 1 stacks: evidence.html" in printed
    assert "sandbox" in (machine.clone / "evidence.html").read_text().lower()
    assert machine.clean_status() == ""


def test_evidence_is_kept_written_again_and_signed(machine: Machine) -> None:
    machine.run("make environment")
    check, arabic, make_key, public, sign, verify, other = documents.commands("evidence")
    assert "no findings" in machine.run(check)
    machine.run(arabic)
    page = machine.clone / "evidence.html"
    assert '<html lang="ar" dir="rtl"' in page.read_text(encoding="utf-8")
    machine.run(make_key)
    machine.run(public)
    machine.run(sign)
    assert '<html lang="en" dir="ltr"' in page.read_text(encoding="utf-8")
    machine.run(verify)
    assert "Verified Successfully" in machine.run(other)
    page.write_text(page.read_text(encoding="utf-8").replace("Falaj", "Falai"), encoding="utf-8")
    machine.run(verify, 1)
    machine.run(other, 1)
    assert machine.clean_status() == ""


def test_the_documentation_is_built_with_every_page(machine: Machine) -> None:
    told, build = MENTIONED["docs"]
    assert re.search(r"(?m)^docs +The documentation", machine.run(told))
    assert "out/docs/index.html" in machine.run(build)
    built = machine.clone / "out" / "docs"
    for page in (machine.clone / "docs").rglob("*.md"):
        name = page.relative_to(machine.clone / "docs").with_suffix(".html")
        assert (built / name).is_file(), name
    assert machine.clean_status() == ""


def test_packs_judge_any_project(machine: Machine) -> None:
    preview, foreign, state, live, formats = documents.commands("packs")
    own = machine.clone.parent / "your-program"
    own.mkdir()
    (own / "Pulumi.yaml").write_text("name: yours\nruntime: python\n")
    (own / "Pulumi.dev.yaml").write_text("config:\n  aws:region: eu-west-1\n")
    (own / "__main__.py").write_text("import pulumi_aws as aws\naws.sns.Topic('news')\n")
    machine.run("make environment")
    machine.run("python3 engine/environment.py --extra aws")
    state_file = {"version": 3, "deployment": {"resources": []}}
    (machine.clone / "export.json").write_text(json.dumps(state_file))
    lines = [
        f"cd {machine.clone}",
        f"{foreign}; echo FOREIGN $?",
        f"{state}; echo STATE $?",
        f"{live}; echo LIVE $?",
        f"{formats}; echo FORMATS $?",
    ]
    printed = machine.run("make shell <<'END'\n" + "\n".join(lines) + "\nEND")
    assert "FOREIGN 1" in printed, printed
    assert "residency-aws-region" in printed
    assert "STATE 0" in printed, printed
    assert "LIVE" in printed
    assert "FORMATS 0" in printed, printed
    assert all(
        (machine.clone / "out" / f"a.{kind}").is_file() for kind in ("sarif", "xml", "json")
    )
    # In the sandbox's shell as well, and there no account is needed.
    lines = [
        f"cd {machine.clone} && {foreign}; echo FOREIGN $?",
        f"cd {own} && pulumi stack select --create dev && {preview}; echo PREVIEW $?",
    ]
    shell = "make shell STACK=aws-smb SANDBOX=1"
    printed = machine.run(f"{shell} <<'END'\n" + "\n".join(lines) + "\nEND")
    assert "FOREIGN 1" in printed, printed
    assert re.search("PREVIEW (255|1)$", printed, re.MULTILINE), printed
    assert printed.count("residency-aws-region") >= 2, printed
    (live_mentioned,) = MENTIONED["packs"]
    assert live.startswith(live_mentioned)


def test_what_there_is_is_listed_by_the_base(machine: Machine) -> None:
    machine.run("make environment")
    top, settings, rules, coverage, suppress, some = MENTIONED["reference"]
    assert "The life of a stack" in machine.run(top)
    assert "falaj:gpuPools.NAME.maxNodes" in machine.run(settings)
    assert "falaj:gpuPools.NAME.maxNodes" in machine.run(some)
    assert "residency-aws-region" in machine.run(rules)
    assert "ISO/IEC 27001 Annex A" in machine.run(coverage)
    assert "CKV" in machine.run(suppress)


def test_each_part_explains_itself(machine: Machine) -> None:
    machine.run("python3 engine/environment.py --extra local")
    for command in documents.commands("parts"):
        assert re.search("(?i)usage: ", machine.run(command)), command
