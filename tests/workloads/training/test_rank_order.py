"""Ranks follow the machines' indices, whatever their addresses and whenever they come.

Machines are processes here, each with a loopback address of its own; the rendezvous and its store
are real, and where machines come and go, gloo as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from falaj.workloads.errors import STOPPED, WorkloadError
from falaj.workloads.training.distributed import TIMEOUTS, Rendezvous, meet
from falaj.workloads.training.rank_order import ordered, rank_of
from tests.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
#: Sorted as texts, as PyTorch does, the last machine is the first.
ADDRESSES = ("127.0.0.30", "127.0.0.20", "127.0.0.100")


@dataclass
class Site:
    """Machines of one run."""

    folder: Path
    nodes: str
    per_node: int = 1
    program: str = "roll_call"
    port: int = field(default_factory=free_port)
    running: dict[int, subprocess.Popen[bytes]] = field(
        default_factory=dict[int, "subprocess.Popen[bytes]"]
    )

    def join(self, index: int, *, rounds: int = 1, **said: str) -> None:
        """Start the machine of this index, which joins as Falaj's training does."""
        environ = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PET_NNODES": self.nodes, "PET_NPROC_PER_NODE": str(self.per_node),
            "PET_NODE_RANK": str(index), "PET_LOCAL_ADDR": ADDRESSES[index],
            "PET_RDZV_ENDPOINT": f"{ADDRESSES[0]}:{self.port}", "PET_RDZV_ID": "fraud-0",
            "PET_RDZV_CONF": "timeout=90,last_call_timeout=2,keep_alive_interval=1,"
            "keep_alive_max_attempt=3",
            **said,
        }  # fmt: skip
        roll_call = [str(PROGRAMS / f"{self.program}.py"), str(self.folder), str(rounds)]
        with (self.folder / f"machine-{index}.log").open("a") as log:
            self.running[index] = subprocess.Popen(
                [sys.executable, str(PROGRAMS / "machine.py"), *roll_call],
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def told(self, processes: int, *, since: float = 0.0) -> list[list[int]]:
        """What the first round with so many processes, later than ``since``, told."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for path in sorted(self.folder.glob(f"{processes}-*.json")):
                if path.stat().st_mtime > since:
                    return json.loads(path.read_text(encoding="utf-8"))
            time.sleep(0.1)
        raise AssertionError(f"{processes} processes never met\n{self.said()}")

    def finish(self) -> dict[int, int]:
        """Each machine's status."""
        return {index: each.wait(90) for index, each in self.running.items()}

    def said(self) -> str:
        """What the machines wrote."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{each.name}: {each.read_text(encoding='utf-8')}" for each in logs)

    def end(self) -> None:
        """Leave none."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "3")


@pytest.mark.parametrize(
    ("indices", "ranks"),
    [
        ([2, 0, 1], [2, 0, 1]),
        ([10, 9, 0], [2, 1, 0]),
        ([7, 3], [1, 0]),
        ([1, None, 0], [0, 1, 2]),
        ([3, 1, 3], [1, 0, 2]),
        ([], []),
    ],
)
def test_machines_are_ranked_by_number(indices: list[int | None], ranks: list[int]) -> None:
    assert ordered(indices, unique=False) == ranks


def test_who_hosts_the_store_leaves_with_the_others() -> None:
    """What is refused is refused on each machine: none takes the host for lost."""
    store = HashStore()
    # The other has told its index, and hasn't read this one's yet.
    store.set("index/1", "1")
    with ThreadPoolExecutor(1) as pool:
        host = pool.submit(rank_of, store, 0, 2, 1, unique=True)
        with pytest.raises(TimeoutError):
            host.result(0.5)
        with pytest.raises(WorkloadError, match="PET_NODE_RANK 1 is that of 2 machines"):
            rank_of(store, 1, 2, 1, unique=True)
        with pytest.raises(WorkloadError, match="PET_NODE_RANK 1 is that of 2 machines"):
            host.result(5)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import time; time.sleep(2)", 0),
        ("import os, signal, time; time.sleep(2); os.kill(os.getppid(), signal.SIGTERM)", STOPPED),
    ],
    ids=["ended", "stopped"],
)
def test_a_machine_that_leaves_waits_for_its_last_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, program: str, status: int
) -> None:
    """One under way when the interpreter ends would abort it, and the scheduler see a fault.

    It holds its rendezvous alive itself: that the rendezvous is dropped doesn't end it.
    """
    signs: list[str] = []

    def slow_sign(_handler: DynamicRendezvousHandler) -> None:
        signs.append("begun")
        time.sleep(4)
        signs.append("ended")

    monkeypatch.setattr(DynamicRendezvousHandler, "_keep_alive", slow_sign)
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # set by it: to be taken back
    place = Rendezvous(
        1, 1, 1, f"127.0.0.1:{free_port()}", "alone", 0, "127.0.0.1",
        timeouts={**TIMEOUTS, "keep_alive_interval": 1},
    )  # fmt: skip
    assert meet(["-c", program], place) == status
    assert signs == ["begun", "ended"]


def in_order(indices: Sequence[int], per_node: int) -> list[list[int]]:
    """Completion index, local rank and rank of each process."""
    return [
        [index, local, place * per_node + local]
        for place, index in enumerate(indices)
        for local in range(per_node)
    ]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_rank_of_a_process_is_its_machines_index_times_processes_and_its_place(
    site: Site,
) -> None:
    site.per_node, site.program = 2, "named_ranks"
    try:
        for index in (2, 1, 0):  # each after those behind it
            site.join(index)
            time.sleep(0.5)
        assert site.told(6) == in_order([0, 1, 2], 2), site.said()
        assert site.finish() == {0: 0, 1: 0, 2: 0}, site.said()
    finally:
        site.end()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_that_shrinks_and_grows_keeps_the_order(site: Site) -> None:
    """The machine that goes has the first address, which PyTorch itself makes the leader's."""
    site.nodes = "1:3"
    try:
        for index in (2, 1, 0):
            site.join(index, rounds=0, PET_MAX_RESTARTS="20")
        assert site.told(3) == in_order([0, 1, 2], 1), site.said()
        site.running[2].kill()
        site.running.pop(2).wait()
        assert site.told(2, since=time.time()) == in_order([0, 1], 1), site.said()
        grown = time.time()
        site.join(2, rounds=0, PET_MAX_RESTARTS="20")
        assert site.told(3, since=grown) == in_order([0, 1, 2], 1), site.said()
        (site.folder / "end").touch()
        assert site.finish() == {0: 0, 1: 0, 2: 0}, site.said()
    finally:
        site.end()


@pytest.mark.slow
@pytest.mark.thorough
def test_two_machines_with_one_index_are_refused(site: Site) -> None:
    """In a gang that is a mistake, and no start would mend it."""
    try:
        site.join(0)
        site.join(1)
        site.join(2, PET_NODE_RANK="1")
        assert site.finish() == {0: 2, 1: 2, 2: 2}, site.said()
        assert "PET_NODE_RANK 1 is that of 2 machines" in site.said()
    finally:
        site.end()
