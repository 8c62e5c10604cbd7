"""The controller: looks at all nodes over and over, and does what `states` decides.

Everything that it has to remember stands on the nodes, so that it can be killed at any time and
goes on where it was. Each change of a node is made for the version that was looked at, and is
refused where somebody was faster: the next pass looks again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from falaj.workloads.api_server import (
    CONFLICT,
    MERGE,
    MISSING,
    STRATEGIC,
    TOO_MANY,
    ApiError,
)
from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.repair.api import Api, read_exporter
from falaj.workloads.repair.faults import Fault, Finding, finding, read_faults
from falaj.workloads.repair.lease import Lease
from falaj.workloads.repair.marks import Node, changed, is_watched, view
from falaj.workloads.repair.pods import Leaving, Pod, leaving, name_of
from falaj.workloads.repair.settings import Exporters, Settings
from falaj.workloads.repair.states import EMPTYING, NodeView, Plan, State, Step, plan
from falaj.workloads.repair.watching import EVENTS, Watching, event

_READERS: Final = 16
"""Exporters that are asked at once."""
_NAMED_PODS: Final = 5

#: Reasons of events by the state after the change; of the return, None.
_REASONS: Final = {
    State.QUARANTINED: "NodeQuarantined",
    State.DRAINING: "NodeDraining",
    State.BLOCKED: "NodeDrainBlocked",
    State.DRAINED: "NodeDrained",
    State.RECOVERING: "NodeRecovering",
    None: "NodeReturned",
}
_WARNINGS: Final = frozenset({State.QUARANTINED, State.BLOCKED})


class NotLeadingError(Exception):
    """Another replica leads, or nobody knows who does."""


@dataclass
class Memory:
    """What only saves work or words: nothing is lost with it."""

    taints: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """Since when taints of others were seen, by node and key."""
    told: dict[str, str] = field(default_factory=dict[str, str])
    """What the audit log said last, by what it was about."""


class Controller:
    """One replica's work while it leads."""

    def __init__(self, api: Api, lease: Lease, settings: Settings, watching: Watching) -> None:
        self._api = api
        self._lease = lease
        self._settings = settings
        self._holder = watching.holder
        self._metrics = watching.metrics
        self._audit = watching.audit
        self._memory = Memory()

    async def look(self) -> Plan:
        """One pass.

        Raises:
            ApiError: the API server wasn't reached, or refused something.
            NotLeadingError: the lease was lost meanwhile.
        """
        now = time.time()
        listed = await self._api.list("/api/v1/nodes")
        nodes = {
            each["metadata"]["name"]: each for each in listed if is_watched(each, self._settings)
        }
        if self._settings.exporters is not None:
            nodes = await self._with_faults(nodes, self._settings.exporters, now)
        views: list[NodeView] = []
        pods: dict[str, Leaving] = {}
        for name, node in nodes.items():
            found = view(node, self._settings, now, self._taints_seen(node, now))
            if found.record is not None and found.record.state in EMPTYING:
                pods[name] = await self._pods_of(name)
                found = replace(found, remaining=pods[name].number)
            views.append(found)
        made = plan(views, self._settings, now)
        self._metrics.show(views, made)
        self._tell_brake(made)
        for step in made.steps:
            await self._do(step, nodes[step.node], pods.get(step.node, Leaving()))
        self._memory.taints = {
            name: seen for name, seen in self._memory.taints.items() if name in nodes
        }
        self._metrics.last_pass.set_to_current_time()
        return made

    def _taints_seen(self, node: Node, now: float) -> Mapping[str, float]:
        """Since when a node's taints of others are there: taints have no time of their own."""
        there = {str(each["key"]) for each in node["spec"].get("taints") or ()}
        seen = self._memory.taints.setdefault(node["metadata"]["name"], {})
        for key in [each for each in seen if each not in there]:
            del seen[key]
        for key in there & set(self._settings.taints):
            seen.setdefault(key, now)
        return seen

    async def _pods_of(self, node: str) -> Leaving:
        pods = await self._api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        return leaving(pods, evict_unmanaged=self._settings.evict_unmanaged)

    def _tell_brake(self, made: Plan) -> None:
        state = f"{made.brake.open} {made.brake.limit} {made.brake.unfit}"
        if not made.brake.open:
            self._memory.told.pop("brake", None)
        elif self._is_new("brake", state):
            self._audit.write("brake-open", limit=made.brake.limit, unfit=list(made.brake.unfit))

    def _is_new(self, about: str, state: str) -> bool:
        if self._memory.told.get(about) == state:
            return False
        self._memory.told[about] = state
        return True

    def _check_lead(self) -> None:
        """Before every change, however late it comes."""
        if not self._lease.leads:
            raise NotLeadingError

    # What GPUs report.

    async def _with_faults(
        self, nodes: Mapping[str, Node], of: Exporters, now: float
    ) -> dict[str, Node]:
        """The nodes with the condition that their exporters' answers make of them."""
        path = f"/api/v1/namespaces/{of.namespace}/pods"
        pods = await self._api.list(path, labelSelector=of.label)
        addresses = {
            pod["spec"].get("nodeName", ""): str(mapping(pod.get("status")).get("podIP", ""))
            for pod in pods
        }
        readers = asyncio.Semaphore(_READERS)

        async def one(name: str) -> tuple[Fault, ...] | None:
            address = addresses.get(name)
            if not address:
                return None
            async with readers:
                try:
                    return read_faults(await read_exporter(address, of.port), self._settings)
                except (ApiError, WorkloadError) as error:
                    if self._is_new(f"exporter of {name}", str(error)):
                        self._audit.write("exporter-unread", node=name, reason=str(error))
                    return None

        read = dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))
        self._metrics.unread.set(sum(each is None for each in read.values()))
        found: dict[str, Node] = {}
        for name, node in nodes.items():
            faults = read[name]
            made = finding(node, faults, self._settings, now) if faults is not None else None
            found[name] = node if made is None else await self._note_fault(node, made)
        return found

    async def _note_fault(self, node: Node, made: Finding) -> Node:
        """Write a node's condition; the node as it is then."""
        name = node["metadata"]["name"]
        if self._settings.dry_run:
            conditions = mapping(node.get("status")).get("conditions") or ()
            if made.condition is None:
                return node
            kind = made.condition["type"]
            others = [each for each in conditions if each["type"] != kind]
            return {**node, "status": {**node["status"], "conditions": [*others, made.condition]}}
        self._check_lead()
        path = f"/api/v1/nodes/{name}"
        try:
            # First: a boot id without a fault says nothing, a fault without one could not end.
            change = {"metadata": {"annotations": made.notes(self._settings)}}
            node = await self._api.request("PATCH", path, change, kind=MERGE)
            if made.condition is None:
                return node
            status = {"status": {"conditions": [made.condition]}}
            node = await self._api.request("PATCH", f"{path}/status", status, kind=STRATEGIC)
        except ApiError as error:
            self._pass_over(name, error)
            return node
        fields = {key: made.condition[key] for key in ("status", "reason", "message")}
        self._audit.write("gpu-fault", node=name, **fields)
        return node

    def _pass_over(self, node: str, error: ApiError) -> None:
        """Go on with other nodes where this one can't be changed, for whatever reason is its own.

        Raises:
            ApiError: nothing can be changed just now.
        """
        if error.status in {CONFLICT, MISSING}:  # changed or gone since: the next pass sees
            return
        if error.may_pass:
            raise error
        self._metrics.errors.inc()
        if self._is_new(f"refusal of {node}", str(error)):
            self._audit.write("change-refused", node=node, reason=str(error))

    # Steps.

    async def _do(self, step: Step, node: Node, pods: Leaving) -> None:
        if step.changes:
            await self._change(step, node, pods)
        if step.evict and not self._settings.dry_run:
            for pod in pods.evict:
                self._check_lead()
                await self._evict(step.node, pod)

    async def _change(self, step: Step, node: Node, pods: Leaving) -> None:
        state = step.record.state if step.record is not None else None
        fields: dict[str, Any] = {
            "node": step.node,
            "from": mapping(node["metadata"].get("labels")).get(f"{self._settings.domain}/state"),
            "to": state.value if state is not None else None,
            "reason": step.reason,
        }
        if pods.number:
            fields["pods"] = list(pods.names)
        if self._settings.dry_run:
            if self._is_new(f"step of {step.node}", str(fields["to"])):
                self._audit.write("would-change", **fields)
            return
        self._check_lead()
        change = changed(node, step, self._settings)
        try:
            await self._api.request("PATCH", f"/api/v1/nodes/{step.node}", change, kind=MERGE)
        except ApiError as error:
            self._pass_over(step.node, error)
            return
        self._metrics.count(state)
        self._audit.write("changed", **fields)
        await self._tell(step, node, state, pods)

    async def _tell(self, step: Step, node: Node, state: State | None, pods: Leaving) -> None:
        message = step.reason
        if pods.number:
            named = ", ".join(pods.names[:_NAMED_PODS])
            more = pods.number - _NAMED_PODS
            message += f": {named}" + (f" and {more} more" if more > 0 else "")
            refusals = {
                self._memory.told.get(f"eviction of {each['metadata']['uid']}", "")
                for each in pods.evict
            } - {"", "granted"}
            message += "".join(f"; {each}" for each in sorted(refusals))
        if pods.unmanaged:
            message += "; nothing starts again: " + ", ".join(
                name_of(each) for each in pods.unmanaged[:_NAMED_PODS]
            )
        reason = "NodeLeftAlone" if step.hold else _REASONS[state]
        body = event(
            step.node, str(node["metadata"]["uid"]), reason, message, self._holder,
            warns=state in _WARNINGS or step.hold,
        )  # fmt: skip
        try:
            await self._api.request("POST", EVENTS, body)
        except ApiError as error:
            # What was done is done, and stands on the node.
            self._audit.write("event-lost", node=step.node, reason=str(error))

    async def _evict(self, node: str, pod: Pod) -> None:
        """Ask a pod to leave, with the grace period that it has, if its budget lets it."""
        about = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": about["name"], "namespace": about["namespace"]},
            # Another pod of that name may be elsewhere.
            "deleteOptions": {"preconditions": {"uid": about["uid"]}},
        }
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}/eviction"
        outcome, reason = "granted", "granted"
        try:
            await self._api.request("POST", path, body)
        except ApiError as error:
            if error.status in {MISSING, CONFLICT}:  # it has gone by itself
                return
            if error.status == 0:
                raise
            outcome = "refused" if error.status == TOO_MANY else "failed"
            reason = f"{name_of(pod)}: {error.message}"
        self._metrics.evictions.labels(outcome).inc()
        if self._is_new(f"eviction of {about['uid']}", reason):
            self._audit.write(
                "eviction", node=node, pod=name_of(pod), outcome=outcome,
                **({"reason": reason} if outcome != "granted" else {}),
            )  # fmt: skip
