"""What the platform declares, applied to a real API server; Kueue with the platform's file.

The network operator's definition can't be had as a Go module: its one object isn't applied.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes._objects import Manifest, key_of
from falaj.components.kubernetes.addons.installation import manifests
from falaj.components.kubernetes.addons.kueue import kueue_configuration
from falaj.engine.controlplane import ControlPlane, addons, start
from tests.components.kubernetes.platforms import PLACES, spec

pytestmark = pytest.mark.cluster

DEFINITIONS = (
    "cert-manager", "external-secrets", "prometheus-operator", "istio",
)  # fmt: skip
ABSENT = {"NicClusterPolicy"}
#: A kind, where it is changed, and to what: none of these is taken.
WRONG: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("NetworkPolicy", ("spec", "policyType"), ["Ingress"]),
    ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "up == 0"),
    ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "ports"), "metrics"),
    ("ClusterSecretStore", ("spec", "condition"), []),
    ("ExternalSecret", ("spec", "refreshPolicy"), "Sometimes"),
    ("Certificate", ("spec", "issuer"), {"name": "falaj"}),
    ("PeerAuthentication", ("spec", "mtls", "mode"), "ALWAYS"),
    ("ClusterTrainingRuntime", ("spec", "mlPolicy", "nodes"), 2),
]


@pytest.fixture(scope="module")
def plane(trainer_definitions: list[dict[str, Any]]) -> Iterator[ControlPlane]:
    kinds = {each["kind"] for place in PLACES for each in declared(place)}
    with start() as running:
        wanted = addons.definitions(DEFINITIONS)
        running.define(
            *DEFINITIONS, kinds=kinds & {each["spec"]["names"]["kind"] for each in wanted}
        )
        addons.install_definitions(running.objects, trainer_definitions)
        yield running


def declared(place: str) -> list[Manifest]:
    return [each for each in manifests(spec(place)) if each["kind"] not in ABSENT]


def changed_on(place: str) -> list[Manifest]:
    """Objects of a place but those that are the same on EKS, whose labels name the region."""
    base = {key_of(each): each for each in declared("eks")}
    return [
        each
        for each in declared(place)
        if each.get("spec") != base.get(key_of(each), {}).get("spec")
    ]


@pytest.mark.parametrize("place", PLACES)
def test_objects_are_taken_with_every_field(plane: ControlPlane, place: str) -> None:
    objects = declared(place) if place == "eks" else changed_on(place)
    assert objects
    known = {each["metadata"]["name"] for each in plane.objects.list("v1", "Namespace")}
    own = {each["metadata"].get("namespace") for each in objects} - {None}
    spaces = [each for each in declared(place) if each["metadata"]["name"] in own - known]
    plane.apply([each for each in spaces if each["kind"] == "Namespace"])
    plane.apply(objects)


def test_a_second_time_changes_nothing(plane: ControlPlane) -> None:
    objects = [each for each in declared("eks") if each["kind"] in {"NetworkPolicy", "Namespace"}]
    plane.apply(objects)
    before = versions(plane)
    plane.apply(objects)
    assert versions(plane) == before


def versions(plane: ControlPlane) -> dict[str, str]:
    policies = plane.objects.list("networking.k8s.io/v1", "NetworkPolicy")
    found = [*policies, *plane.objects.list("v1", "Namespace")]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}


@pytest.mark.parametrize(("kind", "path", "value"), WRONG)
def test_a_field_that_is_not_known_is_refused(
    plane: ControlPlane, kind: str, path: tuple[str | int, ...], value: Any
) -> None:
    plane.apply([each for each in declared("eks") if each["kind"] == "Namespace"])
    found = next(each for each in declared("eks") if each["kind"] == kind)
    plane.apply([found], dry_run=True)
    wrong: Any = copy.deepcopy(dict(found))
    holder = wrong
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(ApiException) as refused:
        plane.apply([wrong], dry_run=True)
    assert refused.value.status in {400, 422, 500}
    assert str(path[-1]) in str(refused.value.body)


def test_pods_that_reach_the_host_are_refused_but_where_a_reason_is_given(
    plane: ControlPlane,
) -> None:
    plane.apply([each for each in declared("eks") if each["kind"] == "Namespace"])
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host", "namespace": "monitoring"},
        "spec": {"hostNetwork": True, "containers": [{"name": "a", "image": "registry/a"}]},
    }
    with pytest.raises(ApiException) as refused:
        plane.apply([pod], dry_run=True)
    assert refused.value.status == 403
    pod["metadata"] = {"name": "host", "namespace": "monitoring-nodes"}
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount",
                 "metadata": {"name": "default", "namespace": "monitoring-nodes"}}]  # fmt: skip
    plane.apply(accounts)
    plane.apply([pod], dry_run=True)


def test_kueue_starts_with_the_platforms_configuration() -> None:
    """It reads its file strictly, and gets ready."""
    settings = {"kueue": kueue_configuration(spec("eks"))}
    with start(controllers=("kueue",), controller_settings=settings) as running:
        classes = running.objects.list("kueue.x-k8s.io/v1beta2", "ClusterQueue")
        assert classes == []
