"""Workloads as processes: their words reach the person, their ends are told apart."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from falaj.components.local import machine
from falaj.components.local.machine import LocalError, StoppedError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.handler import Context
from falaj.components.local.supervision import Program


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a program text as if it were a workload's module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run_text(text: str, *arguments: str, **options: Any) -> dict[str, Any]:
        (tmp_path / "job.py").write_text("import sys, os, signal, time\n" + text)
        context = options.pop("context", Context("thing"))
        return workloads.run(context, "job", arguments, **options)

    return run_text


def test_a_refusal_is_shown_in_its_own_words(run: Any) -> None:
    with pytest.raises(LocalError) as caught:
        run("print('noise\\nerror: no column\\nallowed: a, b', file=sys.stderr); sys.exit(2)")
    assert str(caught.value) == "no column\nallowed: a, b"


def test_a_refusal_without_words_is_told(run: Any) -> None:
    with pytest.raises(LocalError, match="job refused its input without a reason"):
        run("sys.exit(2)")


def test_an_internal_error_is_one_line_with_its_trace_kept_for_the_log(run: Any) -> None:
    with pytest.raises(LocalError) as caught:
        run("raise RuntimeError('broken')", what="the work")
    assert str(caught.value) == "the work failed with status 1: RuntimeError: broken"
    assert "Traceback" in caught.value.details


def test_a_kill_is_named(run: Any) -> None:
    with pytest.raises(LocalError, match="job failed with signal SIGKILL"):
        run("os.kill(os.getpid(), signal.SIGKILL)")


def test_an_answer_that_is_no_object_is_told(run: Any) -> None:
    with pytest.raises(LocalError, match="gave no JSON object; its last line: 'done'"):
        run("print('done')")


def test_a_stop_says_how_to_go_on(run: Any) -> None:
    with pytest.raises(StoppedError, match="the next `pulumi up` resumes"):
        run("sys.exit(75)")


def test_the_last_line_is_the_answer_and_each_line_is_told(run: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    pid_file = tmp_path / "job.pid"
    answer = run("print('one'); print('{\"a\": 1}')", on_line=lines.append, pid_file=pid_file)
    assert answer == {"a": 1}
    assert lines == ["one", '{"a": 1}']
    assert not pid_file.exists()


def test_only_what_is_named_is_handed_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PULUMI_CONFIG_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "VAULT_TOKEN",
        "OPENAI_API_KEY", "PGPASSWORD", "HTTPS_PROXY", "LD_PRELOAD", "PYTHONSTARTUP", "RANK",
    ):  # fmt: skip
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/tmp/compiled")
    answer = run("import json; print(json.dumps(dict(os.environ)))")
    assert "secret" not in answer.values()
    assert answer["PATH"]
    assert (answer["LC_TIME"], answer["CUDA_VISIBLE_DEVICES"]) == ("C", "1")
    assert answer["PYTHONPYCACHEPREFIX"] == "/tmp/compiled"


def test_a_supervisor_that_has_more_hands_on_no_more(tmp_path: Path) -> None:
    """systemd starts services with what the session told it."""
    program = Program(
        name="x", folder=tmp_path, directory=tmp_path, stop_seconds=1, process_marks=(),
        command=(sys.executable, "-c", "import os; print('SECRET' in os.environ)"),
    )  # fmt: skip
    (tmp_path / "supervisor").mkdir()
    done = subprocess.run(
        program.throttled_command, env={**os.environ, "SECRET": "x"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"


def test_cancelling_asks_to_stop_and_waits(run: Any, tmp_path: Path) -> None:
    context = Context("thing")
    text = (
        "def leave(*_):\n"
        f"    time.sleep(0.3); open({str(tmp_path / 'kept')!r}, 'w').write('x'); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, leave); print('ready', flush=True); time.sleep(600)\n"
    )
    begun = threading.Event()
    threading.Thread(target=lambda: (begun.wait(60), context.cancelled.set())).start()
    with pytest.raises(StoppedError):
        run(text, context=context, on_line=lambda _line: begun.set())
    assert (tmp_path / "kept").is_file()


def test_its_children_end_with_it(run: Any, tmp_path: Path) -> None:
    context = Context("thing")
    text = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', "
        f"{str(tmp_path)!r}])\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    with pytest.raises(StoppedError):
        run(text, context=context, on_line=lambda _line: context.cancelled.set())
    deadline = time.monotonic() + 30
    while machine.find_processes(("time.sleep(600)", str(tmp_path))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert context.cancelled.is_set()


def test_options_leave_out_what_is_not_given() -> None:
    given = {"epochs": 3, "rate": 1e-05, "target": None, "name": "a b"}
    assert workloads.options(given) == ["--epochs", "3", "--rate", "1e-05", "--name", "a b"]
