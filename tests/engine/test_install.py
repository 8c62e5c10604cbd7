"""Which engine is taken, and that nothing half-made ever is. All programs here are fakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from falaj.engine.errors import EngineError
from falaj.engine.install import engine_home, ensure_engine
from falaj.engine.versions import pins

GO = """#!/bin/sh
# A Go that "builds" a pulumi: a script that tells its version.
case "$1" in
version) echo "go version go{go} linux/amd64" ;;
list) echo "go: downloading example.org/one v1.0.0" >&2; printf 'one\\ntwo\\n' ;;
build)
    echo "$$" >> "$GO_LOG"
    {during}
    while [ "$1" != "-o" ]; do shift; done
    printf '#!/bin/sh\\necho v{version}\\n' > "$2"
    chmod +x "$2" ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def pulumi(folder: Path, version: str) -> Path:
    return script(folder / "pulumi", f"#!/bin/sh\necho v{version}\n")


class Machine:
    """A machine without network whose PATH holds only what a test puts there."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.cache = root / "cache"
        self.log = root / "go.log"
        self.lines: list[str] = []
        self.env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "FALAJ_CACHE": str(self.cache),
            "FALAJ_ENGINE_RELEASES": "http://127.0.0.1:1",
            "GO_LOG": str(self.log),
            "HOME": str(root),
        }

    def go(self, *, go: str = "1.26.8", during: str = ":", version: str | None = None) -> None:
        text = GO.format(go=go, during=during, version=version or pins().version)
        script(self.bin / "go", text)

    def builds(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def ensure(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "falaj.engine", "ensure"],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def test_without_any_way_every_reason_is_given(machine: Machine) -> None:
    with pytest.raises(EngineError) as raised:
        ensure_engine(machine.lines.append)
    text = str(raised.value)
    assert "Install pulumi 3.255.0 or newer" in text
    assert "127.0.0.1 cannot be reached" in text
    assert "no `go` command" in text


def test_a_go_that_is_too_old_is_named(machine: Machine) -> None:
    machine.go(go="1.24.9")
    with pytest.raises(EngineError, match=r"is Go 1\.24\.9; .* needs Go 1\.25\.0 or newer"):
        ensure_engine(machine.lines.append)
    assert machine.builds() == 0


def test_a_build_of_another_version_is_refused(machine: Machine) -> None:
    machine.go(version="3.1.0")
    with pytest.raises(EngineError, match=r"got pulumi 3\.1\.0 where 3\.255\.0 was expected"):
        ensure_engine(machine.lines.append)
    assert not engine_home().exists()


def test_a_failing_build_shows_what_go_said_and_leaves_nothing(machine: Machine) -> None:
    machine.go(during="echo 'dial tcp: lookup proxy.example: no such host' >&2; exit 1")
    with pytest.raises(EngineError, match="no such host") as raised:
        ensure_engine(machine.lines.append)
    assert "GOPROXY" in str(raised.value)
    assert [path.name for path in (machine.cache / "engine").iterdir()] == ["v3.255.0.lock"]


def test_a_full_disk_is_called_so(machine: Machine) -> None:
    machine.go(during="echo 'write x: no space left on device' >&2; exit 1")
    with pytest.raises(EngineError, match="no space left while building the engine"):
        ensure_engine(machine.lines.append)


def test_an_installed_engine_comes_first(machine: Machine) -> None:
    machine.go()
    path = pulumi(machine.bin, "3.300.0")
    engine = ensure_engine(machine.lines.append)
    assert (engine.path, engine.version, engine.source) == (path, "3.300.0", "installed")
    assert machine.builds() == 0


def test_an_installed_engine_that_is_too_old_is_passed_over(machine: Machine) -> None:
    machine.go()
    pulumi(machine.bin, "3.254.9")
    assert ensure_engine(machine.lines.append).source == "built"
    assert any("3.254.9, older than 3.255.0" in line for line in machine.lines)


def test_a_later_entry_of_the_path_may_be_new_enough(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi(machine.bin, "3.0.0")
    newer = pulumi(tmp_path / "other", "3.255.0")
    monkeypatch.setenv("PATH", f"{machine.bin}:{newer.parent}:/usr/bin:/bin")
    assert ensure_engine(machine.lines.append).path == newer


def test_an_engine_that_does_not_answer_is_passed_over(machine: Machine) -> None:
    machine.go()
    script(machine.bin / "pulumi", "#!/bin/sh\nexit 3\n")
    assert ensure_engine(machine.lines.append).source == "built"
    assert any("does not tell its version" in line for line in machine.lines)


def test_a_built_engine_is_kept_and_found_again(machine: Machine) -> None:
    machine.go()
    first = ensure_engine(machine.lines.append)
    os.environ["PATH"] = f"{first.path.parent}:{os.environ['PATH']}"  # as in `falaj shell`
    second = ensure_engine(machine.lines.append)
    assert first == second
    assert first.path == engine_home() / "bin" / "pulumi"
    assert machine.builds() == 1


def test_our_language_host_stands_beside_our_engine_only(machine: Machine) -> None:
    machine.go()
    built = ensure_engine(machine.lines.append)
    assert built.language_host == "falaj"
    assert (built.path.parent / "pulumi-language-python").exists()

    pulumi(machine.bin, "3.255.0")
    installed = ensure_engine(machine.lines.append)
    assert installed.language_host == "falaj"
    assert [path.name for path in machine.bin.glob("pulumi*")] == ["pulumi"]
    host = machine.cache / "languagehost"
    assert installed.bin_dirs == [machine.bin, host]
    assert (host / "pulumi-language-python").exists()


@pytest.mark.parametrize("beside", [True, False])
def test_a_vendor_language_host_is_never_replaced(
    machine: Machine, tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi(machine.bin, "3.255.0")
    folder = machine.bin if beside else tmp_path / "elsewhere"
    script(folder / "pulumi-language-python", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{machine.bin}:{folder}:/usr/bin:/bin")
    engine = ensure_engine(machine.lines.append)
    assert engine.language_host == "vendor"
    assert engine.bin_dirs == [machine.bin]
    assert not machine.cache.exists()


def test_our_language_host_refuses_to_run_outside_its_shell(machine: Machine) -> None:
    machine.go()
    host = ensure_engine(machine.lines.append).path.parent / "pulumi-language-python"
    answer = subprocess.run([host], capture_output=True, text=True, check=False, env=machine.env)
    assert answer.returncode == 1
    assert "falaj shell" in answer.stderr


def test_two_runs_at_once_build_once(machine: Machine) -> None:
    machine.go(during="sleep 1")
    runs = [machine.ensure() for _ in range(3)]
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], outputs
    assert machine.builds() == 1


def wait_for_build(machine: Machine) -> None:
    deadline = time.monotonic() + 30
    while machine.builds() == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert machine.builds() == 1


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_engine(machine: Machine, number: signal.Signals) -> None:
    # A build that has begun to write its result, the eighth argument, and goes no further.
    machine.go(during='echo half > "$8"; exec sleep 60')
    run = machine.ensure()
    wait_for_build(machine)
    run.send_signal(number)
    output, _ = run.communicate(timeout=30)
    assert run.returncode != 0
    assert "Traceback" not in output
    assert not engine_home().exists()
    assert gone(int(machine.log.read_text()))

    machine.go()
    assert ensure_engine(machine.lines.append).source == "built"
    left = sorted(path.name for path in (machine.cache / "engine").iterdir())
    assert left == ["v3.255.0", "v3.255.0.lock"]


def test_a_damaged_engine_is_made_again(machine: Machine) -> None:
    machine.go()
    path = ensure_engine(machine.lines.append).path
    path.unlink()
    assert ensure_engine(machine.lines.append).path == path
    assert machine.builds() == 2
