"""The whole life of a stack with the real engine, our language host and a provider by path."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from falaj.engine.backend import clear_stale_locks

Project = Any  # the class in conftest.py, which pytest does not let tests import
DATA = Path(__file__).with_name("data")

pytestmark = pytest.mark.engine

UP = ("up", "--yes", "--skip-preview", "-s", "dev")


def wait_for(project: Project, event: str, seconds: float = 20) -> dict[str, int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for found in project.events():
            if found["event"] == event:
                return found
        time.sleep(0.05)
    raise AssertionError(f"the provider never wrote {event!r}: {project.events()}")


def wait_until_gone(pids: list[int], seconds: float = 30) -> list[int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if psutil.pid_exists(pid)]
        if not alive:
            return []
        time.sleep(0.05)
    return [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.thorough
@pytest.mark.slow
def test_life_of_a_stack(project: Project) -> None:
    assert "+ 2 to create" in project.run("preview", "-s", "dev")
    assert project.event_names() == []

    project.run(*UP)
    assert project.event_names() == ["create hello"]
    assert project.run("stack", "output", "project", "-s", "dev").strip() == "tiny"

    assert "2 unchanged" in project.run(*UP)
    assert project.event_names() == ["create hello"]

    project.config(text="changed")
    assert "~ 1 to update" in project.run("preview", "-s", "dev")
    project.run(*UP)
    assert project.event_names()[1:] == ["update changed"]

    project.config(place="there")
    assert "+-1 to replace" in project.run("preview", "-s", "dev")
    project.run(*UP)
    assert sorted(project.event_names()[2:]) == ["create changed", "delete"]

    assert "~ 1 updated" in project.run("refresh", "--yes", "--skip-preview", "-s", "dev")
    project.run("destroy", "--yes", "--skip-preview", "-s", "dev")
    assert project.event_names()[-1] == "delete"


def test_a_failing_resource_is_reported_once_and_without_a_trace(project: Project) -> None:
    project.config(text="refuse")
    output = project.run(*UP, code=None)
    assert "the note was refused" in output
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output


def test_a_program_that_printed_its_error_shows_only_that(project: Project) -> None:
    project.program("import sys\nsys.exit(print('error: no such region', file=sys.stderr) or 3)\n")
    output = project.run("preview", "-s", "dev", code=None)
    assert "error: no such region" in output
    assert "Traceback" not in output
    assert "exit code" not in output


def test_a_program_that_leaves_silently_is_explained(project: Project) -> None:
    project.program("raise SystemExit(3)\n")
    assert "the program ended with exit code 3" in project.run("preview", "-s", "dev", code=None)


def test_a_program_that_leaves_with_a_text_shows_it(project: Project) -> None:
    project.program("raise SystemExit('the dataset is missing')\n")
    output = project.run("preview", "-s", "dev", code=None)
    assert "error: the dataset is missing" in output
    assert "Traceback" not in output


def test_an_exception_shows_the_program_and_not_the_machinery(project: Project) -> None:
    project.program("def plan():\n    raise KeyError('zone')\n\nplan()\n")
    output = project.run("preview", "-s", "dev", code=None)
    assert "KeyError: 'zone'" in output
    assert "in plan" in output
    assert "runpy" not in output
    assert "execute.py" not in output


def test_a_missing_virtual_environment_is_named(project: Project) -> None:
    (project.folder / "environment").unlink()
    output = project.run("preview", "-s", "dev", code=None)
    assert "environment" in output
    assert "run `pulumi install`" in output


def test_configuration_secrets_reach_the_program(project: Project) -> None:
    project.run("config", "set", "--secret", "text", "psst", "-s", "dev")
    project.program(
        "import pulumi\nassert pulumi.Config().require('text') == 'psst'\n"
        "assert pulumi.runtime.is_config_secret('tiny:text')\n"
    )
    assert "psst" not in project.run(*UP)


def test_a_mandatory_policy_stops_the_preview(project: Project) -> None:
    pack = ("preview", "--policy-pack", str(DATA / "pack"), "-s", "dev")
    assert "notes" in project.run(*pack)
    project.config(place="elsewhere")
    output = project.run(*pack, code=None)
    assert "a note must be here, but is elsewhere" in output
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output


def test_an_interrupt_is_quiet_and_leaves_nothing_running(project: Project) -> None:
    project.config(text="wait")
    process = project.start(*UP)
    provider = wait_for(project, "create wait")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert [event["event"] for event in project.events()][:2] == ["create wait", "cancel"]
    assert "stopped as asked" in output
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output
    assert wait_until_gone([provider["pid"], provider["parent"]]) == []


def test_a_second_interrupt_ends_a_provider_that_hangs(project: Project) -> None:
    project.config(text="hang")
    process = project.start(*UP)
    provider = wait_for(project, "create hang")
    process.send_signal(signal.SIGINT)
    wait_for(project, "cancel")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in output
    assert wait_until_gone([provider["pid"], provider["parent"]]) == []


@pytest.mark.thorough
def test_a_killed_engine_leaves_no_process_and_no_lock_for_long(project: Project) -> None:
    project.config(text="wait")
    process = project.start(*UP)
    provider = wait_for(project, "create wait")
    below = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert {provider["pid"], provider["parent"]} <= set(below)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert wait_until_gone(below) == []

    assert "locked" in project.run(*UP, code=None)
    lines: list[str] = []
    assert clear_stale_locks(project.env["PULUMI_BACKEND_URL"], lines.append) == 1
    assert f"process {process.pid}" in lines[0]
    project.config(text="hello")
    project.run(*UP)
    assert project.event_names() == ["create wait", "create hello"]


def test_a_killed_language_host_takes_its_children_along(project: Project) -> None:
    project.config(text="wait")
    process = project.start(*UP)
    provider = wait_for(project, "create wait")
    os.kill(provider["parent"], signal.SIGKILL)
    assert wait_until_gone([provider["pid"]]) == []
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0


def test_the_program_sees_the_project_and_its_folder(project: Project, tmp_path: Path) -> None:
    project.program(
        "import os, pulumi, sys\n"
        "pulumi.export('root', pulumi.runtime.get_root_directory())\n"
        "pulumi.export('folder', os.getcwd())\n"
        "pulumi.export('first', sys.path[0])\n"
        "pulumi.export('prefix', sys.prefix)\n"
    )
    project.run(*UP)
    for name in ("root", "folder"):
        assert project.run("stack", "output", name, "-s", "dev").strip() == str(project.folder)
    prefix = project.run("stack", "output", "prefix", "-s", "dev").strip()
    assert prefix == str(project.folder / "environment")


def test_dynamic_providers_run_in_the_programs_own_python(project: Project) -> None:
    project.program(
        "import sys, pulumi\n"
        "from pulumi.dynamic import CreateResult, Resource, ResourceProvider\n"
        "class Maker(ResourceProvider):\n"
        "    def create(self, props):\n"
        "        return CreateResult('id', {'made': 'by the provider'})\n"
        "class Made(Resource):\n"
        "    made: pulumi.Output[str]\n"
        "pulumi.export('made', Made(Maker(), 'one', {'made': None}).made)\n"
    )
    project.run(*UP)
    assert project.run("stack", "output", "made", "-s", "dev").strip() == "by the provider"


def test_about_and_install_answer(project: Project) -> None:
    assert "toolchain='pip'" in project.run("about", "-s", "dev")
    # The clouds' SDKs of this environment ask for plugins that are only on the internet.
    assert "Traceback" not in project.run("install", "--no-plugins")
