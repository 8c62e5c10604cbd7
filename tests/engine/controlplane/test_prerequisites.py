"""What real machines need of a computer: found, installed, or said with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falaj.engine import debian
from falaj.engine.commands import run
from falaj.engine.controlplane import addons, binaries, prerequisites, start
from falaj.engine.errors import EngineError
from falaj.stacks.command import cluster


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer without any command; the folder of its commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def give(folder: Path, *commands: str) -> None:
    for each in commands:
        (folder / each).write_text("#!/bin/sh\n")
        (folder / each).chmod(0o755)


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert prerequisites.lacking() == ["Linux: this is darwin"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_each_missing_command_is_told_with_its_package(bare: Path) -> None:
    give(bare, "ip", "mount")
    told = prerequisites.lacking()
    assert "the command runc: on Debian, as root, apt-get install runc" in told
    assert "the command nft: on Debian, as root, apt-get install nftables" in told
    assert not [each for each in told if "command ip:" in each or "command mount:" in each]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_nobody_but_root_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert any(each.startswith("root,") for each in prerequisites.lacking())


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_control_groups_of_version_2_alone_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(prerequisites, "CONTROL_GROUPS", tmp_path)
    [told] = [each for each in prerequisites.lacking() if "control groups" in each]
    assert "version 1 (cpu, cpuacct, cpuset, pids, devices, freezer)" in told


def test_each_package_is_installed_once(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(bare, "ip", "mount", "nft", "conntrack", "iptables", "ipset")
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(debian, "install", asked.append)
    assert prerequisites.install_missing() == ["runc", "util-linux"]
    assert asked == [["runc", "util-linux"]]
    give(bare, "nsenter", "unshare", "runc")
    assert prerequisites.install_missing() == []
    assert len(asked) == 1
    assert prerequisites.install_missing("buildah") == ["buildah"]


def test_apt_is_asked_for_packages_alone(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(bare, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ran: list[Sequence[str]] = []

    def answer(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", answer)
    debian.install(["runc", "nftables"])
    assert ran == [
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "runc", "nftables"],
    ]


def test_real_machines_are_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prerequisites, "lacking", lambda: ["the command runc: install it"])
    with pytest.raises(EngineError, match=r"can't run real machines; it lacks the command runc"):
        start(tmp_path / "plane", real=2)
    assert not (tmp_path / "plane").exists()


def test_where_they_cant_be_real_they_are_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> list[str]:
        raise EngineError("on Debian, as root: apt-get install runc")

    class Started:
        kubeconfig = tmp_path / "kubeconfig"

    asked: list[tuple[Any, ...]] = []

    def begin(folder: Path, nodes: str, *_: Any, real: int, **__: Any) -> Started:
        asked.append((folder, nodes, real))
        return Started()

    monkeypatch.setattr(prerequisites, "install_missing", refuse)
    monkeypatch.setattr(prerequisites, "lacking", lambda: ["the command runc"])
    monkeypatch.setattr(cluster, "start", begin)
    words = ["up", "--real", "2", "--nodes", "h200=1", "--folder", str(tmp_path)]
    assert run(cluster.cluster, "falaj cluster", words) == 0
    assert asked == [(tmp_path, "h200=1,cpu=2", 0)]
    told = capsys.readouterr().err
    assert "warning: on Debian, as root: apt-get install runc" in told
    assert "warning: machines are simulated: this computer lacks the command runc" in told


@pytest.mark.parametrize(
    ("words", "controllers", "definitions", "webhooks"),
    [
        ([], binaries.CONTROLLERS, (), True),
        (["--bare"], (), addons.BARE_DEFINITIONS, False),
        (["--real", "2"], (), addons.REAL_DEFINITIONS, True),
        (["--real", "2", "--controllers", "kueue"], ("kueue",), addons.REAL_DEFINITIONS, True),
        (["--real", "2", "--crds", "keda"], (), ("keda",), True),
    ],
)
def test_what_runs_beside_a_control_plane_depends_on_its_machines(
    words: list[str], controllers: tuple[str, ...], definitions: tuple[str, ...], *,
    webhooks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    started: list[tuple[Any, ...]] = []

    def begin(
        folder: Path, nodes: str, beside: Sequence[str], *, crds: Sequence[str], webhooks: bool,
        real: int, **_: Any,
    ) -> Any:  # fmt: skip
        started.append((beside, crds, webhooks))
        registry = SimpleNamespace(address="10.251.0.2:443")
        machines = [f"real-{each}" for each in range(real)]
        return SimpleNamespace(
            kubeconfig=folder / "kubeconfig",
            files=SimpleNamespace(authority=folder / "ca.crt"),
            real=SimpleNamespace(names=machines, registry=registry),
        )

    added: list[Path] = []

    def add(names: Sequence[str], folder: Path) -> list[Any]:
        added.append(folder)
        return []

    built: list[str] = []
    monkeypatch.setattr(prerequisites, "install_missing", list)
    monkeypatch.setattr(prerequisites, "lacking", list)
    monkeypatch.setattr(cluster, "start", begin)
    monkeypatch.setattr(cluster.library, "add", add)
    monkeypatch.setattr(cluster, "ensure_tool", built.append)
    given = ["up", *words, "--folder", str(tmp_path)]
    assert run(cluster.cluster, "falaj cluster", given) == 0
    assert started == [(controllers, definitions, webhooks)]
    # Who brings a whole platform needs its charts, and what renders them.
    assert bool(added) is (words != [])
    assert built == (["helm"] if words else [])


def test_a_control_plane_starts_where_nothing_can_render_charts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(tool: str) -> Path:
        raise EngineError(f"{tool} is not on the PATH, and can't be built: no Go")

    def begin(folder: Path, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(kubeconfig=folder / "kubeconfig")

    def add(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(cluster, "start", begin)
    monkeypatch.setattr(cluster.library, "add", add)
    monkeypatch.setattr(cluster, "ensure_tool", refuse)
    assert run(cluster.cluster, "falaj cluster", ["up", "--bare", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "charts can't be rendered yet: helm is not on the PATH" in told.err
    assert "ready: export KUBECONFIG=" in told.out


@pytest.mark.parametrize("number", ["-1", "9", "two"])
def test_a_wrong_number_is_refused(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["up", "--real", number, "--folder", str(tmp_path / "plane")]
    assert run(cluster.cluster, "falaj cluster", words) == 2
    assert "--real" in capsys.readouterr().err
    assert not (tmp_path / "plane").exists()
