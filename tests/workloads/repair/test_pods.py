"""Which pods keep a node from being drained."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.workloads.repair.pods import leaving
from tests.workloads.repair.parts import pod

GOING = {"deletionTimestamp": "2026-11-23T00:00:00Z"}


def ended(*states: str) -> dict[str, Any]:
    kinds = {"running": {"running": {}}, "terminated": {"terminated": {"exitCode": 143}},
             "waiting": {"waiting": {}}}  # fmt: skip
    return {"containerStatuses": [{"state": kinds[each]} for each in states]}


@pytest.mark.parametrize(
    ("what", "changes", "counted"),
    [
        ("a job's", {}, "evict"),
        ("with a disk of the node's",
         {"spec": {"containers": [{}], "volumes": [{"emptyDir": {}}]}}, "evict"),
        ("not started yet", {"status": {"phase": "Pending"}}, "evict"),
        ("a DaemonSet's", {"owner": "DaemonSet"}, ""),
        ("a DaemonSet's, going", {"owner": "DaemonSet", "metadata": GOING}, ""),
        ("static", {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, ""),
        ("done", {"status": {"phase": "Succeeded"}}, ""),
        ("failed", {"status": {"phase": "Failed"}}, ""),
        ("failed and held", {"status": {"phase": "Failed"}, "metadata": {
            **GOING, "finalizers": ["batch.kubernetes.io/job-tracking"]}}, ""),
        ("nobody's", {"owner": ""}, "unmanaged"),
        ("nobody's, done", {"owner": "", "status": {"phase": "Succeeded"}}, ""),
        ("nobody's, going", {"owner": "", "metadata": GOING}, "going"),
        ("going", {"metadata": GOING}, "going"),
        ("going, its containers ended", {"metadata": {**GOING, "finalizers": ["kueue"]},
                                         "status": ended("terminated")}, ""),
        ("going, one still runs", {
            "metadata": GOING, "spec": {"containers": [{}, {}]},
            "status": ended("terminated", "running")}, "going"),
        ("going, one unheard of", {
            "metadata": GOING, "spec": {"containers": [{}, {}]},
            "status": ended("terminated")}, "going"),
        ("going, one waits", {"metadata": GOING, "status": ended("waiting")}, "going"),
        ("going, a sidecar runs", {"metadata": GOING, "status": {
            **ended("terminated"), "initContainerStatuses": [{"state": {"running": {}}}]}},
         "going"),
        ("its containers ended, not going", {"status": ended("terminated")}, "evict"),
    ],
)  # fmt: skip
def test_who_counts(what: str, changes: dict[str, Any], counted: str) -> None:
    found = leaving([pod(**changes)], evict_unmanaged=False)
    assert {each: len(getattr(found, each)) for each in ("evict", "going", "unmanaged")} == {
        each: int(each == counted) for each in ("evict", "going", "unmanaged")
    }, what
    assert found.number == bool(counted)


def test_what_nobody_starts_again_goes_where_asked_for() -> None:
    found = leaving([pod("a", owner=""), pod("b")], evict_unmanaged=True)
    assert len(found.evict) == 2
    assert found.names == ("acme-training/a", "acme-training/b")


def test_an_owner_that_does_not_control_starts_nothing_again() -> None:
    owners = [{"kind": "Job", "name": "o"}]
    found = leaving([pod(metadata={"ownerReferences": owners})], evict_unmanaged=False)
    assert len(found.unmanaged) == 1
