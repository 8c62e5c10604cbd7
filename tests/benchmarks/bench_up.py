"""A second `falaj up` with nothing to do, against reading the stack's outputs alone."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.stacks.conftest import Project

pytestmark = pytest.mark.benchmark_suite


def seconds(action: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    """Wall time of one run that must succeed."""
    started = time.perf_counter()
    done = action()
    assert done.returncode == 0, done.stdout
    return time.perf_counter() - started


@pytest.mark.timeout(900)
def test_no_op_up(project: Project, benchmark: BenchmarkFixture) -> None:
    project.configure(dataset="digits", training={"epochs": 2})
    project.up()
    peers: list[float] = []

    def peer() -> None:
        # Before each measured round, so that both see the same state of the machine.
        output = ["stack", "output", "--json", "-s", project.stack]
        peers.append(seconds(lambda: project.pulumi(*output)))

    benchmark.pedantic(lambda: project.falaj("up"), setup=peer, rounds=5, iterations=1)
    up = benchmark.stats.stats.median
    least = statistics.median(peers)
    print(f"\nno-op up: {up:.1f} s; reading the outputs alone: {least:.1f} s; {up / least:.1f}x")
    project.down()
