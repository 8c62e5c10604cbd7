"""The environment's stamp and its errors; uv, pip and venv are stood in for by a recorder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from falaj.engine import environment
from falaj.engine.environment import Stamp, ensure_environment, main
from falaj.engine.errors import EngineError
from falaj.engine.progress import silent

SCRIPT = Path(environment.__file__)


class Recorder:
    """Stands in for the commands: `venv` is made for real (without pip), the rest is noted."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.fail = ""
        self.without_pip = False

    def run(self, command: list[str], *args: Any, **kwargs: Any) -> None:
        self.commands.append(command)
        if self.fail and self.fail in command:
            raise EngineError(f"{self.fail} failed")
        if "venv" in command:
            self.without_pip = "--without-pip" in command
            folder = command[-1]
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)

    def names(self) -> list[str]:
        """The commands by their telling word, and forget them."""
        words = ("venv", "sync", "-e", "--require-hashes")
        found = [next(word for word in words if word in command) for command in self.commands]
        self.commands = []
        return found


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(environment, "_run", made.run)
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "project"
    (root / "requirements").mkdir(parents=True)
    for name in ("bootstrap", "base", "local", "dev"):
        (root / "requirements" / f"{name}.txt").write_text(f"uv==1.0\n{name}==1.0\n")
    (root / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(environment, "ROOT", root)
    monkeypatch.setattr(environment, "REQUIREMENTS", root / "requirements")
    return made


def test_an_unknown_extra_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="unknown extra 'gpu'; it must be one of dev, local"):
        ensure_environment(tmp_path / "venv", ["gpu"], silent)
    assert recorder.commands == []


def test_a_python_without_venv_is_explained(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"lacks the module venv and ensurepip; .* python3-venv"):
        ensure_environment(tmp_path / "venv", [], silent)
    assert recorder.commands == []


