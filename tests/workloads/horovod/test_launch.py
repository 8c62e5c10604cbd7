"""Machines of a Horovod job: they meet, train one model, and say rightly why they ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from falaj.workloads.horovod.launch import cause
from tests.components.kubernetes.pod_processes import finish
from tests.workloads.horovod.launched import Job

pytestmark = pytest.mark.slow


def results(folder: Path) -> list[dict[str, float]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("result.*"))]


def wait_for(job: Job, text: str) -> None:
    until = time.monotonic() + 60
    while text not in job.said():
        assert time.monotonic() < until, job.said()
        time.sleep(0.05)


def wait_until_served(job: Job) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.2", job.port), timeout=5).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < until, job.said()
            time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_two_machines_of_two_processes_train_one_model_again_and_again(tmp_path: Path) -> None:
    job = Job(tmp_path, nodes=2, processes=2)
    machines = [job.start(index, "--rounds", "3") for index in (1, 0)]
    assert finish(machines) == [0, 0], job.said()
    found = results(tmp_path)
    assert [(each["rank"], each["size"]) for each in found] == [(rank, 4) for rank in range(4)]
    assert [each["weight"] for each in found] == pytest.approx([3.0] * 4, abs=1e-3)


def test_one_machine_needs_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, nodes=1, processes=3)
    assert finish([job.start(0)]) == [0], job.said()
    assert len(results(tmp_path)) == 3


#: How a process of the second machine ends, and the statuses of both machines. All others end with
#: a trace and 1, whatever it was; those that linger end after them.
LOST = {
    "fault": (("--fail", "2:5:1"), [1, 1]),
    "refused": (("--fail", "2:5:2", "--linger", "1"), [1, 2]),
    "a GPU failed": (("--fail", "2:5:71", "--linger", "1"), [74, 71]),
    "killed": (("--fail", "2:5:-9"), [74, 74]),
}


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Job, list[int]]]:
    """Jobs that lose a process, side by side: they wait for each other's word most of the time."""
    jobs = {name: Job(tmp_path_factory.mktemp("lost"), processes=2) for name in LOST}
    machines = [job.start(at, *LOST[name][0]) for name, job in jobs.items() for at in (0, 1)]
    statuses = iter(finish(machines))  # of all at once: none is left if one doesn't end
    return {name: (job, [next(statuses), next(statuses)]) for name, job in jobs.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOST)
def test_machines_that_lose_a_peer_know_whether_to_start_again_helps(
    lost: dict[str, tuple[Job, list[int]]], name: str
) -> None:
    job, statuses = lost[name]
    assert statuses == LOST[name][1], job.said()
    assert re.search("a peer has gone|Connection reset|Broken pipe", job.log(0).read_text())


