"""Images that pools keep: pods on their nodes alone, of one form, under the platform's policies.

The machines are simulated: nothing is pulled. An API server of before 1.35, which drops image
volumes before it asks policies, is stood in for by an object without them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from falaj.components.catalogue.clusters import (
    IMAGE_PREFETCH,
    PREFETCH_PRIORITY,
    TENANT_LABEL,
)
from falaj.engine.controlplane import ControlPlane
from tests.cluster.made_by_controllers import made_of
from tests.cluster.residency_cases import found_by_packs
from tests.cluster.residency_cluster import install, refusal
from tests.cluster.tenancy import (
    GPU,
    PLATFORM,
    SITE,
    active,
    counted,
    eventually,
    job,
    members,
    nodes_of,
    platform_of,
    queue_objects,
    refused,
    running,
    tenant_objects,
)
from tests.components.kubernetes.test_prefetch import KEPT, LOCK, TRAIN

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TRAINING = "acme-training"
TAINTS = ["team=a:NoSchedule"]
POOLS: dict[str, Any] = {
    "h200": {"nodes": 2, "cpu": 190, "memory_gib": 1900, "devices": {GPU: 8},
             "prefetch_images": KEPT},
    "cpu-x86-64": {"nodes": 2, "cpu": 30, "memory_gib": 120},
}  # fmt: skip
LARGE = {"cpu": 400, "memory_gib": 4000, "devices": {GPU: 16}}
Change = Callable[[dict[str, Any]], None]


def objects(*images: str) -> list[Any]:
    pools = {**POOLS, "h200": {**POOLS["h200"], "prefetch_images": [*images]}}
    quotas = {"acme": {"quotas": {"h200": {"devices": {GPU: 16}}}}}
    return queue_objects(pools, quotas, images=LOCK)


def daemon_set(change: Change | None = None) -> dict[str, Any]:
    """The platform's own, changed."""
    (found,) = [each for each in objects(*KEPT) if each["kind"] == "DaemonSet"]
    made = copy.deepcopy(dict(found))
    # Else it is the one that is there, and what is left out stays.
    made["metadata"]["name"] = "another"
    if change:
        change(made)
    return made


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane, "h200=2,cpu=2") as found:
        found.apply(tenant_objects("acme", training=LARGE))
        install(found, PLATFORM)
        for each in objects(*KEPT):
            assert refusal(found, each, real=True) == "", each["metadata"]["name"]
        eventually("quotas are counted", lambda: counted(found, TRAINING))
        eventually("the queue is active", lambda: active(found, "acme"))
        yield found


def pods(plane: ControlPlane) -> list[dict[str, Any]]:
    return [
        each
        for each in plane.objects.list("v1", "Pod", IMAGE_PREFETCH)
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    ]


def held(plane: ControlPlane) -> list[list[str]]:
    """By pod, what it holds."""
    return [
        [volume["image"]["reference"].rpartition("/")[2] for volume in each["spec"]["volumes"]]
        for each in pods(plane)
    ]


def test_every_node_of_the_pool_holds_them_and_no_other_does(plane: ControlPlane) -> None:
    eventually("a pod runs on each node", lambda: len(pods(plane)) == 2)
    nodes = nodes_of(pods(plane))
    assert len(nodes) == 2
    assert all(each.startswith("h200-") for each in nodes)

    def scheduled() -> int:
        found = plane.objects.get("apps/v1", "DaemonSet", "h200", IMAGE_PREFETCH)
        assert found is not None
        return found["status"]["desiredNumberScheduled"]

    eventually("they are counted", lambda: scheduled() == 2)
    for each in pods(plane):
        assert each["spec"]["priority"] < -10
        assert each["spec"]["preemptionPolicy"] == "Never"
        assert [one["name"] for one in each["spec"]["volumes"]] == ["image-0", "image-1"]


def test_a_gang_has_the_machines_beside_them_whole(plane: ControlPlane) -> None:
    eventually("a pod runs on each node", lambda: len(pods(plane)) == 2)
    plane.apply([job(TRAINING, "gang", pods=2)])
    eventually("the gang runs", lambda: len(running(plane, "gang", TRAINING)) == 2)
    assert nodes_of(running(plane, "gang", TRAINING)) == nodes_of(pods(plane))
    plane.objects.delete("batch/v1", "Job", "gang", TRAINING)


