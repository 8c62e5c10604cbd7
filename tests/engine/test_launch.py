from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from falaj.engine.__main__ import main
from falaj.engine.errors import EngineError
from falaj.engine.install import Engine
from falaj.engine.launch import additions, run

FAKE = """#!/bin/sh
case "$1" in
version) echo v3.255.0 ;;
exit) exit "$2" ;;
die) kill -9 $$ ;;
show) pwd; echo "$PULUMI_BACKEND_URL"; command -v pulumi ;;
wait) echo $$ > "$2"; trap 'echo told >> "$2"; exit 9' TERM; while :; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bin" / "pulumi"
    path.parent.mkdir()
    path.write_text(FAKE)
    path.chmod(0o755)
    for name in list(os.environ):
        if name.startswith("PULUMI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    return path


def test_an_engine_that_cannot_start_is_named(
    pulumi: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = Engine(tmp_path / "gone", "3.255.0", "installed", "vendor", [])
    assert run(["up"], tmp_path, engine=gone) == 127
    assert f"error: {tmp_path}/gone cannot be started: No such file" in capfd.readouterr().err
    with pytest.raises(EngineError, match="cannot be started"):
        run(["up"], tmp_path / "nowhere")


def test_exit_codes_are_passed_on(pulumi: Path, tmp_path: Path) -> None:
    assert run(["exit", "0"], tmp_path) == 0
    assert run(["exit", "42"], tmp_path) == 42
    assert run(["die"], tmp_path) == 137


def test_plain_pulumi_finds_everything(
    pulumi: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["show"], tmp_path) == 0
    folder, backend, command = capfd.readouterr().out.splitlines()
    assert folder == str(tmp_path)
    assert backend == f"file://{tmp_path}/data/backend"
    assert command == str(pulumi)


def test_our_python_comes_first_and_no_entry_twice(pulumi: Path) -> None:
    engine = Engine(pulumi, "3.255.0", "installed", "vendor", [pulumi.parent])
    once = additions(engine)
    entries = once["PATH"].split(os.pathsep)
    assert entries[:2] == [str(Path(sys.prefix) / "bin"), str(pulumi.parent)]
    assert additions(engine, {**os.environ, **once})["PATH"] == once["PATH"]
    assert len(set(entries)) == len(entries)


def test_env_prints_exports_without_secrets(
    pulumi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env"]) == 0
    text = capsys.readouterr().out
    assert all(line.startswith("export ") for line in text.splitlines())
    assert f"PULUMI_CONFIG_PASSPHRASE_FILE={tmp_path}/data/passphrase" in text
    assert (tmp_path / "data" / "passphrase").read_text().strip() not in text


def test_env_survives_odd_folders(
    pulumi: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "it's $HOME here"
    monkeypatch.setenv("FALAJ_HOME", str(home))
    assert main(["env"]) == 0
    script = capsys.readouterr().out + 'printf %s "$PULUMI_CONFIG_PASSPHRASE_FILE"'
    answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == str(home / "passphrase")


def test_doctor_tells_what_is_there(pulumi: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert f"ok    engine: {pulumi} (installed)" in capsys.readouterr().out


def test_doctor_tells_what_is_missing(
    pulumi: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi.unlink()
    monkeypatch.setenv("FALAJ_ENGINE_RELEASES", "http://mirror.example")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "no    release site: FALAJ_ENGINE_RELEASES is" in text
    assert "no    Go for a build: there is no `go` command" in text


def start(note: Path) -> tuple[subprocess.Popen[bytes], int]:
    code = (
        f"import sys; from falaj.engine.launch import run; sys.exit(run(['wait', {str(note)!r}]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return process, int(note.read_text())


def test_a_request_to_stop_is_handed_on(pulumi: Path, tmp_path: Path) -> None:
    process, _ = start(tmp_path / "note")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 9
    assert "told" in (tmp_path / "note").read_text()


def test_the_engine_is_told_when_its_starter_is_killed(pulumi: Path, tmp_path: Path) -> None:
    process, pid = start(tmp_path / "note")
    process.kill()
    process.wait(30)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(pid)
    assert "told" in (tmp_path / "note").read_text()
