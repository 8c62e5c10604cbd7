"""A program of a stack's own: kept, started anew with another command, and gone with the stack."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.daemons import daemons
from falaj.components.local.provider.handler import Context, Site
from falaj.components.local.provider.resources.daemon import DaemonHandler
from falaj.components.local.provider.service import end_leftovers
from falaj.components.local.supervision import Supervisord
from tests.waiting import wait_for

HANDLER = DaemonHandler()


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[dict[str, Any]]:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    yield {
        "site": str(site.path), "name": "watch", "stopSeconds": 2, "supervisor": "supervisord",
        "command": [sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path), "one"],
    }  # fmt: skip
    for each in daemons(site):
        Supervisord().remove(each.program())


def running(word: str, folder: Path) -> list[int]:
    """Programs of this test by their last word."""
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command[-2:] == [str(folder), word] and "-c" in command[:3]:
            found.append(process.pid)
    return found


@pytest.mark.slow
def test_a_daemon_lives_and_goes(inputs: dict[str, Any], tmp_path: Path) -> None:
    checked = HANDLER.check(inputs, {})
    identifier, state = HANDLER.create(Context("watch"), checked)
    wait_for(lambda: running("one", tmp_path), "the program", 60)
    assert (state["status"], state["keptBy"]) == ("running", "supervisord")
    assert HANDLER.drift(state) == {}
    # Killed, it is there again.
    (first,) = running("one", tmp_path)
    os.kill(first, 9)
    wait_for(lambda: running("one", tmp_path) not in ([], [first]), "another process", 60)
    # Another command is another process, and the old one is gone. One whose line only begins
    # like ours is a stranger's.
    changed = {**checked, "command": [*inputs["command"][:-1], "one-more"]}
    state = HANDLER.update(Context("watch"), identifier, state, changed)
    wait_for(lambda: running("one-more", tmp_path), "the other program", 60)
    assert running("one", tmp_path) == []
    assert HANDLER.read(identifier, state) is not None
    HANDLER.delete(Context("watch"), identifier, state)
    assert running("one-more", tmp_path) == []
    assert HANDLER.read(identifier, state) is None
    assert Path(str(state["log"])).name != "server.log"
    assert not Path(str(state["log"])).exists()
    HANDLER.delete(Context("watch"), identifier, state)  # gone is fine


@pytest.mark.slow
def test_what_an_interrupted_deployment_left_goes_with_its_site(
    inputs: dict[str, Any], tmp_path: Path
) -> None:
    _, state = HANDLER.create(Context("watch"), HANDLER.check(inputs, {}))
    wait_for(lambda: running("one", tmp_path), "the program", 60)
    end_leftovers(Site(Path(inputs["site"])))
    assert running("one", tmp_path) == []
    assert set(HANDLER.drift(state)) == {"status"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"command": []}, "allowed: an absolute path"),
        ({"command": ["python", "x"]}, "given 'python' to run"),
        ({"command": "/bin/true"}, "a list of texts"),
        ({"name": "../x"}, "given '../x'"),
        ({"stopSeconds": 0}, "given 0"),
        ({"supervisor": "cron"}, "given 'cron'"),
    ],
)
def test_what_is_refused(inputs: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputsError, match=words):
        HANDLER.check({**inputs, **change}, {})
