"""Who has to leave a node before it may be reset: as ``kubectl drain`` has it.

https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/ and
https://github.com/kubernetes/kubectl/blob/master/pkg/drain/filters.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.workloads.documents import mapping

_MIRROR: Final = "kubernetes.io/config.mirror"
_ENDED: Final = ("Succeeded", "Failed")

Pod = Mapping[str, Any]


@dataclass(frozen=True)
class Leaving:
    """The pods of one node that keep it from being drained."""

    evict: tuple[Pod, ...] = ()
    """To be asked to leave."""
    going: tuple[Pod, ...] = ()
    """On their way out: they have their grace period, in which jobs write checkpoints."""
    unmanaged: tuple[Pod, ...] = ()
    """Nothing starts them again elsewhere: a person decides."""

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.evict) + len(self.going) + len(self.unmanaged)

    @property
    def names(self) -> tuple[str, ...]:
        """``namespace/name`` of each."""
        every = (*self.evict, *self.going, *self.unmanaged)
        return tuple(sorted(name_of(each) for each in every))


def name_of(pod: Pod) -> str:
    """``namespace/name``."""
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def leaving(pods: Iterable[Pod], *, evict_unmanaged: bool) -> Leaving:
    """Sort the pods of a node.

    Not counted are those of DaemonSets, which come back at once and bring drivers and metrics,
    static pods, which the API server can't stop, and those that have ended, whatever finalizer
    still holds their object: a job's controller takes its own away in its own time.

    Args:
        pods: all that are bound to the node.
        evict_unmanaged: as in the settings.
    """
    evict: list[Pod] = []
    going: list[Pod] = []
    unmanaged: list[Pod] = []
    for pod in pods:
        about = pod["metadata"]
        owners = [each for each in about.get("ownerReferences") or () if each.get("controller")]
        owner = owners[0] if owners else None
        if has_ended(pod) or _MIRROR in (about.get("annotations") or {}):
            continue
        if owner is not None and owner.get("kind") == "DaemonSet":
            continue
        if about.get("deletionTimestamp"):
            going.append(pod)
        elif owner is None and not evict_unmanaged:
            unmanaged.append(pod)
        else:
            evict.append(pod)
    return Leaving(tuple(evict), tuple(going), tuple(unmanaged))


def has_ended(pod: Pod) -> bool:
    """Whether nothing of a pod runs any more.

    A pod that is being deleted keeps its phase until the kubelet's last word, and its object until
    its finalizers are gone: that its containers ended says enough.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    if status.get("phase") in _ENDED:
        return True
    if not pod["metadata"].get("deletionTimestamp"):
        return False
    statuses = [
        each
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for each in status.get(kind) or ()
    ]
    expected = len(pod["spec"]["containers"])
    if len(status.get("containerStatuses") or []) < expected:
        return False
    return all("running" not in mapping(each.get("state")) for each in statuses) and all(
        "terminated" in (each.get("state") or {}) for each in status["containerStatuses"]
    )
