"""Nodes that carry a region and their own name, and nothing of zones, racks and blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane
from tests.cluster.tenancy import (
    GPU,
    SITE,
    active,
    counted,
    eventually,
    job,
    nodes_of,
    platform_of,
    queue_objects,
    running,
    tenant_objects,
)
from tests.components.kubernetes.serving_services import DIGEST, service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PLAIN = replace(SITE, zones=(), racks_labelled=False)
TRAINING, SERVING = "acme-training", "acme-serving"
POOLS: dict[str, Any] = {
    "h200": {"nodes": 2, "cpu": 190, "memory_gib": 1900, "devices": {GPU: 8}},
}
LARGE = {"cpu": 400, "memory_gib": 4000, "devices": {GPU: 16}}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane) as found:
        found.nodes("h200=2,cpu=2", PLAIN)
        found.apply(tenant_objects("acme", training=LARGE, serving={"cpu": 64}))
        found.apply(queue_objects(POOLS, {"acme": {"quotas": {"h200": {"devices": {GPU: 16}}}}}))
        eventually("quotas are counted", lambda: counted(found, TRAINING, SERVING))
        eventually("the queue is active", lambda: active(found, "acme"))
        yield found


def test_nodes_have_neither_zones_nor_racks(cluster: ControlPlane) -> None:
    for each in cluster.objects.list("v1", "Node"):
        labels = each["metadata"]["labels"]
        assert labels["topology.kubernetes.io/region"] == SITE.region
        assert not {"topology.kubernetes.io/zone", "falaj.io/rack", "falaj.io/block"} & set(labels)


def test_a_gang_is_admitted_and_runs(cluster: ControlPlane) -> None:
    cluster.apply([job(TRAINING, "gang", pods=2)])
    eventually("the gang runs", lambda: len(running(cluster, "gang", TRAINING)) == 2)
    assert len(nodes_of(running(cluster, "gang", TRAINING))) == 2


def test_replicas_of_a_service_run_on_different_nodes(cluster: ControlPlane) -> None:
    objects = service(
        region=SITE.region, cpus=1, memory_mib=512, model_mib=64,
        versions=[{"version": 7, "weight": 100, "package_digest": DIGEST, "keys_digest": DIGEST}],
    )  # fmt: skip
    (found,) = [each for each in objects if each["kind"] == "Deployment"]
    # The autoscaler isn't here, and says how many.
    cluster.apply([{**found, "spec": {**found["spec"], "replicas": 2}}])

    def pods() -> list[dict[str, Any]]:
        return [
            each
            for each in cluster.objects.list("v1", "Pod", SERVING)
            if each["spec"].get("nodeName") and each["status"].get("phase") == "Running"
        ]

    eventually("both replicas run", lambda: len(pods()) == 2)
    assert len(nodes_of(pods())) == 2
