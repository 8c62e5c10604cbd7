"""Finding a browser, and getting one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from falaj.engine import browser


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "_ELSEWHERE", ())
    return tmp_path


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", browser.NAMES)
def test_each_name_is_found(empty_path: Path, name: str) -> None:
    assert browser.find() is None
    path = program(empty_path, name)
    assert browser.find() == path
    assert browser.ensure() == path


def test_without_a_packager_the_error_says_what_to_install(
    empty_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(browser.BrowserError, match="install Chromium"):
        browser.ensure()
    assert browser.main(["ensure"]) == 1
    assert "google-chrome" in capsys.readouterr().err


def test_nobody_but_root_installs(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty_path, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(browser.BrowserError, match="as root"):
        browser.ensure()


def test_root_installs_the_package(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty_path, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ran: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        if "install" in command:
            program(empty_path, "chromium")
        # Lists that can't be fetched don't stop it.
        return subprocess.CompletedProcess(command, int("update" in command), "", "no network")

    monkeypatch.setattr(subprocess, "run", run)
    assert browser.ensure() == empty_path / "chromium"
    assert [each[1] for each in ran] == ["update", "install"]


def test_a_failed_installation_is_told(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty_path, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    failed = subprocess.CompletedProcess[str]([], 100, "", "E: Unable to locate package")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(browser.BrowserError, match="Unable to locate package"):
        browser.ensure()


def test_the_command_line_knows_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert browser.main([]) == 2
    assert "usage" in capsys.readouterr().err
