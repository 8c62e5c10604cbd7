"""A supervisor keeps a real program running, and leaves nothing when told to stop."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from falaj.components.local import machine, supervision
from falaj.components.local.machine import LocalError
from falaj.components.local.provider import launch
from falaj.components.local.supervision import Program, Supervisord, choose
from tests.waiting import wait_for

_TRACE = (
    "import sys, time, pathlib; log = pathlib.Path(sys.argv[1]); log.open('a').write('s\\n'); "
)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Makes programs of one line of Python, and removes them afterwards."""
    made: list[Program] = []

    def program(code: str, folder: Path | None = None) -> Program:
        place = folder or tmp_path / "service"
        place.mkdir(parents=True, exist_ok=True)
        starts = place / "begun"
        made.append(
            Program(
                name="tiny",
                folder=place,
                command=(sys.executable, "-c", _TRACE + code, str(starts)),
                directory=tmp_path,
                stop_seconds=2,
                process_marks=(str(starts), "-c"),
                environment=dict(os.environ),
            )
        )
        return made[-1]

    yield program
    for entry in made:
        Supervisord().remove(entry)


def begun(program: Program) -> int:
    path = program.folder / "begun"
    return len(path.read_text().split()) if path.is_file() else 0


def pid_of(program: Program) -> int:
    pid = Supervisord().status(program).pid
    assert pid is not None
    return pid


def test_exit_status_2_is_not_started_again(make: Callable[..., Program]) -> None:
    program = make("sys.exit(2)")
    Supervisord().start(program)
    wait_for(lambda: not Supervisord().status(program).running, "its end")
    time.sleep(0.5)
    status = Supervisord().status(program)
    assert (status.exit_status, begun(program)) == (2, 1)


def test_other_failures_are_started_again(make: Callable[..., Program]) -> None:
    program = make("sys.exit(1)")
    Supervisord().start(program)
    wait_for(lambda: begun(program) >= 3, "the third start")
    assert begun(program) >= 3


def test_a_killed_program_is_started_again(make: Callable[..., Program]) -> None:
    program = make("time.sleep(600)")
    Supervisord().start(program)
    wait_for(lambda: begun(program) == 1, "the first start")
    first = pid_of(program)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: begun(program) == 2, "the second start")
    assert pid_of(program) != first


def test_start_leaves_a_running_program_alone(make: Callable[..., Program]) -> None:
    program = make("time.sleep(600)")
    Supervisord().start(program)
    first = pid_of(program)
    Supervisord().start(program)
    assert pid_of(program) == first


def test_it_outlives_whoever_started_it(make: Callable[..., Program]) -> None:
    program = make("time.sleep(600)")
    Supervisord().start(program)
    supervisor = psutil.Process(pid_of(program)).parent()
    assert supervisor is not None
    assert os.getsid(supervisor.pid) != os.getsid(0)


def test_remove_leaves_nothing(make: Callable[..., Program]) -> None:
    program = make("time.sleep(600)")
    Supervisord().start(program)
    wait_for(lambda: begun(program) == 1, "the start")
    child = pid_of(program)
    supervisor = psutil.Process(child).parent()
    assert supervisor is not None
    Supervisord().remove(program)
    assert not psutil.pid_exists(child)
    assert not machine.is_process_running(supervisor.pid, ("supervisord",))
    assert not program.files.exists()
    Supervisord().remove(program)  # gone is fine


def test_an_orphan_of_a_killed_supervisor_is_ended_before_a_new_start(
    make: Callable[..., Program],
) -> None:
    program = make("time.sleep(600)")
    Supervisord().start(program)
    wait_for(lambda: begun(program) == 1, "the start")
    orphan = pid_of(program)
    supervisor = psutil.Process(orphan).parent()
    assert supervisor is not None
    supervisor.kill()
    wait_for(lambda: not Supervisord().status(program).running, "the supervisor's end")
    assert psutil.pid_exists(orphan)
    Supervisord().start(program)
    wait_for(lambda: begun(program) == 2, "the second start")
    assert not machine.is_process_running(orphan, program.process_marks)


def test_a_long_path_gets_a_short_socket(
    make: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(Path("/tmp")))
    program = make("time.sleep(600)", tmp_path / ("long" * 25) / "service")
    Supervisord().start(program)
    assert Supervisord().status(program).running
    assert not (program.files / "control.sock").exists()


def test_odd_characters_in_the_path(make: Callable[..., Program], tmp_path: Path) -> None:
    program = make("time.sleep(600)", tmp_path / "it's 100% odd")
    Supervisord().start(program)
    wait_for(lambda: begun(program) == 1, "the start")
    assert Supervisord().status(program).running


