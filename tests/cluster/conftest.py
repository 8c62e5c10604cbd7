"""One control plane for all cluster tests of a session, clean for each module."""

from __future__ import annotations

import uuid
from collections.abc import Generator

import pytest

from engine.controlplane import ControlPlane, start
from engine.controlplane.objects import wait_for
from tests.cluster.leftovers import Leftovers

#: As the platform configures it (components/kubernetes/addons/kueue.py), but that the time until
#: a gang must be ready is short enough for a test to wait for.
KUEUE = {
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {
        "matchExpressions": [{"key": "falaj.io/duty", "operator": "In", "values": ["training"]}]
    },
    "waitForPodsReady": {
        "timeout": "60s",
        "recoveryTimeout": "20s",
        "blockAdmission": False,
        "requeuingStrategy": {
            "timestamp": "Eviction",
            "backoffLimitCount": 10,
            "backoffBaseSeconds": 1,
            "backoffMaxSeconds": 10,
        },
    },
    "integrations": {
        "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset"],
        "labelKeysToCopy": ["falaj.io/tenant", "falaj.io/cost-center"],
    },
    "fairSharing": {
        "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    },
    "resources": {
        "quotaCheckStrategy": "BlockUndeclared",
        "excludeResourcePrefixes": [
            "ephemeral-storage",
            "vpc.amazonaws.com/",
            "rdma/",
            "hugepages-",
        ],
    },
}


@pytest.fixture(scope="session")
def control_plane() -> Generator[ControlPlane]:
    """A control plane with Kueue and JobSet, and no nodes: a test says which it needs."""
    with start(controllers=("kueue", "jobset"), controller_settings={"kueue": KUEUE}) as plane:
        yield plane


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Generator[ControlPlane]:
    """The session's control plane for one module: what the module made is removed after it."""
    leftovers = Leftovers(control_plane.objects)
    yield control_plane
    leftovers.remove()


@pytest.fixture
def namespace(cluster: ControlPlane) -> Generator[str]:
    """A namespace of its own for one test, without rules of a tenant."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    account = ("v1", "ServiceAccount", "default", name)
    wait_for(lambda: cluster.objects.get(*account), f"the service account of {name}")
    yield name
    cluster.objects.delete("v1", "Namespace", name)
