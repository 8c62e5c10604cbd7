"""What clusters and operators make by themselves passes the admission that Falaj installs.

What Falaj's components make is asked about in `test_platform_under_admission`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from falaj.components.kubernetes.admission.policy import ACCOUNTS
from falaj.engine.controlplane import ControlPlane, addons, binaries
from falaj.engine.gobuild import module_folders
from falaj.engine.progress import to_stderr
from tests.cluster.made_by_controllers import Made, made_of, refused_to_controllers
from tests.cluster.residency_cluster import account, refusal, refused, residence

pytestmark = pytest.mark.cluster

REGISTRY = "registry.acme.example/falaj"
SITE: dict[str, Any] = {
    "distribution": "existing", "region": "dxb-1", "registry": REGISTRY, "tenant": "platform",
    "owner": "platform@acme.example", "data_class": "confidential", "cost_center": "ai-1",
    "cluster_registries": ["registry.acme.example/kubernetes"],
}  # fmt: skip
GPU_OPERATOR = "github.com/NVIDIA/gpu-operator"
_RIGHTS = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with residence(SITE) as found:
        found.apply([account(name, "kube-system") for name in ("kube-proxy", "coredns")])
        yield found


def program(kind: str, name: str, image: str, **pod: Any) -> dict[str, Any]:
    """A program of the cluster's own, as its installer makes it."""
    labels = {"k8s-app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": name,
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "containers": [{"name": name, "image": image}],
            **pod,
        },
    }
    return {
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip


def programs(registry: str) -> list[dict[str, Any]]:
    """As kubeadm makes them: by tags, from the registry that its ``imageRepository`` names.

    https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/
    """
    reach = {
        "hostNetwork": True,
        "volumes": [{"name": "lib", "hostPath": {"path": "/lib/modules"}}],
    }
    return [
        program("DaemonSet", "kube-proxy", f"{registry}/kube-proxy:v1.36.1", **reach),
        program("Deployment", "coredns", f"{registry}/coredns/coredns:v1.13.1"),
    ]


def test_programs_of_the_cluster_are_named_by_tags(plane: ControlPlane) -> None:
    found = programs("registry.acme.example/kubernetes")
    assert refused(plane, found) == {}
    assert refused_to_controllers(plane, (one for each in found for one in made_of(each))) == {}


def test_programs_of_the_cluster_come_from_the_country(plane: ControlPlane) -> None:
    for each in programs("registry.k8s.io"):
        said = refusal(plane, each)
        assert "images from registries that aren't allowed: registry.k8s.io/" in said


def test_programs_of_others_are_named_by_digest_wherever_their_nodes_are_reached(
    plane: ControlPlane,
) -> None:
    """The exception is the cluster's own; agents of the platform have digests."""
    elsewhere = program("DaemonSet", "trainer", f"{REGISTRY}/driver:1")
    elsewhere["metadata"]["namespace"] = "gpu-operator"
    assert "images that aren't named by their digest" in refusal(plane, elsewhere)


def rights(namespace: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rights of an operator's account in the whole cluster."""
    name = f"operator-of-{namespace}"
    about = {"metadata": {"name": name}, "apiVersion": f"{_RIGHTS}/v1"}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": namespace}
    role = {"apiGroup": _RIGHTS, "kind": "ClusterRole", "name": name}
    return [
        {**about, "kind": "ClusterRole", "rules": rules},
        {**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the GPU operator makes for its agents: the newest version that lies in a Go module."""
    scratch = tmp_path_factory.mktemp("operator") / "module"
    module = binaries.built()[addons.DEFINITIONS].module
    folder = module_folders(module, [GPU_OPERATOR], scratch, to_stderr)[GPU_OPERATOR]
    files = sorted(folder.glob("assets/*/0[23]*_*role*.yaml"))
    found = [yaml.safe_load(each.read_text("utf-8")) for each in files]
    for each in found:
        each["metadata"]["namespace"] = "gpu-operator"
        if each["kind"].startswith("Cluster"):
            del each["metadata"]["namespace"]
        for subject in each.get("subjects", []):
            subject["namespace"] = "gpu-operator"
    return found


def test_the_gpu_operator_makes_the_roles_of_its_agents(
    plane: ControlPlane, roles: list[dict[str, Any]]
) -> None:
    """With its own account: some allow `*` on nodes, no more than it may itself."""
    rules = [rule for each in roles for rule in each.get("rules", [])]
    kinds = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]
    makes = {"apiGroups": [_RIGHTS], "verbs": ["create"], "resources": kinds}
    for each in ("gpu-operator", "acme-training"):
        plane.apply(rights(each, [makes, *rules]))
    plane.apply([each for each in roles if each["kind"].endswith("Role")])
    again = [{**each, "metadata": {**each["metadata"], "name": "again"}} for each in roles]

    def made(namespace: str, objects: list[dict[str, Any]]) -> list[Made]:
        user = f"{ACCOUNTS}{namespace}:operator"
        return [Made(user, each, str(number)) for number, each in enumerate(objects)]

    assert refused_to_controllers(plane, made("gpu-operator", again)) == {}
    # Nobody else may, with the very same rights.
    wild = [
        each for each in again if each["kind"] == "ClusterRole" and "*" in str(each.get("rules"))
    ]
    assert wild
    found = refused_to_controllers(plane, made("acme-training", wild))
    assert len(found) == len(wild)
    assert all("(kubernetes-rbac-wildcard)" in why for why in found.values())