def test_a_line_break_in_the_path_is_refused(make: Callable[..., Program], tmp_path: Path) -> None:
    program = make("time.sleep(600)", tmp_path / "a;b")
    with pytest.raises(LocalError, match="semicolon"):
        Supervisord().start(program)


def test_repeated_failures_wait_longer_and_longer() -> None:
    assert [launch.delay(count) for count in (0, 3, 4, 5, 6)] == [0, 0, 1, 2, 4]
    assert launch.delay(50) == launch.LONGEST_DELAY_S


def test_a_stranger_is_never_ended() -> None:
    machine.end_process(os.getpid(), ("no such words",), patience_s=0)
    assert psutil.pid_exists(os.getpid())


def test_systemd_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert choose("auto").kind == "supervisord"
    with pytest.raises(LocalError, match="allowed here: auto, supervisord"):
        choose("systemd")


#: Stands in for systemctl: notes what it is asked, and says that the unit is as the test wants.
_SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$0.asked"
case "$*" in
  *is-system-running*) echo degraded; exit 1;;
  *show*) echo ActiveState=inactive; echo SubState=dead; echo MainPID=0; echo ExecMainStatus=2;;
esac
"""


def test_systemd_units_are_written_enabled_and_removed(
    make: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text(_SYSTEMCTL)
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    program = make("time.sleep(600)")
    supervisor = choose("auto")
    assert supervisor.kind == "systemd"
    supervisor.start(program)
    path = tmp_path / "config" / "systemd" / "user" / f"{program.label}.service"
    text = path.read_text()
    assert text == supervision.systemd_unit(program)
    assert "RestartPreventExitStatus=2" in text
    assert "Restart=on-failure" in text
    assert supervisor.status(program).exit_status == 2
    supervisor.remove(program)
    asked = Path(f"{tool}.asked").read_text()
    assert f"--user enable {program.label}.service" in asked
    assert f"--user start {program.label}.service" in asked
    assert f"--user disable --now {program.label}.service" in asked
    assert not path.exists()


@pytest.mark.parametrize("name", ["a #b", "end "])
def test_a_folder_that_supervisord_would_read_otherwise_is_refused(
    make: Callable[..., Program], tmp_path: Path, name: str
) -> None:
    with pytest.raises(LocalError, match="which supervisord doesn't take"):
        Supervisord().start(replace(make("pass"), directory=tmp_path / name))


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b"])
def test_what_no_supervisor_can_say_is_no_program(
    make: Callable[..., Program], tmp_path: Path, text: str
) -> None:
    program = make("pass")
    for change in (
        {"command": ("/bin/true", text)}, {"directory": tmp_path / text},
        {"environment": {"XDG_CACHE_HOME": text}},
    ):  # fmt: skip
        with pytest.raises(LocalError, match="line break or a zero byte"):
            replace(program, **change)


ODD = (
    "", " ", "a ; b", "a # b", ";", "#", " ;#", "it's", '"quoted"', "100%", "%(here)s", "%%", "\\",
    "https://host//path/../x", "/a/./b/", "a\tb", "$HOME", "`id`", "\N{SNOWMAN}", "'; '#", "=",
    "[x]",
)  # fmt: skip


def test_arguments_come_as_they_were_given(make: Callable[..., Program], tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = make(
        "import json; pathlib.Path(sys.argv[2]).write_text(json.dumps(sys.argv[3:])); "
        "time.sleep(600)"
    )
    Supervisord().start(replace(program, command=(*program.command, str(told), *ODD)))
    wait_for(lambda: told.is_file() and told.read_text(), "what it was given")
    assert tuple(json.loads(told.read_text())) == ODD


def test_a_systemd_unit_says_where_files_are(make: Callable[..., Program]) -> None:
    program = make("pass")
    given = {"FALAJ_HOME": '/home/a %h $x "y"', "SECRET": "s", "PATH": "/bin"}
    text = supervision.systemd_unit(replace(program, environment=given))
    lines = [each for each in text.splitlines() if each.startswith("Environment=")]
    assert lines == ['Environment="FALAJ_HOME=/home/a %%h $x \\"y\\""']


def test_systemd_commands_are_quoted(make: Callable[..., Program], tmp_path: Path) -> None:
    program = make("print('$HOME \"%h\"')", tmp_path / "odd")
    line = next(
        x for x in supervision.systemd_unit(program).splitlines() if x.startswith("ExecStart=")
    )
    assert "$$HOME" in line
    assert "%%h" in line
    assert '\\"' in line
