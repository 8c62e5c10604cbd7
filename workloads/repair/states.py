"""What is done with which node next: pure functions of what is known of all nodes.

::

    in service ── sick long enough, brake closed ──▶ quarantined ──▶ draining ──▶ drained
        ▲                                                │     deadline │ ▲          │
        │                                                │              ▼ │          │
        │                                                │        drain-blocked      │
        └── well long enough ── recovering ◀── well ─────┴──────────────┴────────────┘

A node that is sick again while it recovers is quarantined again; one whose state nobody knows
stays where it is, and nothing is evicted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from falaj.workloads.repair.settings import Settings


class State(Enum):
    """Where a node is on its way out and back; in service it has none."""

    QUARANTINED = "quarantined"
    DRAINING = "draining"
    BLOCKED = "drain-blocked"
    DRAINED = "drained"
    RECOVERING = "recovering"


class Health(Enum):
    """What the node's conditions and taints say."""

    WELL = "well"
    SICK = "sick"
    UNKNOWN = "unknown"
    """It isn't ready, or says nothing any more of what it was sick of."""


EMPTYING: Final = frozenset({State.DRAINING, State.BLOCKED, State.DRAINED})
"""States in which it matters which pods are on the node."""


@dataclass(frozen=True)
class Record:
    """What stands on a node that was taken out of service."""

    state: State
    since: float
    """Of this state: seconds since 1970."""
    causes: tuple[str, ...]
    """Conditions and taints that it was taken out for."""
    deadline: float = 0.0
    """Of the drain, likewise; 0 before it began."""


@dataclass(frozen=True)
class NodeView:
    """What is known of one node."""

    name: str
    health: Health = Health.WELL
    causes: tuple[str, ...] = ()
    """Conditions and taints that say that it is sick now."""
    sick_since: float = 0.0
    """Since when the oldest of them holds."""
    record: Record | None = None
    tainted: bool = False
    """Whether our taint is on it."""
    hold: bool = False
    """Whether a person asked to leave it alone."""
    away: bool = False
    """Whether others took it out of service: it is cordoned, not ready, or has the taint without a
    record of ours."""
    remaining: int = 0
    """Pods that keep it from being drained; asked for in `EMPTYING` states alone."""


@dataclass(frozen=True)
class Step:
    """What is done with one node in this pass."""

    node: str
    record: Record | None
    """What stands on it afterwards; None: nothing, and the taint goes."""
    changes: bool
    """Whether that is another state than before."""
    evict: bool = False
    """Whether its pods are asked to leave."""
    hold: bool = False
    """Whether it is left alone from now on: a person took the taint away."""
    reason: str = ""


@dataclass(frozen=True)
class Brake:
    """How many nodes are out of service, or ought to be."""

    limit: int
    unfit: tuple[str, ...]
    """Nodes that are out of service, for whatever reason, and those that are sick."""

    @property
    def open(self) -> bool:
        """Whether there are so many that the fault may be in what reports them: no further node is
        taken out, and a person is told."""
        return len(self.unfit) > self.limit


@dataclass(frozen=True)
class Plan:
    """What one pass does."""

    brake: Brake
    steps: tuple[Step, ...]


def plan(views: Sequence[NodeView], settings: Settings, now: float) -> Plan:
    """Decide what is done with every node.

    Args:
        views: all nodes that are looked after.
        settings: what was asked for.
        now: seconds since 1970.
    """
    unfit = tuple(
        sorted(
            each.name
            for each in views
            if each.record is not None or each.away or _is_due(each, settings, now)
        )
    )
    brake = Brake(settings.limit(len(views)), unfit)
    steps = (_step(each, brake, settings, now) for each in views if not each.hold)
    return Plan(brake, tuple(each for each in steps if each is not None))


def _is_due(view: NodeView, settings: Settings, now: float) -> bool:
    """Whether a node is sick for long enough."""
    return view.health is Health.SICK and now - view.sick_since >= settings.sick_minutes * 60


def _step(view: NodeView, brake: Brake, settings: Settings, now: float) -> Step | None:
    record = view.record
    if record is None:
        return _in_service(view, brake, settings, now)
    if not view.tainted:
        return Step(view.name, None, changes=True, hold=True, reason="the taint was taken away")
    if record.state is State.RECOVERING:
        return _recovering(view, record, settings, now)
    if view.health is Health.WELL:
        return _to(view, State.RECOVERING, now, "none of what it was taken out for is left")
    if record.state in EMPTYING:
        return _emptying(view, record, settings, now)
    return _quarantined(view, settings, now)


def _in_service(view: NodeView, brake: Brake, settings: Settings, now: float) -> Step | None:
    # With the taint of somebody else's hand it is theirs.
    if view.tainted or brake.open or not _is_due(view, settings, now):
        return None
    return _to(view, State.QUARANTINED, now, _causes(view))


def _recovering(view: NodeView, record: Record, settings: Settings, now: float) -> Step | None:
    if view.health is not Health.WELL:
        return _to(view, State.QUARANTINED, now, _causes(view))
    if now - record.since < settings.healthy_minutes * 60:
        return None
    return Step(view.name, None, changes=True, reason="well for long enough")


def _quarantined(view: NodeView, settings: Settings, now: float) -> Step | None:
    if view.health is not Health.SICK:
        return None
    deadline = now + settings.drain_minutes * 60
    return _to(view, State.DRAINING, now, _causes(view), deadline=deadline)


def _emptying(view: NodeView, record: Record, settings: Settings, now: float) -> Step | None:
    """A node whose pods leave, or have left."""
    if view.remaining == 0:
        if record.state is State.DRAINED:
            return None
        return _to(view, State.DRAINED, now, "no pod is left on it", deadline=record.deadline)
    evict = view.health is Health.SICK
    left = f"{view.remaining} pods are still on it"
    if record.state is State.DRAINED:
        # Something tolerates the taint: whoever resets the GPU must not rely on an empty node.
        deadline = now + settings.drain_minutes * 60
        return replace(_to(view, State.DRAINING, now, left, deadline=deadline), evict=evict)
    if record.state is State.DRAINING and now >= record.deadline:
        blocked = _to(view, State.BLOCKED, now, left, deadline=record.deadline)
        return replace(blocked, evict=evict)
    return Step(view.name, record, changes=False, evict=True, reason=left) if evict else None


def _to(view: NodeView, state: State, now: float, reason: str, *, deadline: float = 0.0) -> Step:
    """Into another state. All that the node was sick of meanwhile has to be well again."""
    before = view.record.causes if view.record is not None else ()
    causes = tuple(dict.fromkeys((*before, *view.causes)))
    return Step(view.name, Record(state, now, causes, deadline), changes=True, reason=reason)


def _causes(view: NodeView) -> str:
    return ", ".join(view.causes) or f"its state is {view.health.value}"