@pytest.mark.thorough
def test_a_machine_that_dies_without_a_word_is_lost_to_the_others(tmp_path: Path) -> None:
    job = Job(tmp_path)
    machines = [job.start(index, "--pause", "0.1", "--steps", "2000") for index in (0, 1)]
    try:
        wait_for(job, "step 3")
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(machines[1].pid)],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        for pid in (machines[1].pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        assert machines[0].wait(60) == 74, job.said()
        assert "another machine of the job was lost" in job.log(0).read_text()
    finally:
        finish(machines)


@pytest.mark.thorough
def test_a_request_to_stop_one_machine_ends_all_with_one_checkpoint(tmp_path: Path) -> None:
    job = Job(tmp_path, processes=2)
    path = tmp_path / "checkpoint"
    more = ("--pause", "0.1", "--steps", "2000", "--checkpoint", str(path))
    machines = [job.start(i, *more, options=("--grace-seconds", "20")) for i in (0, 1)]
    try:
        wait_for(job, "step 3")
        machines[1].send_signal(signal.SIGTERM)
        assert finish(machines) == [75, 75], job.said()
    finally:
        finish(machines)
    assert json.loads(path.read_text())["step"] >= 3


def test_a_program_that_does_not_stop_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    job = Job(tmp_path, nodes=1)
    stubborn = "import signal, time; signal.signal(15, 1); print('deaf', flush=True)"
    stubborn = stubborn.replace("15, 1", "15, signal.SIG_IGN") + "; time.sleep(300)"
    machine = job.start(0, sys.executable, "-c", stubborn, options=("--grace-seconds", "7"))
    try:
        wait_for(job, "deaf")
        start = time.monotonic()
        machine.send_signal(signal.SIGTERM)
        assert machine.wait(30) == 75
        assert 1.5 < time.monotonic() - start < 7
    finally:
        finish([machine])


def test_nothing_that_the_program_started_is_left(tmp_path: Path) -> None:
    job = Job(tmp_path, nodes=1, processes=2)
    more = ("--fail", "1:3:1", "--child", str(tmp_path / "child"))
    assert finish([job.start(0, *more)]) == [1], job.said()
    children = [int(path.read_text()) for path in tmp_path.glob("child.*")]
    assert len(children) == 2
    assert all(gone(pid) for pid in children)


def test_processes_that_others_leave_behind_are_buried(tmp_path: Path) -> None:
    """A container's first process inherits them, and the machine's table of processes is small."""
    orphans = "import os; [os.fork() or os._exit(0) for _ in range(1) if os.fork() == 0]"
    program = (
        "import os, subprocess, sys, time\n"
        f"for _ in range(5): subprocess.run([sys.executable, '-c', {orphans!r}])\n"
        "time.sleep(1)\n"
        "found = [open(f'/proc/{p}/stat').read() for p in os.listdir('/proc') if p.isdigit()]\n"
        "kept = [each.rpartition(')')[2].split()[:2] for each in found]\n"
        "print('left', kept.count(['Z', str(os.getppid())]), flush=True)\n"
    )
    # PR_SET_CHILD_SUBREAPER makes the launcher inherit, as the first process of a container does.
    adopting = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); "
    adopting += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    job = Job(tmp_path, nodes=1)
    words = job.command(0)[1:]
    done = subprocess.run(
        [sys.executable, "-c", adopting, *words, "--", sys.executable, "-c", program],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "left 0\n"


def test_machines_that_do_not_come_are_waited_for_only_so_long(tmp_path: Path) -> None:
    job = Job(tmp_path)
    machines = [job.start(index, options=("--wait-seconds", "2")) for index in (1,)]
    assert finish(machines) == [74]
    assert "Connection refused" in job.said()
    assert finish([job.start(0, options=("--wait-seconds", "2"))]) == [74]
    assert "1 of 2 machines came" in job.said()


def test_a_machine_of_an_earlier_attempt_is_turned_away(tmp_path: Path) -> None:
    job = Job(tmp_path)
    host = job.start(0, options=("--attempt", "2"))
    try:
        wait_until_served(job)
        earlier = job.start(1, options=("--wait-seconds", "2", "--attempt", "1"))
        assert finish([earlier]) == [74]
        assert "another attempt's (409)" in job.log(1).read_text()
        assert host.poll() is None
    finally:
        host.send_signal(signal.SIGTERM)
        assert finish([host]) == [75]


def test_a_request_to_stop_while_waiting_is_heard(tmp_path: Path) -> None:
    job = Job(tmp_path)
    machine = job.start(0)
    try:
        wait_until_served(job)
        machine.send_signal(signal.SIGTERM)
        assert machine.wait(10) == 75
    finally:
        finish([machine])


def test_a_program_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    job = Job(tmp_path, nodes=1)
    assert finish([job.start(0, "no-such-program")]) == [2]
    assert "can't run 'no-such-program': No such file or directory" in job.said()
    assert "Traceback" not in job.said()


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ([1], 1), ([2, 1], 2), ([71, 1], 71), ([75, 75], 75), ([1, -signal.SIGKILL], 74),
        ([-signal.SIGBUS, 1], 74), ([-signal.SIGABRT, 1], 1), ([-signal.SIGABRT], 74), ([3], 74),
    ],
)  # fmt: skip
def test_the_cause_among_processes_that_fail_together(codes: list[int], status: int) -> None:
    assert cause(codes) == status
