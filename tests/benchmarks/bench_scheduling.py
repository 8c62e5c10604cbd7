"""Pods placed per second on simulated nodes, through Kueue and by the scheduler alone.

The environment names other sizes as NODESxPODS: `make bench BENCH_SIZES=100x800,1000x5000`. The
largest that the platform is laid out for (1,000 nodes, 5,000 pods) takes some seven minutes where
two processors run the control plane and the simulation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.engine.controlplane import ControlPlane, start
from falaj.engine.controlplane.objects import wait_for

pytestmark = [pytest.mark.benchmark_suite, pytest.mark.timeout(7200)]

NAMESPACE = "bench"
#: Nodes and pods; pods in jobs of a hundred.
SIZES = [
    tuple(int(number) for number in size.split("x"))
    for size in os.environ.get("BENCH_SIZES", "20x100").split(",")
]
JOB_PODS = 100
PLACED_SECONDS = 3000.0


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    # Kueue as it is by itself: what was measured before stays comparable.
    settings: dict[str, dict[str, Any]] = {"kueue": {}}
    with start(controllers=("kueue", "jobset"), controller_settings=settings) as running:
        running.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        yield running


def job(name: str, pods: int, *, queued: bool) -> dict[str, Any]:
    """Pods of one GPU each: for any node, or as a tenant's are (pinned, through a queue)."""
    pinned = {"falaj.io/flavor": "h200", "topology.kubernetes.io/region": "me-central-1"}
    queue = {"kueue.x-k8s.io/queue-name": "default"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": queue if queued else {}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": pinned if queued else {},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "containers": [
                        {
                            "name": "main",
                            "image": "x",
                            "resources": {"limits": {"nvidia.com/gpu": "1"}},
                        }
                    ],
                }
            },
        },
    }


def quota(gpus: int) -> list[dict[str, Any]]:
    """A queue through which all of the pods may go."""
    api = "kueue.x-k8s.io/v1beta2"
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    groups = [
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "h200", "resources": resources}],
        }
    ]
    return [
        {
            "apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "h200"},
            "spec": {"nodeLabels": {"falaj.io/flavor": "h200"}},
        },
        {
            "apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "bench"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": api, "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": NAMESPACE},
            "spec": {"clusterQueue": "bench"},
        },
    ]  # fmt: skip


def placed_per_second(plane: ControlPlane, pods: int, *, queued: bool) -> float:
    """Make jobs, wait until all of their pods run, and remove them."""
    names = [f"{'queued' if queued else 'free'}-{number}" for number in range(pods // JOB_PODS)]
    begun = time.monotonic()
    plane.objects.create_all(job(name, JOB_PODS, queued=queued) for name in names)

    pods_path = plane.objects.path("v1", "Pod", NAMESPACE)

    def running() -> bool:
        # Not by the jobs' own count, which the job controller leaves as it is for minutes when it
        # has fallen behind; and all pods are looked at only when none is known to wait.
        waiting = {"fieldSelector": "status.phase=Pending", "limit": "1"}
        if plane.objects.request("GET", pods_path, **waiting)["items"]:
            return False
        found = plane.objects.list("v1", "Pod", NAMESPACE)
        return sum(each["status"].get("phase") == "Running" for each in found) >= pods

    wait_for(running, f"{pods} pods run", PLACED_SECONDS)
    rate = pods / (time.monotonic() - begun)
    for name in names:
        plane.objects.delete("batch/v1", "Job", name, NAMESPACE)

    def gone() -> bool:  # asking for all of them again and again would take the time it measures
        return not plane.objects.request("GET", pods_path, limit="1")["items"]

    wait_for(gone, "all pods are gone", PLACED_SECONDS)
    return rate


@pytest.mark.parametrize(("nodes", "pods"), SIZES)
def test_pods_placed_per_second(
    benchmark: BenchmarkFixture, plane: ControlPlane, nodes: int, pods: int
) -> None:
    plane.nodes(f"h200={nodes}")
    plane.apply(quota(nodes * 8))
    bound = placed_per_second(plane, pods, queued=False)
    rates: list[float] = []
    benchmark.pedantic(
        lambda: rates.append(placed_per_second(plane, pods, queued=True)), rounds=1, iterations=1
    )
    benchmark.extra_info["pods_per_second"] = round(rates[0], 1)
    benchmark.extra_info["bound_pods_per_second"] = round(bound, 1)
    print(
        f"\n{nodes} nodes, {pods} pods: {rates[0]:.0f} pods/s through Kueue and pinned, "
        f"{bound:.0f} pods/s without either ({rates[0] / bound:.0%})"
    )
