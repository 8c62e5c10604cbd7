"""A check that is ended early leaves nothing behind; a person's options leave nothing out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from falaj.policies.reports.result import read_result
from tests.stacks.conftest import ROOT, Project, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.engine]

PROGRAM = """
import pathlib, time
import pulumi_aws as aws
pathlib.Path("begun").touch()
time.sleep({seconds})
aws.sns.Topic("first")
aws.sns.Topic("second", region="eu-west-1")
"""


def program(project: Project, name: str, seconds: int) -> Path:
    folder = project.root.parent / name
    folder.mkdir()
    venv = f"{{name: python, options: {{virtualenv: {project.root / '.venv'}}}}}"
    (folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: {venv}\n")
    (folder / "Pulumi.dev.yaml").write_text("config:\n  aws:region: me-central-1\n")
    (folder / "__main__.py").write_text(PROGRAM.format(seconds=seconds))
    return folder


def ended(process: psutil.Process) -> bool:
    """Whether a process is over; one that nobody has waited for yet counts as that."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
def test_nothing_goes_on_after_the_end(
    project: Project, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = program(project, f"sleeper-{number.name.lower()}", 300)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    project.stack = ""
    running = project.start("check", "--project", str(folder))
    wait_for((folder / "begun").exists, "the program")
    family = psutil.Process(running.pid).children(recursive=True)
    assert len(family) > 3
    # As a terminal or a CI system does it: the one process that it knows.
    running.send_signal(number)
    printed, _ = running.communicate(timeout=60)
    assert running.returncode == 130, printed
    assert "Traceback" not in printed
    wait_for(lambda: all(ended(each) for each in family), "the end of all", 15)
    assert not list(scratch.glob("falaj-*"))


@pytest.mark.thorough
def test_options_of_a_person_leave_nothing_out(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = program(project, "targeted", 0)
    first = "urn:pulumi:dev::targeted::aws:sns/topic:Topic::first"
    monkeypatch.setenv("PULUMI_OPTION_TARGET", first)
    out = tmp_path / "a.json"
    project.stack = ""
    done = project.falaj("check", "--project", str(folder), "--json", str(out))
    assert done.returncode == 1, done.stdout
    (stack,) = read_result(out.read_text()).stacks
    assert "residency-aws-region" in {
        each.rule for each in stack.outcomes if each.urn.endswith("::second")
    }


def test_a_pack_ends_with_an_engine_that_was_killed() -> None:
    engine = subprocess.Popen(
        [
            sys.executable, "-c",
            "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', "
            "'falaj.policies.governance.__main__'], stdout=subprocess.PIPE); "
            "p.stdout.readline(); print(p.pid, flush=True); p.wait()",
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert engine.stdout is not None
    pack = psutil.Process(int(engine.stdout.readline()))
    engine.kill()
    engine.wait()
    engine.stdout.close()
    wait_for(lambda: ended(pack), "the end of the pack", 15)


def making(running: psutil.Process) -> bool:
    """Whether the engine is making what the first stack stands on."""
    try:
        below = [each.cmdline() for each in running.children(recursive=True)]
    except psutil.NoSuchProcess:
        return False
    return any("preview" in words and "aws-foundation" in words for words in below)


def test_no_further_stack_begins_when_what_one_stands_on_is_interrupted(project: Project) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "falaj.stacks.checking.worker"],
        cwd=project.root, env=project.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert worker.stdin is not None
    task = {"project": str(project.root), "stacks": ["aws-cluster", "aws-foundation"]}
    worker.stdin.write(json.dumps({**task, "given": {}, "strict": None, "grounds": []}))
    worker.stdin.close()
    worker.stdin = None
    wait_for(lambda: making(psutil.Process(worker.pid)), "the foundation")
    os.killpg(worker.pid, signal.SIGINT)
    events, said = worker.communicate(timeout=60)
    assert worker.returncode == 130, said
    assert "Traceback" not in said
    assert [json.loads(line) for line in events.splitlines()] == [
        {"event": "started", "stack": "aws-cluster"}
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_check_ends_while_it_makes_what_a_stack_stands_on(
    project: Project, number: signal.Signals
) -> None:
    project.stack = ""
    running = project.start("check", "--stack", "aws-cluster", "--stack", "aws-workloads")
    wait_for(lambda: making(psutil.Process(running.pid)), "the foundation")
    family = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(number)
    printed, _ = running.communicate(timeout=60)
    assert running.returncode == 130, printed
    assert "Traceback" not in printed
    assert "aws-workloads …" not in printed
    wait_for(lambda: all(ended(each) for each in family), "the end of all", 15)
