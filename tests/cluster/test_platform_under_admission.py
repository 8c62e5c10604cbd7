"""The platform under the policies that its own stack installs: all that it makes is taken.

What the shipped stacks declare, what their charts render, and what controllers make of both, each
with the controller's own account: the API server judges what is made again and again, long after
the stack was made. Charts that can't be had as Go modules aren't rendered (`ABSENT`); the
definitions of two kinds can't be had either (`NOT_SERVED`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane, addons, binaries, start
from tests.cluster.made_by_controllers import (
    jobs_of_runtime,
    made_of,
    proxies_of,
    refused_to_controllers,
)
from tests.cluster.residency_cases import in_kind
from tests.cluster.residency_cluster import account, enforce, namespace, refused
from tests.cluster.stack_objects import DEFINITION, STACKS, Contents, contents, of_teams

pytestmark = pytest.mark.cluster

#: Charts of the platform that lie in no Go module: of all distributions, and of one.
ABSENT = {
    "base", "istiod", "cni", "ztunnel", "external-secrets", "gpu-operator", "keda", "kserve-crd",
    "kserve-resources", "kube-prometheus-stack", "opencost", "velero",
}  # fmt: skip
ONLY = {
    "eks": {"aws-efa-k8s-device-plugin", "aws-load-balancer-controller", "cluster-autoscaler"},
    "aks": {"network-operator"},
}
#: By group: definitions that come with those charts, and can be had without them.
DEFINITIONS = (
    "external-secrets", "prometheus-operator", "istio", "keda", "gateway-api", "envoy-gateway",
)  # fmt: skip
NOT_SERVED = {"VolumeSnapshotClass", "NicClusterPolicy"}
#: What others need to be there, in this order: it is really made, the rest is only asked about.
FIRST = (
    "Namespace", "PriorityClass", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding",
    "RoleBinding",
)  # fmt: skip


@pytest.fixture(scope="module")
def stacks(charts: Path) -> dict[str, Contents]:
    assert any(charts.iterdir())
    # Definitions are the same everywhere.
    return {
        place: contents(*names, definitions=place == "existing") for place, names in STACKS.items()
    }


def without_words(schema: Any) -> Any:
    """A definition without what is for readers: most of it, which takes the API server long."""
    if isinstance(schema, list):
        return [without_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_words(each)
        for key, each in schema.items()
        # A property of that name has a schema of its own.
        if key != "description" or not isinstance(each, str)
    }


@pytest.fixture(scope="module")
def bare(stacks: dict[str, Contents]) -> Iterator[ControlPlane]:
    """A control plane that serves every kind of the stacks; charts' webhooks have no pods."""
    with start(webhooks=False) as plane:
        binaries.ensure((addons.DEFINITIONS,))
        found = {each["metadata"]["name"]: each for each in addons.definitions(DEFINITIONS)}
        for each in stacks["existing"].of_kind(DEFINITION):
            found[each["metadata"]["name"]] = dict(each)
        objects = [one for each in stacks.values() for one in each.objects]
        wanted = {(one["apiVersion"].partition("/")[0], one["kind"]) for one in objects}
        made = [
            without_words(each)
            for each in found.values()
            if (each["spec"]["group"], each["spec"]["names"]["kind"]) in wanted
        ]
        addons.install_definitions(plane.objects, made)
        yield plane


@pytest.fixture(scope="module", params=STACKS)
def place(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def stack(stacks: dict[str, Contents], place: str) -> Contents:
    return stacks[place]


@pytest.fixture(scope="module")
def plane(bare: ControlPlane, stack: Contents) -> ControlPlane:
    """The control plane under the stack's own policies, and no others."""
    enforce(bare, stack.policies, stack.region, stack.registry)
    return bare


def test_charts_that_cannot_be_had_are_known(stack: Contents, place: str) -> None:
    assert stack.absent == ABSENT | ONLY.get(place, set())


def test_what_the_rest_needs_is_taken(plane: ControlPlane, stack: Contents) -> None:
    """Namespaces, accounts and rights; they are there for the tests below."""
    for kind in FIRST:
        assert refused(plane, stack.of_kind(kind), real=True) == {}, kind


def test_every_other_object_is_taken(plane: ControlPlane, stack: Contents) -> None:
    others = [each for each in stack.objects if each["kind"] not in {*FIRST, *NOT_SERVED}]
    assert len(others) > 150
    assert refused(plane, others) == {}


def test_what_controllers_make_of_them_is_taken(
    plane: ControlPlane, stack: Contents, place: str
) -> None:
    teams = of_teams(place, stack)
    made = [one for each in (*stack.objects, *teams) for one in made_of(each)]
    made += jobs_of_runtime(stack.one("ClusterTrainingRuntime", "falaj-torch"), "acme-training")
    made += proxies_of(
        stack.one("EnvoyProxy", "falaj"), stack.one("Gateway", "falaj"),
        stack.one("ConfigMap", "envoy-gateway-config"),
    )  # fmt: skip
    kinds = {each.manifest["kind"] for each in made}
    assert kinds == {"ReplicaSet", "Job", "Pod", "Deployment", "Service"}
    assert refused_to_controllers(plane, made) == {}
    assert refused(plane, teams) == {}


def test_what_controllers_make_is_judged(plane: ControlPlane, stack: Contents) -> None:
    """Else the test above would say nothing."""
    manager = copy.deepcopy(dict(stack.one("Deployment", "kueue-controller-manager")))
    manager["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/kueue:v1"
    found = refused_to_controllers(plane, made_of(manager))
    assert {key.partition("/")[0] for key in found} == {"ReplicaSet", "Pod"}
    assert all("kubernetes-image-" in why for why in found.values())


def test_every_class_of_the_stack_can_be_claimed(plane: ControlPlane, stack: Contents) -> None:
    classes = [each["metadata"]["name"] for each in stack.of_kind("StorageClass")]
    claims = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"of-{each}", "namespace": "acme-training"},
            "spec": {
                "storageClassName": each,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        for each in classes
    ]
    assert refused(plane, claims) == {}


@pytest.mark.parametrize("place", ["existing"], indirect=True)
def test_agents_of_the_sites_storage_reach_their_nodes(
    plane: ControlPlane, stack: Contents
) -> None:
    """The classes' drivers are Ceph's; without its agents no volume is ever mounted again."""
    provisioners = {each["provisioner"] for each in stack.of_kind("StorageClass")}
    (of,) = {each.partition(".")[0] for each in provisioners}
    plane.apply([namespace(of, "privileged"), account("csi", of)])
    image = f"{stack.registry}/quay.io/cephcsi/cephcsi@sha256:{'1' * 64}"
    privileged = {"privileged": True, "allowPrivilegeEscalation": True}
    pod = {
        "serviceAccountName": "csi",
        "hostNetwork": True,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "csi", "image": image, "securityContext": privileged}],
        "volumes": [{"name": "mounts", "hostPath": {"path": "/var/lib/kubelet/pods"}}],
    }
    agent = in_kind("DaemonSet", of, pod, {})
    assert refused(plane, [agent]) == {}
    assert refused_to_controllers(plane, made_of(agent)) == {}