def test_a_new_list_rolls(plane: ControlPlane) -> None:
    (made,) = [each for each in objects(TRAIN) if each["kind"] == "DaemonSet"]
    assert refusal(plane, made, real=True) == ""
    name = TRAIN.partition("/")[2]
    eventually("all hold the new list", lambda: held(plane) == [[name], [name]])
    assert refusal(plane, next(each for each in objects(*KEPT) if each["kind"] == "DaemonSet"),
                   real=True) == ""  # fmt: skip


def spec_of(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["template"]["spec"]
    return found


def _set(**changes: Any) -> Change:
    return lambda made: spec_of(made).update(changes)


def _container(**changes: Any) -> Change:
    return lambda made: spec_of(made)["containers"][0].update(changes)


def _limits(**limits: str) -> Change:
    """Other limits than its own; what is asked for is as much, or nothing."""
    return _container(resources={"limits": limits, "requests": limits})


def _beside(made: dict[str, Any]) -> None:
    spec = spec_of(made)
    spec["containers"] += [{**spec["containers"][0], "name": "second"}]


def _before(made: dict[str, Any]) -> None:
    spec = spec_of(made)
    spec["initContainers"] = [{**spec["containers"][0], "name": "first"}]


def _scratch(made: dict[str, Any]) -> None:
    spec_of(made)["volumes"] += [{"name": "scratch", "emptyDir": {}}]


def _dropped(made: dict[str, Any]) -> None:
    """As an API server of before leaves it."""
    del spec_of(made)["volumes"]
    del spec_of(made)["containers"][0]["volumeMounts"]


def _tolerates(key: str = "") -> Change:
    toleration = {"operator": "Exists", **({"key": key} if key else {})}
    return _set(tolerations=[toleration])


OWN = "falaj-image-prefetch-templates"
ATTACKS: dict[str, tuple[Change, str]] = {
    "no-images": (_dropped, "pods here do nothing but hold images: no image volumes;"),
    "scratch": (_scratch, OWN),
    "two-containers": (_beside, OWN),
    "init-container": (_before, OWN),
    "token": (_set(automountServiceAccountToken=True), OWN),
    "account": (_set(serviceAccountName="default"), OWN),
    "priority": (_set(priorityClassName="falaj-urgent"), OWN),
    "claims": (_set(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]), OWN),
    "pod-resources": (_set(resources={"requests": {"cpu": "100"}, "limits": {"cpu": "100"}}), OWN),
    "memory": (_limits(cpu="100m", memory="900Gi"), OWN),
    "cores": (_limits(cpu="90", memory="64Mi"), OWN),
    "no-limits": (_container(resources={}), OWN),
    "fabric": (_limits(**{"cpu": "100m", "memory": "64Mi", "rdma/ib": "1"}), OWN),
    "gpu": (_limits(**{"cpu": "100m", "memory": "64Mi", GPU: "8"}), OWN),
    "every-taint": (_tolerates(), "every taint"),
    "sick-nodes": (_tolerates("falaj.io/gpu-error"), "falaj.io/gpu-error"),
    "cordoned": (_tolerates("node.kubernetes.io/unschedulable"), "unschedulable"),
    "control-plane": (_tolerates("node-role.kubernetes.io/control-plane"), "control-plane"),
    "foreign-image": (_container(image="docker.io/library/busybox:1"), "kubernetes-image-"),
    "foreign-volume": (
        lambda made: spec_of(made)["volumes"][0]["image"].update(reference="ghcr.io/a/b:1"),
        "kubernetes-image-",
    ),
    "tag": (
        lambda made: spec_of(made)["volumes"][0]["image"].update(
            reference="registry.acme.example/falaj/a:1"
        ),
        "kubernetes-image-digest",
    ),
}


def test_its_own_form_passes_under_another_name(plane: ControlPlane) -> None:
    assert refusal(plane, daemon_set()) == ""


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_else_is_taken_there(plane: ControlPlane, attack: str) -> None:
    change, by = ATTACKS[attack]
    made = daemon_set(change)
    if by == OWN:
        # With them another policy refuses it, too, and the API server says the first that does.
        spec_of(made)["tolerations"] = []
    assert by in refusal(plane, made)


