"""How much memory a model is said to take, and which further models there is room for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference import further, settings
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.models import memory
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site
from tests.workloads.inference.test_further_models import Other, parsed

MIB = 2**20


@pytest.mark.parametrize("given_", [0, MIB - 1, 2**44 + 1, 1.5, "1 GiB", True])
def test_what_is_no_bound_of_memory_is_refused(given_: object) -> None:
    with pytest.raises(
        InferenceError, match=r"models_memory_bytes: got .*, allowed is a whole nu"
    ):
        parsed(limits={"models_memory_bytes": given_})


def test_a_graph_takes_more_the_larger_it_is_and_trees_most() -> None:
    small, large = models.mlp(), models.mlp(sizes=(64, 512, 512, 10))
    assert len(small) < memory.estimate(small) < memory.estimate(large)
    assert memory.estimate(b"TreeEnsembleRegressor" + large) > 2 * memory.estimate(large)


def test_the_room_is_the_settings_else_half_of_the_machines(tmp_path: Path) -> None:
    found, group = tmp_path / "meminfo", tmp_path / "memory.max"
    found.write_text("MemTotal:       16384 kB\nMemFree:  1 kB\n")
    assert memory.of_machine(found, group) == 16 * MIB
    for text, bytes_ in (("max\n", 16 * MIB), (f"{4 * MIB}\n", 4 * MIB), (f"{2**60}", 16 * MIB)):
        group.write_text(text)
        assert memory.of_machine(found, group) == bytes_
    assert memory.room_of(parsed(workers=2)) == memory.of_machine() // 4
    bounded = parsed(workers=4, limits={"models_memory_bytes": 8 * MIB})
    assert memory.room_of(bounded) == 2 * MIB


_BYTES = st.one_of(st.none(), st.integers(1, 100))
_NEEDS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(_BYTES, _BYTES))


@given(_NEEDS, st.integers(0, 200))
def test_what_serves_keeps_its_room_and_nothing_takes_more_than_there_is(
    needs: dict[str, tuple[int | None, int | None]], room: int
) -> None:
    found = memory.admitted(needs, room)
    assert found.keys() == needs.keys()
    assert sum(found.values()) <= room
    served = {name: before for name, (_, before) in needs.items() if before is not None}
    if sum(served.values()) <= room:
        assert all(found[name] >= before for name, before in served.items())
    # Nothing is refused that there is room for.
    left = room - sum(found.values())
    for name, (asked, _) in needs.items():
        assert asked is None or found[name] >= asked or asked - found[name] > left


def test_one_without_room_is_refused_alone_and_its_newer_version_too(tmp_path: Path) -> None:
    site, other = Site(tmp_path / "site"), Other(tmp_path / "other")
    other.publish("price")
    other.publish("large")
    takes = memory.estimate(models.mlp())
    site.write(
        models={"large": other.further(), "price": other.further()},
        limits={"models_memory_bytes": takes},
    )
    wanted = settings.read(site.config)
    room = memory.room_of(wanted)

    def loaded(large: int | None, price: int | None, before: int | None) -> dict[str, object]:
        asked = {
            "large": {"version": large, "before": None, "error": None},
            "price": {"version": price, "before": before, "error": None},
        }
        wishes = {
            name: further._Wish(wanted, name, each) for name, each in asked.items()
        }  # fmt: skip
        allowed = memory.admitted({name: each.needs for name, each in wishes.items()}, room)
        return {
            name: next((v for v, b in each.takes.items() if b <= allowed[name]), None)
            for name, each in wishes.items()
        }

    assert loaded(1, None, None) == {"large": 1, "price": None}
    # Whoever served has its room, wherever it stands in the list.
    assert loaded(1, 1, 1) == {"large": None, "price": 1}
    larger = models.mlp(sizes=(64, 512, 512, 10))
    files = {"model.onnx": larger}
    other.store.publish("price", files, models.fields(larger, "larger"), other.keyring)
    assert loaded(1, 2, 1) == {"large": None, "price": 1}

    other.store.promote("price", 2)
    site.publish(models.mlp())
    server = Server(site)
    try:
        state = server.serving(1).state()
    finally:
        server.kill()
    said = state["models"]
    assert (said["large"]["version"], said["price"]["version"]) == (1, None)
    assert "would take about" in said["price"]["error"]
    assert "modelsMemoryBytes, for all 1 workers together" in said["price"]["error"]
    assert said["large"]["memory_bytes"] == takes == state["memory_bytes"]
    assert state["models_room_bytes"] == room
    assert json.dumps(state)
