"""Units of tests, given to workers that only say they have run them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from tests.scheduling import (
    BARE,
    LONGEST,
    PLANES,
    PLANES_ALONE,
    PLATFORM,
    REAL,
    TOGETHER,
    WITHOUT_A_PLATFORM,
    Schedule,
    needs_a_plane,
    unit,
)

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "tests/cluster/real/test_a.py", "tests/cluster/real/test_b.py",
    "tests/cluster/real/test_machines.py", "tests/cluster/real/test_networks.py",
    "tests/cluster/test_platform_life.py",
    "tests/stacks/test_a.py", "tests/cluster/test_admission_attacks.py", "tests/stacks/test_b.py",
    "tests/cluster/test_forbidden.py", "tests/cluster/test_c.py", "tests/cluster/test_d.py",
    "tests/stacks/costs/test_costs.py", "tests/stacks/drawing/test_drawing.py",
    "tests/wire/test_a.py", "tests/wire/test_b.py", "tests/wire/test_c.py",
)  # fmt: skip


class Worker:
    """A worker that keeps what it was given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def order(count: int, tests: list[str]) -> list[tuple[str, str]]:
    """Run all by workers that take turns; who ran what, in this order."""
    config: Any = SimpleNamespace(
        getvalue=lambda _name: [f"{count}*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    schedule = Schedule(config, Producer("test", enabled=False))
    workers = [Worker(f"gw{each}") for each in range(count)]
    for each in workers:
        schedule.add_node(cast(Any, each))
    for each in workers:
        schedule.add_node_collection(cast(Any, each), tests)
    schedule.schedule()
    ran: dict[str, list[str]] = {each.gateway.id: [] for each in workers}
    all_ran: list[tuple[str, str]] = []
    while schedule.has_pending:
        before = len(all_ran)
        for each in workers:
            # As xdist's: the last that a worker knows of waits for another, or for the end.
            done = ran[each.gateway.id]
            if len(each.given) > len(done) + (not each.shutting_down):
                index = each.given[len(done)]
                done.append(tests[index])
                all_ran.append((each.gateway.id, tests[index]))
                schedule.mark_test_complete(cast(Any, each), index)
        assert len(all_ran) > before, "nobody has anything to do"
    assert all(each.shutting_down for each in workers)
    return all_ran


def run(count: int, tests: list[str]) -> dict[str, list[str]]:
    """Run all by workers that take turns; what each ran."""
    ran: dict[str, list[str]] = {f"gw{each}": [] for each in range(count)}
    for worker, test in order(count, tests):
        ran[worker].append(test)
    return ran


def unit_of(test: str) -> str:
    """The unit of a test."""
    return unit(test.partition("::")[0])


@pytest.mark.parametrize("tests", [1, 2, 3, 7])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
def test_all_are_run_once_and_few_workers_have_control_planes(workers: int, tests: int) -> None:
    given = [f"{file}::test_{each}" for file in FILES for each in range(tests)]
    ran = run(workers, given)
    assert sorted(each for own in ran.values() for each in own) == sorted(given)
    units = {name: [unit_of(each) for each in own] for name, own in ran.items()}
    for name in {unit(file) for file in FILES}:
        assert len([own for own in units.values() if name in own]) == 1, name
    with_planes = [own for own in units.values() if any(map(needs_a_plane, own))]
    assert len(with_planes) <= PLANES_ALONE
    # Who has begun with what needs them goes on with it, and tests of a unit follow each other.
    for own in with_planes:
        asked = [needs_a_plane(each) for each in own]
        begun = asked[asked.index(True) :]
        assert begun == sorted(begun, reverse=True)
    for own in ran.values():
        assert [each for each in given if each in own and "/real/" in each] == [
            each for each in own if "/real/" in each
        ]


def test_real_machines_are_the_first_and_each_for_one_worker() -> None:
    given = [f"{file}::test_{each}" for file in FILES for each in range(3)]
    ran = run(3, given)
    for name in (PLATFORM, BARE):
        (own,) = [each for each in ran.values() if unit_of(each[0]) == name]
        assert [unit_of(each) for each in own[:6]] == [name] * 6


@pytest.mark.parametrize("tests", [2, 3, 7])
@pytest.mark.parametrize("others", [True, False])
def test_beside_real_machines_are_few_control_planes_and_then_more(
    others: bool, tests: int
) -> None:
    files = [each for each in FILES if others or needs_a_plane(unit(each))]
    ran = order(4, [f"{file}::test_{each}" for file in files for each in range(tests)])
    last = max(at for at, (_, test) in enumerate(ran) if "/real/" in test)
    planes = [
        (at, worker) for at, (worker, test) in enumerate(ran) if needs_a_plane(unit_of(test))
    ]
    assert len({worker for at, worker in planes if at <= last}) == PLANES
    assert len({worker for _, worker in planes}) == PLANES_ALONE


def test_what_is_named_is_there() -> None:
    several = {PLATFORM, BARE, *TOGETHER.values()}
    files = [*TOGETHER, *(each for each in LONGEST if each not in several)]
    files += [str(REAL / each) for each in WITHOUT_A_PLATFORM]
    assert [each for each in files if not (ROOT / each).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)
