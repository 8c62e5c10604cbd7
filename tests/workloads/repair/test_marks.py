"""What stands on nodes: read back as it was written, whatever else stands there."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.repair.marks import changed, is_watched, view
from falaj.workloads.repair.states import Health, Record, State, Step
from tests.workloads.repair.parts import DOMAIN, TAINT, condition, node, settings

SETTINGS = settings()
OURS = {"key": TAINT, "value": "sick", "effect": "NoSchedule"}
OTHERS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def merged(target: Any, change: Any) -> Any:
    """As the API server merges (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


@given(
    st.sampled_from(State), st.integers(0, 2**31), st.integers(0, 2**31),
    st.lists(st.text(max_size=20), max_size=3), st.text(max_size=30),
)  # fmt: skip
def test_a_record_is_read_as_it_was_written(
    state: State, since: int, deadline: int, causes: list[str], reason: str
) -> None:
    record = Record(state, float(since), tuple(causes), float(deadline))
    before = node(taints=[OTHERS])
    step = Step("gpu-1", record, changes=True, reason=reason)
    after = merged(before, changed(before, step, SETTINGS))
    found = view(after, SETTINGS, 0, {})
    assert found.record == record
    assert found.tainted
    assert after["spec"]["taints"] == [OTHERS, OURS]
    # And back: as it was.
    back = merged(after, changed(after, Step("gpu-1", None, changes=True), SETTINGS))
    assert back == before


def test_a_step_leaves_the_taints_of_others() -> None:
    before = node(taints=[{**OURS, "value": "by hand"}, OTHERS])
    record = Record(State.DRAINING, 0, ())
    after = merged(before, changed(before, Step("gpu-1", record, changes=True), SETTINGS))
    assert sorted(after["spec"]["taints"], key=str) == sorted(before["spec"]["taints"], key=str)


def test_the_last_taint_goes_with_the_list() -> None:
    before = node(taints=[OURS])
    assert changed(before, Step("gpu-1", None, changes=True), SETTINGS)["spec"] == {"taints": None}


@pytest.mark.parametrize(
    ("label", "note"),
    [("asleep", "{}"), ("draining", "no JSON"), ("draining", "[]"), ("drained", '{"since": 1}'),
     ("draining", '{"since": "x", "causes": 3}')],
)  # fmt: skip
def test_what_cannot_be_read_is_a_quarantine_that_begins_now(label: str, note: str) -> None:
    given_ = node(labels={f"{DOMAIN}/state": label}, annotations={f"{DOMAIN}/record": note})
    assert view(given_, SETTINGS, 77, {}).record == Record(State.QUARANTINED, 77, ())


NOTE = '{"since": "2026-11-23T00:00:00Z", "causes": ["GPUMissing=True"]}'
RECORD: dict[str, Any] = {
    "labels": {f"{DOMAIN}/state": "drained"}, "annotations": {f"{DOMAIN}/record": NOTE},
}  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "more", "health"),
    [
        ([], {}, Health.WELL),
        ([condition("GPUMissing", "True")], {}, Health.SICK),
        ([condition("GPUMissing", "False")], {}, Health.WELL),
        ([condition("GPUMissing", "Unknown")], {}, Health.WELL),  # never sick of it
        ([condition("XIDErrors", "True")], {}, Health.WELL),  # nobody asked
        ([condition(f"{DOMAIN}/GpuFault", "True")], {}, Health.SICK),
        ([], {"ready": "False"}, Health.UNKNOWN),
        ([condition("GPUMissing", "True")], {"ready": "Unknown"}, Health.SICK),
        ([], {"taints": [{"key": "example.com/sick", "effect": "NoSchedule"}]}, Health.SICK),
        # Silence of what it was taken out for isn't health.
        ([condition("GPUMissing", "False")], RECORD, Health.WELL),
        ([condition("GPUMissing", "Unknown")], RECORD, Health.UNKNOWN),
        ([], RECORD, Health.UNKNOWN),
        ([condition("GPUMissing", "False")], {**RECORD, "ready": "False"}, Health.UNKNOWN),
    ],
)
def test_health(conditions: list[dict[str, str]], more: dict[str, Any], health: Health) -> None:
    assert view(node("gpu-1", *conditions, **more), SETTINGS, 0, {}).health is health


def test_a_condition_holds_since_it_changed_and_a_taint_since_it_was_seen() -> None:
    both = node("gpu-1", condition("GPUMissing", "True", 500),
                taints=[{"key": "example.com/sick", "effect": "NoSchedule"}])  # fmt: skip
    assert view(both, SETTINGS, 900, {}).sick_since == 500
    assert view(both, SETTINGS, 900, {"example.com/sick": 300}).sick_since == 300


@pytest.mark.parametrize(
    ("more", "away"),
    [
        ({}, False),
        ({"ready": "Unknown"}, True),
        ({"spec": {"unschedulable": True}}, True),
        ({"spec": {"taints": [OURS]}}, True),  # a person's
        ({**RECORD, "spec": {"taints": [OURS]}}, False),
    ],
)
def test_who_is_away(more: dict[str, Any], away: bool) -> None:
    assert view(node(**copy.deepcopy(more)), SETTINGS, 0, {}).away is away


def test_who_is_looked_after() -> None:
    plain = node()
    plain["metadata"]["labels"] = {}
    assert is_watched(node(), SETTINGS)
    assert not is_watched(plain, SETTINGS)
    # Its GPU is gone, and the labels with it.
    plain["metadata"]["labels"] = {f"{DOMAIN}/state": "drained"}
    assert is_watched(plain, SETTINGS)
