"""What a module of tests made in the shared control plane."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager

from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from falaj.engine.errors import EngineError

#: Kinds without a namespace that tests make, in the order in which they can go.
KINDS = (
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("v1", "Namespace"),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta2", "Cohort"),
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
    ("kueue.x-k8s.io/v1beta2", "Topology"),
    ("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass"),
    ("v1", "PersistentVolume"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "Node"),
)
GONE_SECONDS = 180.0
#: Kinds whose objects a namespace waits for: each has a finalizer, or time to end. A look at a
#: namespace that goes is five seconds after it was asked to, and where one of these is left then,
#: the next is after half its time to end.
LINGERING = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("kueue.x-k8s.io/v1beta2", "Workload"),
    ("v1", "PersistentVolumeClaim"),
)


class Leftovers:
    """Notes what is there, and removes later what has come since."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._before = {kind: self._names(*kind) for kind in KINDS}

    def remove(self) -> None:
        """Remove what has come, and wait until it is gone: the next module starts clean."""
        for kind in KINDS:
            came = self._came(kind)
            for name in came:
                self._objects.delete(*kind, name)
            if kind == ("v1", "Namespace"):
                self._end_all_in(came)
            # Pods end on machines that are there, and queues that jobs are in don't go.
            wait_for(lambda kind=kind: not self._came(kind), f"no {kind[1]} is left", GONE_SECONDS)

    def _end_all_in(self, namespaces: set[str]) -> None:
        """End at once what namespaces would wait for; they are going, so nothing is made anew."""
        at_once = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        for kind in (each for each in LINGERING if self._objects.serves(*each)):
            for namespace in sorted(namespaces):
                path = self._objects.path(*kind, namespace)
                with contextlib.suppress(ApiException):  # it may be gone meanwhile
                    self._objects.request("DELETE", path, at_once)

    def _came(self, kind: tuple[str, str]) -> set[str]:
        return self._names(*kind) - self._before[kind]

    def _names(self, api_version: str, kind: str) -> set[str]:
        try:
            return {each["metadata"]["name"] for each in self._objects.list(api_version, kind)}
        except EngineError:
            return set()  # a kind whose controller doesn't run here


@contextmanager
def restored(plane: ControlPlane) -> Generator[ControlPlane]:
    """A control plane that is afterwards as it was, but for its definitions."""
    leftovers = Leftovers(plane.objects)
    try:
        yield plane
    finally:
        leftovers.remove()
