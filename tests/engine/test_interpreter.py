from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import language_pb2

from falaj.engine.languagehost import interpreter, inventory, own_server
from falaj.engine.languagehost.interpreter import Interpreter, RuntimeOptionError, resolve
from falaj.engine.languagehost.server import plugin_command, program_command, program_environment


def make_environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_an_unknown_toolchain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeOptionError, match="'conda'; it must be one of pip, uv, poetry"):
        resolve({"toolchain": "conda"}, tmp_path)
    with pytest.raises(RuntimeOptionError, match="must be one of pip, uv, poetry"):
        interpreter.steps({"toolchain": "conda"}, tmp_path, tmp_path)


@pytest.mark.parametrize("options", [{"virtualenv": "env"}, {"toolchain": "uv"}])
def test_a_missing_environment_is_named(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(RuntimeOptionError, match="run `pulumi install`") as raised:
        resolve(options, tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_without_any_python_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PULUMI_PYTHON_CMD", raising=False)
    with pytest.raises(RuntimeOptionError, match="none of python3, python is on the PATH"):
        resolve({}, tmp_path)


def test_without_poetry_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeOptionError, match="poetry, which is not on the PATH"):
        resolve({"toolchain": "poetry"}, tmp_path)


def test_the_virtualenv_is_relative_to_the_project(tmp_path: Path) -> None:
    env = make_environment(tmp_path / "shared" / "env")
    (tmp_path / "project").mkdir()
    found = resolve({"virtualenv": "../shared/env"}, tmp_path / "project")
    assert found.python.samefile(env / "bin" / "python")
    assert found.virtualenv is not None
    assert found.virtualenv.samefile(env)
    assert resolve({"virtualenv": str(env)}, tmp_path / "project").virtualenv == env


def test_uv_looks_beside_the_nearest_lock(tmp_path: Path) -> None:
    env = make_environment(tmp_path / ".venv")
    (tmp_path / "uv.lock").touch()
    inner = tmp_path / "stacks" / "one"
    inner.mkdir(parents=True)
    assert resolve({"toolchain": "uv"}, inner).virtualenv == env


def test_the_environment_is_activated(tmp_path: Path) -> None:
    env = Interpreter("pip", tmp_path / "bin" / "python", tmp_path).environment(
        {"PATH": "/usr/bin", "PYTHONHOME": "/x", "KEEP": "1"}
    )
    assert env["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert env["VIRTUAL_ENV"] == str(tmp_path)
    assert env["KEEP"] == "1"
    assert "PYTHONHOME" not in env


def program(folder: Path, entry: str = ".") -> language_pb2.ProgramInfo:
    return language_pb2.ProgramInfo(
        root_directory=str(folder),
        program_directory=str(folder),
        entry_point=entry,
        options=Struct(),
    )


def test_secrets_stay_off_the_command_line(tmp_path: Path) -> None:
    request = language_pb2.RunRequest(
        info=program(tmp_path), config={"p:key": "hunter2"}, configSecretKeys=["p:key"]
    )
    python = Interpreter("pip", Path("/python"), None)
    assert "hunter2" not in " ".join(program_command(request, python, "127.0.0.1:1"))
    env = program_environment(request, python, {})
    assert env["PULUMI_CONFIG"] == '{"p:key": "hunter2"}'
    assert env["PULUMI_CONFIG_SECRET_KEYS"] == '["p:key"]'


def test_plugins_run_by_their_kind(tmp_path: Path) -> None:
    python = Interpreter("pip", Path("/python"), None)
    request = language_pb2.RunPluginRequest(
        info=program(tmp_path), args=["--logtostderr", "127.0.0.1:1"], kind="analyzer"
    )
    assert plugin_command(request, python)[2:] == [
        "-m",
        "pulumi.policy",
        "--logtostderr",
        "127.0.0.1:1",
        str(tmp_path),
    ]
    request.info.options.update({"ownServer": True})
    assert plugin_command(request, python)[2:] == [
        str(Path(own_server.__file__)),
        str(tmp_path),
        "127.0.0.1:1",
        "--logtostderr",
    ]
    request.kind = "resource"
    assert plugin_command(request, python)[2:] == [str(tmp_path), "--logtostderr", "127.0.0.1:1"]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my-parts"\n')
    assert plugin_command(request, python)[2:5] == ["-m", "pulumi.run.plugin", "my-parts"]
    (tmp_path / "__main__.py").touch()
    assert plugin_command(request, python)[2] == str(tmp_path)


METADATA = """Metadata-Version: 2.4
Name: my-cloud
Version: 1.2.0
Requires-Dist: pulumi<4.0.0,>=3.165.0
Requires-Dist: Parver[test] (>=0.2.1) ; extra == "more"

Requires-Dist: this is the description
"""


def installed(folder: Path, file: str, text: str) -> list[str]:
    """What the inventory of a Python with one package says that the package requires."""
    target = folder / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    command = [sys.executable, "-S", str(Path(inventory.__file__))]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    (entry,) = json.loads(done.stdout)
    assert (entry["name"], entry["version"], entry["plugin"]) == ("my-cloud", "1.2.0", None)
    return entry["requires"]


@pytest.mark.parametrize(
    "file", ["my_cloud-1.2.0.dist-info/METADATA", "my_cloud.egg-info/PKG-INFO", "my.egg-info"]
)
def test_packages_are_listed_however_they_were_installed(tmp_path: Path, file: str) -> None:
    assert installed(tmp_path, file, METADATA) == ["parver", "pulumi"]


def test_requirements_in_a_file_of_their_own_are_read(tmp_path: Path) -> None:
    (tmp_path / "my.egg-info").mkdir()
    (tmp_path / "my.egg-info" / "requires.txt").write_text("pulumi>=3\n\n[more]\nparver\n")
    text = "Name: my-cloud\nVersion: 1.2.0\n"
    assert installed(tmp_path, "my.egg-info/PKG-INFO", text) == ["parver", "pulumi"]


def test_installation_makes_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    steps = interpreter.steps({"virtualenv": "env"}, tmp_path, tmp_path)
    assert steps[0].command[1:] == ["-m", "venv", str(tmp_path / "env")]
    assert steps[1].command[0] == str(tmp_path / "env" / "bin" / "python")
    assert steps[1].command[-1] == str(tmp_path / "requirements.txt")
    make_environment(tmp_path / "env")
    assert len(interpreter.steps({"virtualenv": "env"}, tmp_path, tmp_path)) == 1


def test_installation_of_a_project_without_requirements_does_nothing(tmp_path: Path) -> None:
    assert interpreter.steps({}, tmp_path, tmp_path) == []
