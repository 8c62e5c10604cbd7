"""A program of a stack's own: kept, started anew with another command, and gone with the stack."""

from __future__ import annotations

import json
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
from falaj.engine.files import replace_file
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


OWN_DEPLOYMENT = """
import json, sys, time
from pathlib import Path
from falaj.components.local.machine import LocalError
from falaj.components.local.provider.handler import Context
from falaj.components.local.provider.resources.daemon import DaemonHandler

state, changed = json.loads(Path(sys.argv[1]).read_text())
said = []
context = Context("watch", lambda text, passing: passing or said.append(text))
became = DaemonHandler().update(context, "watch", state, changed)
try:
    DaemonHandler().delete(context, "watch", state)
except LocalError as error:
    said.append(str(error))
Path(sys.argv[2]).write_text(json.dumps([became, said]))
"""
DAEMON = """
import subprocess, sys, time
from pathlib import Path
order, here = Path(sys.argv[2]), sys.argv[1:4]
while not order.exists():
    time.sleep(0.05)
subprocess.run([sys.executable, *here], check=False, start_new_session=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("supervised", [True, False])
def test_a_program_isnt_ended_by_a_deployment_of_its_own(
    supervised: bool, inputs: dict[str, Any], tmp_path: Path
) -> None:
    order, done = tmp_path / "order", tmp_path / "done"
    (program := tmp_path / "daemon.py").write_text(DAEMON)
    (deployment := tmp_path / "deployment.py").write_text(OWN_DEPLOYMENT)
    command = [
        sys.executable, "-c", f"exec(open({str(program)!r}).read())",
        str(deployment), str(order), str(done),
    ]  # fmt: skip
    checked = HANDLER.check({**inputs, "command": [*command, str(tmp_path), "one"]}, {})
    identifier, state = HANDLER.create(Context("watch"), checked)
    wait_for(lambda: running("one", tmp_path), "the program", 60)
    (first,) = running("one", tmp_path)
    changed = {**checked, "command": [*command, str(tmp_path), "two"]}
    if not supervised:
        # Its supervisor was killed, and it goes on alone.
        (files,) = daemons(Site(tmp_path / "site"))
        pid = int((files.program().files / "supervisord.pid").read_text())
        os.kill(pid, 9)
        wait_for(lambda: not psutil.pid_exists(pid), "the end of its supervisor", 60)
    replace_file(order, json.dumps([state, changed]))
    wait_for(done.is_file, "its own deployment", 90)
    became, said = json.loads(done.read_text())
    assert running("one", tmp_path) == [first]
    assert "bring the stack up yourself" in said[0]
    assert "can't be removed by a deployment of its own" in said[1]
    # The next deployment sees that it isn't as wanted, and mends that.
    found = HANDLER.diff(became, changed)
    assert set(found) == ({"command"} if supervised else {"command", "status"})
    order.unlink()
    became = HANDLER.update(Context("watch"), identifier, became, changed)
    wait_for(lambda: running("two", tmp_path), "the other program", 60)
    assert running("one", tmp_path) == []
    assert HANDLER.diff(became, changed) == {}


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
        (
            {"command": ["/bin/sh", "-c", "a\nb"]},
            r"command: given 'a\\nb'; allowed: texts without",
        ),
        ({"command": ["/bin/a\rb"]}, "without line breaks"),
        ({"command": ["/bin/a", "b\0"]}, "zero bytes"),
        ({"name": "../x"}, "given '../x'"),
        ({"stopSeconds": 0}, "given 0"),
        ({"supervisor": "cron"}, "given 'cron'"),
    ],
)
def test_what_is_refused(inputs: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputsError, match=words):
        HANDLER.check({**inputs, **change}, {})
