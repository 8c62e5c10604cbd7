"""Settings shared by all tests."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

import falaj.workloads
from tests.scheduling import Schedule, rank, schedule, unit

# Before any test loads ONNX Runtime: the import is what keeps its telemetry off.
assert falaj.workloads.__doc__

# A shell that runs the tests in the background, or nohup, leaves these ignored, and every process
# that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Of a program that fails, futures stay unawaited by design (engine/languagehost/execute.py): what
# asyncio says of those of refused arguments is megabytes.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)

# `make test` tries fewer examples. `make test-all` selects property tests by the marker
# that Hypothesis gives them, and runs them with --hypothesis-profile=thorough: with all of them.
# Both draw the same examples each time: what passed before a change is merged passes after it. To
# look where nobody has looked: .venv/bin/pytest -m hypothesis --hypothesis-profile=search.
# Machines are shared: how long a draw takes says nothing about the code.
settings.register_profile(
    "falaj",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=True,
    max_examples=25,
)
settings.register_profile("thorough", settings.get_profile("falaj"), max_examples=60)
settings.register_profile(
    "search", settings.get_profile("falaj"), derandomize=False, max_examples=200
)
settings.load_profile("falaj")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Without collections of garbage, which what is collected is none of.

    Fifteen thousand tests and the modules that they import are looked at by none later, either,
    and what tests make is looked at less often: programs that are declared in mocks took a fifth
    of their time for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes first, so that workers end at the same time."""
    ranks: dict[str, tuple[int | bool, ...]] = {}
    units = {item: unit(item.nodeid.partition("::")[0]) for item in items}
    for item, name in units.items():
        marks = (item.get_closest_marker(mark) is None for mark in ("engine", "slow", "thorough"))
        own = (rank(name), *marks)
        ranks[name] = min(own, ranks.get(name, own))
    items.sort(key=lambda item: ranks[units[item]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Schedule | None:
    """How tests are given to workers."""
    return schedule(config, log)
