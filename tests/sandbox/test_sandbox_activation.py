"""Nothing real is reached from the sandbox, and the sandbox from nothing real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox import activation
from falaj.sandbox.cloud import MARK
from falaj.sandbox.prediction import made_in_sandbox, refuse_sandbox_state
from falaj.sandbox.sdks import SDKS
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.command.tree import falaj

REAL = {
    "AWS_PROFILE": "prod",
    "AWS_SECRET_ACCESS_KEY": "s",
    "ARM_CLIENT_SECRET": "s",
    "AZURE_CONFIG_DIR": "d",
    "GOOGLE_APPLICATION_CREDENTIALS": "g",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "t",
    "KUBECONFIG": "k",
    "PULUMI_CONFIG_PASSPHRASE": "p",
    "PULUMI_DEBUG_PROVIDERS": "aws:1234",
}


@pytest.fixture
def base(tmp_path: Path) -> dict[str, str]:
    """An environment of a person with real accounts."""
    return {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "FALAJ_HOME": str(tmp_path / "data"),
        "FALAJ_CACHE": str(tmp_path / "cache"),
        **REAL,
    }


def start(folder: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start the provider for AWS as the engine would."""
    (script,) = Path(folder).glob("plugins/resource-aws-v*/pulumi-resource-aws")
    return subprocess.run(
        [script, "127.0.0.1:1"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_own_backend_is_refused(base: dict[str, str]) -> None:
    for url in ("s3://bucket", "file:///elsewhere", ""):
        with pytest.raises(EngineError, match="never share a backend; unset it"):
            activation.environment({**base, "PULUMI_BACKEND_URL": url})
    with pytest.raises(EngineError, match="PULUMI_ACCESS_TOKEN is set"):
        activation.environment({**base, "PULUMI_ACCESS_TOKEN": "pul-1"})
    assert not Path(base["FALAJ_HOME"]).exists()


def test_backend_that_falaj_made_is_left_for_the_sandboxs_own(base: dict[str, str]) -> None:
    default = (Path(base["FALAJ_HOME"]) / "backend").as_uri()
    found = activation.activated({**base, "PULUMI_BACKEND_URL": default})
    assert found["PULUMI_BACKEND_URL"] == default.removesuffix("backend") + "sandbox/backend"
    assert activation.activated(found) == found


@pytest.mark.parametrize("package", SDKS)
def test_real_provider_on_the_path_is_refused(
    base: dict[str, str], tmp_path: Path, package: str
) -> None:
    real = tmp_path / "bin" / f"pulumi-resource-{package}"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    path = os.pathsep.join([base["PATH"], str(real.parent)])
    with pytest.raises(
        EngineError, match=f"{re.escape(str(real))} is on the PATH and would be taken instead"
    ):
        activation.environment({**base, "PATH": path})
    # Also where it came onto the PATH later.
    with pytest.raises(EngineError, match="would be taken instead"):
        activation.check({**activation.activated(base), "PATH": path})


def launches_refuse(
    environ: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """No command of Falaj's runs the engine with those variables, or prints what it needs."""
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    stack = StackFile("dev", Project.find(folder))
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", environ)
        with pytest.raises(EngineError, match=reason):
            Pulumi(stack)
        with pytest.raises(EngineError, match=reason):
            falaj.main(["engine", "env"], standalone_mode=False)


def test_credentials_do_not_reach_the_sandbox(base: dict[str, str]) -> None:
    found = activation.activated(base)
    assert not set(found) & set(REAL)
    assert set(activation.removals(base)) == set(REAL)
    activation.check(found)
    assert activation.is_asked(found)
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in found
    assert Path(found["PULUMI_CONFIG_PASSPHRASE_FILE"]).stat().st_mode & 0o077 == 0


def test_nothing_of_the_sandbox_comes_onto_the_path(base: dict[str, str]) -> None:
    found = activation.activated(base)
    assert found["PATH"] == base["PATH"]
    assert found["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
    names = {path.name for path in Path(found["PULUMI_HOME"]).glob("plugins/*/*")}
    assert names == {f"pulumi-resource-{name}" for name in SDKS}


def test_variable_alone_does_not_make_a_sandbox(base: dict[str, str]) -> None:
    for value in ("1", "true"):
        with pytest.raises(EngineError, match="FALAJ_SANDBOX"):
            activation.check({**base, "FALAJ_SANDBOX": value})
    assert not activation.is_asked({**base, "FALAJ_SANDBOX": "0"})
    activation.check({**base, "FALAJ_SANDBOX": ""})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PULUMI_BACKEND_URL", "s3://state"),
        ("PULUMI_BACKEND_URL", None),
        ("PULUMI_HOME", "/home/me/.pulumi"),
        ("PULUMI_HOME", None),
        ("FALAJ_SANDBOX_CLOUD", None),
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("KUBECONFIG", "/home/me/.kube/config"),
    ],
)
def test_sandbox_that_is_half_real_is_refused_by_program_launcher_and_provider(
    base: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str | None,
) -> None:
    mixed = activation.activated(base)
    home = mixed["PULUMI_HOME"]
    mixed.pop(name, None)
    mixed |= {name: value} if value is not None else {}
    with pytest.raises(EngineError, match="asks for the sandbox, but"):
        activation.check(mixed)
    launches_refuse(mixed, tmp_path, monkeypatch, "asks for the sandbox, but")
    with pytest.raises(EngineError, match="asks for the sandbox, but"):
        activation.require_active(mixed)
    if name in ("PULUMI_HOME", "AWS_ACCESS_KEY_ID"):  # each start of a process takes a second
        done = start(home, mixed)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "asks for the sandbox, but" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("PULUMI_BACKEND_URL", "names the sandbox's state"),
        ("PULUMI_HOME", "names the sandbox's providers"),
    ],
)
def test_real_run_that_is_half_the_sandboxs_is_refused(
    base: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    reason: str,
) -> None:
    left = {**base, name: activation.activated(base)[name]}
    with pytest.raises(EngineError, match=f"{reason}, but this run isn't one in the sandbox"):
        activation.check(left)
    launches_refuse(left, tmp_path, monkeypatch, reason)
    activation.check(base)


