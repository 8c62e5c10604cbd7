"""The simulated machines of a running control plane: added, removed, dying, replaced."""

from __future__ import annotations

from typing import Any

from falaj.engine.controlplane.node_manifests import DEAD, PREFIX, node, node_name
from falaj.engine.controlplane.objects import Objects, wait_for
from falaj.engine.controlplane.pools import Pool, Site
from falaj.engine.errors import EngineError

READY_SECONDS = 120.0
LEASE = ("coordination.k8s.io/v1", "Lease")
LEASES = "kube-node-lease"
"""The namespace of machines' leases."""
FOR_EVER_SECONDS = 2**31 - 1
"""The longest that a lease can be held: 68 years."""


class Machines:
    """Nodes that kwok keeps."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, tuple[Pool, int, Site, int]] = {}

    def set(self, pools: tuple[Pool, ...], site: Site) -> list[str]:
        """Make each pool have its number of nodes, and wait until they are ready."""
        wanted: list[dict[str, Any]] = []
        for pool in pools:
            there = {
                each["metadata"]["name"]
                for each in self._objects.list("v1", "Node", labels=f"{PREFIX}pool={pool.name}")
            }
            names = [node_name(pool, index) for index in range(pool.number)]
            for name in sorted(there - set(names)):
                self.remove(name)
            for index, name in enumerate(names):
                self._known[name] = (pool, index, site, 0)
                wanted.append(node(pool, index, site))
        self._objects.create_all(wanted)
        return self._wait([each["metadata"]["name"] for each in wanted])

    def remove(self, name: str) -> None:
        """Take a machine away, as a cloud does: its node object goes, its pods are collected."""
        self._objects.delete("v1", "Node", name)
        # A dead machine's lease is nobody's to renew: it must not outlive the node until the
        # garbage collector comes, or a new machine of that name would not get it.
        self._objects.delete(*LEASE, name, LEASES)
        self._known.pop(name, None)

    def kill(self, name: str) -> None:
        """Let a machine die: it says nothing any more, and can't confirm that its pods end.

        Kubernetes learns of it when the grace period is over (commands.NODE_GRACE_SECONDS). Its
        pods are then evicted as their tolerations say (commands.TOLERATION_SECONDS by default),
        and stay on their way out until the node is removed. Raises EngineError for a name that
        is no machine's.
        """
        if self._objects.get(*LEASE, name, LEASES) is None:
            raise EngineError(
                f"no machine {name!r} runs here; known: {', '.join(self._known) or 'none'}"
            )
        self._objects.patch("v1", "Node", name, {"metadata": {"annotations": {DEAD: "true"}}})
        # kwok renews no lease that another holds, and leaves that node's pods alone. The time of
        # the last renewal stays: the machine's last sign of life.
        taken = {"holderIdentity": DEAD, "leaseDurationSeconds": FOR_EVER_SECONDS}
        self._objects.patch(*LEASE, name, {"spec": taken}, LEASES)

    def replace(self, name: str) -> str:
        """Put a new machine into the place of one that died; return the new node's name."""
        if name not in self._known:
            raise EngineError(
                f"no machine {name!r} was made here; known: {', '.join(self._known) or 'none'}"
            )
        pool, index, site, generation = self._known[name]
        self.remove(name)
        new = node(pool, index, site, generation + 1)
        self._objects.create_all([new])
        self._known[new["metadata"]["name"]] = (pool, index, site, generation + 1)
        return self._wait([new["metadata"]["name"]])[0]

    def _wait(self, names: list[str]) -> list[str]:
        expected = set(names)

        def none_missing() -> bool:
            ready = {
                each["metadata"]["name"]
                for each in self._objects.list("v1", "Node", labels=f"{PREFIX}pool")
                if is_ready(each)
            }
            return expected <= ready

        if expected:
            wait_for(none_missing, f"{len(expected)} nodes are ready", READY_SECONDS)
        return names


def is_ready(found: dict[str, Any]) -> bool:
    """Whether a node is ready and takes pods."""
    conditions = found["status"].get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    held = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    taints = found["spec"].get("taints") or []
    return ready and not any(each["key"] in held for each in taints)
