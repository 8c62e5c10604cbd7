"""What people see of the repair: the audit log, events of nodes, and metrics."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from falaj.workloads.repair.marks import written
from falaj.workloads.repair.states import NodeView, Plan, State

PREFIX: Final = "falaj_node_repair"
#: Events of objects that are in no namespace are in this one.
EVENTS: Final = "/api/v1/namespaces/default/events"
_COMPONENT: Final = "falaj-node-repair"
_MESSAGE_CHARACTERS: Final = 1024


class Audit:
    """One JSON object a line for each thing that was done, or would have been."""

    def __init__(self, holder: str, *, dry_run: bool, to: TextIO = sys.stdout) -> None:
        self._holder = holder
        self._dry_run = dry_run
        self._to = to

    def write(self, event: str, **fields: Any) -> None:
        """Write a line; ``event`` says what was done."""
        line = {"time": written(time.time()), "event": event, "holder": self._holder, **fields}
        if self._dry_run:
            line["dry_run"] = True
        print(json.dumps(line, sort_keys=False), file=self._to, flush=True)


def event(
    node: str, uid: str, reason: str, message: str, holder: str, *, warns: bool
) -> dict[str, Any]:
    """An event of a node, as ``kubectl describe node`` shows it."""
    now = written(time.time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node}.{secrets.token_hex(8)}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
        "reason": reason,
        "message": message[:_MESSAGE_CHARACTERS],
        "type": "Warning" if warns else "Normal",
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": holder[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


class Metrics:
    """What Prometheus reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)

        def gauge(name: str, words: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", words, labels, registry=self.registry)

        def counter(name: str, words: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"{PREFIX}_{name}", words, labels, registry=self.registry)

        self.leads = gauge("leads", "Whether this replica leads.")
        self.last_pass = gauge("last_pass_timestamp_seconds", "End of the last whole pass.")
        self.watched = gauge("watched_nodes", "Nodes that are looked after.")
        self.unfit = gauge("unfit_nodes", "Nodes that are sick, or out of service.")
        self.limit = gauge("limit_nodes", "Nodes that may be out of service at once.")
        self.brake = gauge("brake_open", "Whether too many nodes are unfit to take out another.")
        self.node = gauge("node_state", "Nodes that were taken out, by state.", ("node", "state"))
        self.unread = gauge("unread_exporters", "Watched nodes whose GPUs nobody could read.")
        self.held = gauge("held_nodes", "Nodes that a person asked to leave alone.")
        self.changes = counter("changes", "Changes of states, by the state after.", ("state",))
        self.evictions = counter("evictions", "Evictions that were asked for.", ("outcome",))
        self.errors = counter(
            "errors", "Passes that an error ended, and changes that were refused."
        )
        for outcome in ("granted", "refused", "failed"):
            self.evictions.labels(outcome)

    def show(self, views: Sequence[NodeView], plan: Plan) -> None:
        """Show what a pass found."""
        self.watched.set(len(views))
        self.unfit.set(len(plan.brake.unfit))
        self.limit.set(plan.brake.limit)
        self.brake.set(plan.brake.open)
        self.held.set(sum(each.hold for each in views))
        self.node.clear()
        after = {each.node: each.record for each in plan.steps}
        for view in views:
            record = after.get(view.name, view.record)
            if record is not None:
                self.node.labels(view.name, record.state.value).set(1)

    def silent(self) -> None:
        """Show nothing of nodes: another replica leads."""
        self.node.clear()
        for each in (self.watched, self.unfit, self.limit, self.brake, self.held, self.unread):
            each.set(0)

    def count(self, state: State | None) -> None:
        """Count a change of a state."""
        self.changes.labels(state.value if state is not None else "in-service").inc()

    def render(self) -> bytes:
        """The text of ``/metrics``."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class Watching:
    """All of it, for one replica."""

    holder: str
    """The replica's name."""
    audit: Audit
    metrics: Metrics
