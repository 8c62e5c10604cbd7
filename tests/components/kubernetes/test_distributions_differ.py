"""What differs between EKS, AKS and existing clusters: reviewed, and one name for one device."""

from __future__ import annotations

import json
from typing import Any

import pytest

from falaj.components.kubernetes.addons.installation import manifests as platform_manifests
from falaj.components.kubernetes.residency import check as check_residency
from falaj.components.kubernetes.residency import manifests as residency_manifests
from falaj.engine.controlplane.machines import Site, node, parse_pools
from tests.components.kubernetes.cluster_parts import COMMON, PLACES, same_as_golden
from tests.components.kubernetes.object_differences import by_object, by_word
from tests.components.kubernetes.platforms import spec, values
from tests.components.kubernetes.training_jobs import container_of, job

CLOUDS = ["eks", "aks"]


def residency(place: str) -> list[Any]:
    given: Any = {**COMMON, **PLACES[place]}
    return list(residency_manifests(check_residency("residency", given)))


@pytest.mark.parametrize("place", CLOUDS)
def test_objects_of_the_platform_differ_as_reviewed(place: str) -> None:
    found = by_object(platform_manifests(spec("existing")), platform_manifests(spec(place)))
    same_as_golden(f"platform/objects-{place}.diff", found)


@pytest.mark.parametrize("place", CLOUDS)
def test_the_policies_of_the_api_server_differ_as_reviewed(place: str) -> None:
    same_as_golden(f"residency-{place}.diff", by_word(residency("existing"), residency(place)))


def device_of_platform(place: str) -> str:
    """The resource that the platform's add-on makes of the fabric's interfaces."""
    if place == "eks":
        assert "efa-device-plugin" in values(spec(place))
        return "vpc.amazonaws.com/efa"  # Its plugin knows one name alone.
    (policy,) = (
        each for each in platform_manifests(spec(place)) if each["kind"] == "NicClusterPolicy"
    )
    (pool,) = json.loads(policy["spec"]["rdmaSharedDevicePlugin"]["config"])["configList"]
    return f"rdma/{pool['resourceName']}"


@pytest.mark.parametrize(
    ("place", "fabric"), [("eks", "efa"), ("aks", "infiniband"), ("existing", "infiniband")]
)
def test_jobs_ask_for_the_devices_that_the_platform_and_its_machines_have(
    place: str, fabric: str
) -> None:
    container = container_of(job(place, gpus_per_node=8, nodes=2, fabric=fabric))
    asked = container["resources"]["limits"]
    assert device_of_platform(place) in asked
    (pool,) = parse_pools("h200=1")
    machine = node(pool, 0, Site(distribution=place))["status"]["allocatable"]  # type: ignore[arg-type]
    assert int(machine[device_of_platform(place)]) >= int(asked[device_of_platform(place)])
