"""The controller's passes where the API server, a node or the lease isn't as it should be.

Passes on a real API server are in tests/cluster/test_node_repair.py.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from falaj.workloads.api_server import ApiError
from falaj.workloads.repair.controller import Controller, NotLeadingError
from falaj.workloads.repair.watching import Audit, Metrics, Watching
from tests.workloads.repair.parts import DOMAIN, TAINT, condition, node, pod, settings

OURS = {"key": TAINT, "value": "sick", "effect": "NoSchedule"}
FUTURE = json.dumps({
    "since": "2026-11-23T00:00:00Z", "causes": ["GPUMissing=True"],
    "deadline": "2999-01-01T00:00:00Z",
})  # fmt: skip


class Server:
    """Answers from what it is given, and notes what it is asked to change."""

    def __init__(self, *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> None:
        self.nodes, self.pods = nodes, pods
        self.refuses: dict[str, ApiError] = {}
        self.changes: list[tuple[str, str]] = []
        self.log: list[dict[str, Any]] = []

    async def list(self, path: str, **query: str) -> list[Any]:
        del query
        return list(self.nodes if path == "/api/v1/nodes" else self.pods)

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = ""
    ) -> dict[str, Any]:
        del body, kind
        for part, error in self.refuses.items():
            if part in path:
                raise error
        self.changes.append((method, path))
        return {}


class Lead:
    def __init__(self, times: int = 10**6) -> None:
        self.times = times

    @property
    def leads(self) -> bool:
        self.times -= 1
        return self.times >= 0


def look(server: Server, lead: Lead | None = None, **asked: Any) -> list[dict[str, Any]]:
    """One pass; what the audit log says."""
    to = io.StringIO()
    audit = Audit("a", dry_run=False, to=to)
    controller = Controller(
        server,  # type: ignore[arg-type]
        lead or Lead(),  # type: ignore[arg-type]
        settings(**{"sick_minutes": 0, "most_out": 9, **asked}),
        Watching("a", audit, Metrics()),
    )
    try:
        asyncio.run(controller.look())
    finally:
        server.log = [json.loads(each) for each in to.getvalue().splitlines()]
    return server.log


def sick(name: str, **more: Any) -> dict[str, Any]:
    return node(name, condition("GPUMissing", "True"), **more)


def draining(name: str) -> dict[str, Any]:
    return sick(
        name, taints=[OURS], labels={f"{DOMAIN}/state": "draining"},
        annotations={f"{DOMAIN}/record": FUTURE},
    )  # fmt: skip


@pytest.mark.parametrize("status", [403, 404, 409, 422])
def test_a_node_that_cannot_be_changed_keeps_no_other_waiting(status: int) -> None:
    server = Server(sick("bad"), sick("good"))
    server.refuses["/nodes/bad"] = ApiError(status, "no")
    log = look(server)
    assert ("PATCH", "/api/v1/nodes/good") in server.changes
    assert [each["node"] for each in log if each["event"] == "changed"] == ["good"]
    told = [each["node"] for each in log if each["event"] == "change-refused"]
    assert told == (["bad"] if status in {403, 422} else [])


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_server_that_does_not_answer_ends_the_pass(status: int) -> None:
    server = Server(sick("bad"), sick("good"))
    server.refuses["/nodes/bad"] = ApiError(status, "busy")
    with pytest.raises(ApiError):
        look(server)
    assert server.changes == []


def test_who_does_not_lead_changes_nothing() -> None:
    server = Server(sick("a"), draining("b"), pods=(pod(),))
    with pytest.raises(NotLeadingError):
        look(server, Lead(0))
    assert server.changes == []


def test_a_lease_that_is_lost_in_a_pass_ends_it_before_the_next_change() -> None:
    server = Server(draining("a"), pods=(pod("p"), pod("q"), pod("r")))
    with pytest.raises(NotLeadingError):
        look(server, Lead(2))
    assert len(server.changes) == 2


def test_only_what_has_to_leave_is_asked_to() -> None:
    leaves = pod("leaves")
    server = Server(
        draining("a"), node("well"),
        pods=(leaves, pod("agent", owner="DaemonSet"), pod("alone", owner="")),
    )  # fmt: skip
    look(server)
    assert server.changes == [
        ("POST", "/api/v1/namespaces/acme-training/pods/leaves/eviction"),
    ]


def test_an_event_that_is_lost_takes_nothing_back() -> None:
    server = Server(sick("a"))
    server.refuses["/events"] = ApiError(403, "quota")
    log = look(server)
    assert [each["event"] for each in log] == ["changed", "event-lost"]


def test_a_held_node_is_not_touched() -> None:
    held = draining("a")
    held["metadata"]["annotations"][f"{DOMAIN}/hold"] = "by hand"
    server = Server(held, pods=(pod(),))
    look(server)
    assert server.changes == []