def test_provider_left_in_a_real_run_does_not_start(base: dict[str, str]) -> None:
    home = activation.activated(base)["PULUMI_HOME"]
    done = start(home, {**base, "FALAJ_PYTHON": sys.executable})
    assert done.returncode == 1
    assert done.stdout == ""
    assert "it runs in Falaj's sandbox only" in done.stderr


def test_missing_sdks_are_told(base: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"none is installed; .* aws, azure, kubernetes"):
        activation.environment(base)


def test_folder_that_cannot_be_made_is_told(base: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(EngineError, match=r"preparing the sandbox in .* failed"):
        activation.environment(base)


def test_state_of_the_sandbox_is_refused_for_a_real_run() -> None:
    real = {"urn": "urn:real", "outputs": {"bucket": "b"}}
    ours = [{"urn": f"urn:{number}", "outputs": {MARK: "x"}} for number in range(5)]
    deployment = {"deployment": {"resources": [real, *ours]}}
    with pytest.raises(EngineError, match=r"urn:0, urn:1, urn:2 and 2 more\), but the run"):
        refuse_sandbox_state(deployment)
    for harmless in ({}, {"deployment": None}, {"deployment": {"resources": [real, {}]}}):
        refuse_sandbox_state(harmless)
        assert made_in_sandbox(harmless) == []


def test_the_engine_keeps_no_log_of_every_property(base: dict[str, str]) -> None:
    home = Path(activation.environment(base)["PULUMI_HOME"])
    assert (home / "logs").is_file()
    # A folder of an engine that ran before is ours, and goes.
    (home / "logs").unlink()
    (home / "logs").mkdir()
    (home / "logs" / "pulumi-1.log").write_text("")
    activation.environment(base)
    assert (home / "logs").is_file()


def test_what_a_shell_was_given_is_left_and_what_a_person_chose_stays(tmp_path: Path) -> None:
    own = {"FALAJ_HOME": str(tmp_path), "PULUMI_HOME": "h", "PULUMI_CONFIG_PASSPHRASE_FILE": "p"}
    backend = (tmp_path / "backend").as_uri()
    kept = {"FALAJ_HOME": str(tmp_path)}
    assert activation.left({**own, "PULUMI_BACKEND_URL": backend}) == kept
    inside = {"PULUMI_BACKEND_URL": "file:///s", "FALAJ_SANDBOX": "1", "FALAJ_SANDBOX_CLOUD": "c"}
    assert activation.left({**own, **inside}) == kept
    chosen = {**own, "PULUMI_BACKEND_URL": "s3://state"}
    assert activation.left(chosen) == chosen