def test_a_folder_that_is_no_environment_is_left_alone(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").touch()
    with pytest.raises(EngineError, match="is no virtual environment; name another folder"):
        ensure_environment(tmp_path / "thesis", [], silent)
    assert (tmp_path / "thesis" / "chapter.txt").exists()
    assert recorder.commands == []


def test_a_failed_step_is_done_again(recorder: Recorder, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    recorder.fail = "-e"
    with pytest.raises(EngineError, match="-e failed"):
        ensure_environment(venv, ["dev"], silent)
    stamp = Stamp.read(venv)
    assert stamp is not None
    assert not stamp.complete
    recorder.fail = ""
    recorder.names()
    assert ensure_environment(venv, [], silent)
    assert "venv" not in recorder.names()
    stamp = Stamp.read(venv)
    assert stamp is not None
    assert (stamp.complete, stamp.extras) == (True, ["dev"])


def test_a_second_run_does_nothing(recorder: Recorder, tmp_path: Path) -> None:
    assert ensure_environment(tmp_path / "venv", [], silent)
    assert recorder.names() == ["venv", "--require-hashes", "--require-hashes", "-e"]
    assert not ensure_environment(tmp_path / "venv", [], silent)
    assert recorder.names() == []


def test_extras_add_up(recorder: Recorder, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    ensure_environment(venv, ["local"], silent)
    recorder.names()
    assert ensure_environment(venv, ["dev"], silent)
    *_, install = recorder.commands
    assert [Path(word).stem for word in install if word.endswith(".txt")] == [
        "bootstrap",
        "base",
        "dev",
        "local",
    ]
    # What is there is as it was locked: nothing has to go, and the project is there.
    assert {"sync", "-e"}.isdisjoint(recorder.names())
    assert not ensure_environment(venv, ["local"], silent)


def test_an_extra_beside_a_changed_lock_brings_all_up_to_date(
    recorder: Recorder, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    ensure_environment(venv, ["local"], silent)
    recorder.names()
    (environment.REQUIREMENTS / "local.txt").write_text("changed==2.0\n")
    assert ensure_environment(venv, ["dev"], silent)
    assert recorder.names()[-2:] == ["sync", "-e"]


@pytest.mark.parametrize(
    ("version", "without"), [("26.3", True), ("22.3.1", True), ("22.2", False), (None, False)]
)
def test_the_pip_of_who_runs_it_installs_where_it_can(
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    without: bool,
) -> None:
    def version_of(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    venv = tmp_path / "venv"
    ensure_environment(venv, [], silent)
    assert recorder.without_pip == without
    _, install, *_ = recorder.commands
    # The recorder's environments have no pip, whatever was asked for.
    assert install[:5] == [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]


def test_an_environment_s_own_pip_is_used_once_it_is_there(tmp_path: Path) -> None:
    pip = tmp_path / "lib" / "python3.11" / "site-packages" / "pip" / "__main__.py"
    pip.parent.mkdir(parents=True)
    pip.touch()
    assert environment._pip(tmp_path) == [str(tmp_path / "bin" / "python"), "-m", "pip"]


def test_a_package_with_rules_of_ones_own_stays(recorder: Recorder, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    ensure_environment(venv, [], silent)
    recorder.names()
    (packages,) = (venv / "lib").glob("python*/site-packages")
    for name, group in (("other", "console_scripts"), ("acme", "falaj.rules")):
        offers = packages / f"{name}-1.0.dist-info" / "entry_points.txt"
        offers.parent.mkdir()
        offers.write_text(f"[{group}]\na = acme.rules:RULES\n")
        (environment.REQUIREMENTS / "base.txt").write_text(f"for-{name}==1.0\n")
        ensure_environment(venv, [], silent)
        assert ("sync" in recorder.names()) == (name == "other")


@pytest.mark.parametrize("name", ["requirements/base.txt", "pyproject.toml"])
def test_a_changed_lock_is_installed(recorder: Recorder, tmp_path: Path, name: str) -> None:
    venv = tmp_path / "venv"
    ensure_environment(venv, [], silent)
    recorder.names()
    with (environment.ROOT / name).open("a") as file:
        file.write("# changed\n")
    assert ensure_environment(venv, [], silent)
    assert "venv" not in recorder.names()


def test_an_extra_that_is_not_used_changes_nothing(recorder: Recorder, tmp_path: Path) -> None:
    ensure_environment(tmp_path / "venv", [], silent)
    (environment.REQUIREMENTS / "local.txt").write_text("changed==2.0\n")
    assert not ensure_environment(tmp_path / "venv", [], silent)


@pytest.mark.parametrize("damage", ["python", "moved", "stamp"])
def test_a_damaged_environment_is_repaired(
    recorder: Recorder, tmp_path: Path, damage: str
) -> None:
    venv = tmp_path / "venv"
    ensure_environment(venv, ["dev"], silent)
    recorder.names()
    if damage == "python":
        (venv / "bin" / "python").unlink()  # as after the base Python was removed
    elif damage == "moved":
        venv = venv.rename(tmp_path / "moved")
        (venv / "lib").rename(venv / "library")
    else:
        (venv / environment.STAMP).write_text("{")
    assert ensure_environment(venv, [], silent)
    assert ("venv" in recorder.names()) == (damage != "stamp")


def test_two_runs_at_once_follow_each_other(recorder: Recorder, tmp_path: Path) -> None:
    done: list[bool] = []

    def run() -> None:
        done.append(ensure_environment(tmp_path / "venv", [], silent))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, True]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "no space left"),
        ("error: Failed to fetch https://x: dns error", "the package index cannot be reached"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES: do not match the hashes", "was pinned"),
        ("something new", "failed"),
    ],
)
def test_failures_are_explained(said: str, expected: str) -> None:
    progress = environment.Progress(silent, "installing")
    command = [sys.executable, "-c", f"print({said!r}); raise SystemExit(1)"]
    with pytest.raises(EngineError, match=expected) as raised:
        environment._run(command, progress)
    assert said in str(raised.value)


def test_pip_settings_reach_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("UV_FIND_LINKS", "/theirs")
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    env = environment._uv_environment(python)
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert env["UV_FIND_LINKS"] == "/theirs"  # what was said to uv itself stands


def test_the_command_reports_errors_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--extra", "gpu", "--venv", ".venv-of-a-test"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown extra 'gpu'")


def test_it_runs_as_a_script_without_anything_installed(tmp_path: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    answer = subprocess.run(
        [python, "-S", SCRIPT, "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert answer.returncode == 0, answer.stderr
    assert "--extra" in answer.stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_project_in_a_folder_with_an_arabic_name_is_found_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, locale: str
) -> None:
    """Python reads such a line before anything can tell it how, and else it doesn't start."""
    root = tmp_path / "مشروع فلج"
    packages = root / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    line = packages / "__editable__.falaj-0.1.0.pth"
    line.write_text(f"{root}\n", encoding="utf-8")
    monkeypatch.setattr(environment, "ROOT", root)
    environment.point_from(packages)
    ask = "import site, sys; site.addsitedir(sys.argv[1]); print(ascii(sys.path[-1]))"
    found = subprocess.run(
        [sys.executable, "-c", ask, str(packages)], env={"LC_ALL": locale}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (found.stdout.strip(), found.stderr) == (ascii(str(root)), "")


def test_one_in_another_folder_is_named_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = tmp_path / "__editable__.falaj-0.1.0.pth"
    line.write_text("/project\n")
    for root in ("/project", "/مشروع"):
        monkeypatch.setattr(environment, "ROOT", Path(root))
        environment.point_from(tmp_path)
        assert line.read_text() == "/project\n"