def test_what_an_older_api_server_drops_is_told(plane: ControlPlane) -> None:
    said = refusal(plane, daemon_set(_dropped))
    assert "they need Kubernetes 1.35 (cluster-image-prefetch)" in said


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "Job"])
def test_other_kinds_are_refused_there(plane: ControlPlane, kind: str) -> None:
    template = daemon_set()["spec"]["template"]
    # Tolerations would be refused by themselves.
    template["spec"]["tolerations"] = []
    about = {"name": "another", "namespace": IMAGE_PREFETCH}
    bodies: dict[str, dict[str, Any]] = {
        "Pod": {"apiVersion": "v1", "spec": template["spec"]},
        "Deployment": {"apiVersion": "apps/v1", "spec": {
            "selector": {"matchLabels": template["metadata"]["labels"]}, "template": template,
        }},
        "Job": {"apiVersion": "batch/v1", "spec": {"template": {
            **template, "spec": {**template["spec"], "restartPolicy": "Never"},
        }}},
    }  # fmt: skip
    assert "image" in refusal(plane, {**bodies[kind], "kind": kind, "metadata": about})


def test_no_debugging_container_gets_into_a_pod_of_it(plane: ControlPlane) -> None:
    eventually("a pod runs on each node", lambda: len(pods(plane)) == 2)
    name = pods(plane)[0]["metadata"]["name"]
    container = {**spec_of(daemon_set())["containers"][0], "name": "debugger"}
    container = {key: container[key] for key in ("name", "image", "securityContext")}
    change = {"spec": {"ephemeralContainers": [container]}}
    said = refused(
        lambda: plane.objects.patch(
            "v1", "Pod", name, change, IMAGE_PREFETCH, part="ephemeralcontainers"
        )
    )
    # Not of the one form any more: the API server says the first policy that finds it.
    assert "cluster-image-prefetch" in said or "kubernetes-tolerations" in said


def _move(made: dict[str, Any], namespace: str) -> None:
    """Put it elsewhere; whose it says it is would be refused there by itself."""
    made["metadata"]["namespace"] = namespace
    for about in (made["metadata"], made["spec"]["template"]["metadata"]):
        about["labels"].pop(TENANT_LABEL, None)


@pytest.mark.parametrize("elsewhere", [TRAINING, "monitoring", "default"])
def test_the_same_form_elsewhere_gets_onto_no_machine_with_gpus(
    plane: ControlPlane, elsewhere: str
) -> None:
    def moved(made: dict[str, Any]) -> None:
        _move(made, elsewhere)
        # Refused by itself, and the API server says the first thing that it finds.
        del spec_of(made)["priorityClassName"]

    made = daemon_set(moved)
    assert "kubernetes-tolerations" in found_by_packs(made)
    assert "keep nodes for others: nvidia.com/gpu; allowed" in refusal(plane, made)


def test_nobody_else_has_its_priority(plane: ControlPlane) -> None:
    def moved(made: dict[str, Any]) -> None:
        _move(made, TRAINING)
        spec_of(made)["tolerations"] = []

    said = refusal(plane, daemon_set(moved))
    assert PREFETCH_PRIORITY in said
    assert "(cluster-priority-class)" in said


@pytest.mark.parametrize("duty", ["trainers", "deployers", "admins"])
def test_nobody_of_a_tenant_makes_any(plane: ControlPlane, duty: str) -> None:
    user = members(plane, "acme", duty)
    for each in (
        daemon_set(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "image-prefetch"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "image-prefetch-2"}},
    ):
        assert "forbidden" in refused(lambda made=each: user.create(made))


def test_the_controllers_own_pods_alone_stay_on_cordoned_machines(plane: ControlPlane) -> None:
    """What its controller adds to them is refused of anybody else."""
    made = next(iter(made_of(daemon_set()))).manifest
    pod = copy.deepcopy(dict(made))
    pod["spec"]["tolerations"] += [
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    ]
    controller = plane.as_user("system:serviceaccount:kube-system:daemon-set-controller",
                               ["system:serviceaccounts", "system:serviceaccounts:kube-system",
                                "system:masters"])  # fmt: skip
    assert refusal(controller, pod, create=True) == ""
    assert refusal(plane, pod, create=True) != ""
    assert SITE.region in str(pod["spec"]["nodeSelector"])
