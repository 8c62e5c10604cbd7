"""Kubernetes objects get the names and identities that an API server would give them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from falaj.sandbox.clouds.kubernetes import MODEL, cluster_of
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from falaj.sandbox.store import Store
from falaj.wire import UNKNOWN

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMESPACE = "kubernetes:core/v1:Namespace"
SERVICE = "kubernetes:core/v1:Service"
POOL = "kubernetes:karpenter.sh/v1:NodePool"


@pytest.fixture
def cluster() -> Sandbox:
    return Sandbox("kubernetes", config={"namespace": "team"})


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "under_score"}, "metadata.name"),
        ({"name": "-a"}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"name": "a", "labels": {"x": "spaced out"}}, 'metadata.labels["x"]'),
        ({"name": "a", "labels": {"x": "a" * 64}}, 'metadata.labels["x"]'),
    ],
)
def test_names_and_labels_that_are_none(
    cluster: Sandbox, metadata: dict[str, Any], path: str
) -> None:
    _, problems = cluster.check(CONFIG_MAP, "c", {"metadata": metadata})
    assert [problem.path for problem in problems] == [path]


def test_second_object_of_one_name_is_refused(cluster: Sandbox) -> None:
    inputs = {"metadata": {"name": "a"}}
    cluster.create(CONFIG_MAP, "one", inputs)
    with pytest.raises(SandboxError, match="'team/a' already exists"):
        cluster.create(CONFIG_MAP, "two", inputs)
    cluster.create(CONFIG_MAP, "three", {"metadata": {"name": "a", "namespace": "other"}})


def test_queries_are_refused_with_what_to_do(cluster: Sandbox) -> None:
    with pytest.raises(SandboxError, match="declare the objects themselves"):
        cluster.invoke("kubernetes:helm:template", {})


@pytest.mark.parametrize("metadata", [UNKNOWN, {"name": UNKNOWN, "labels": UNKNOWN}])
def test_unknown_metadata_is_let_through(cluster: Sandbox, metadata: Any) -> None:
    _, problems = cluster.check(CONFIG_MAP, "c", {"metadata": metadata})
    assert not problems


def test_names_are_made_from_the_resources_own(cluster: Sandbox) -> None:
    made, outputs = cluster.create(CONFIG_MAP, "My settings!", {"data": {"a": "b"}})
    namespace, _, name = made.partition("/")
    assert namespace == "team"
    assert name.startswith("my-settings-")
    assert outputs["metadata"]["name"] == name
    assert outputs["metadata"]["namespace"] == "team"
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(outputs["metadata"])
    other = Sandbox("kubernetes", config={"namespace": "team"})
    assert other.create(CONFIG_MAP, "My settings!", {"data": {"a": "b"}}) == (made, outputs)


def test_generated_names_and_given_ones(cluster: Sandbox) -> None:
    generated, _ = cluster.create(CONFIG_MAP, "c", {"metadata": {"generateName": "x-"}})
    assert generated.startswith("team/x-")
    given, _ = cluster.create(NAMESPACE, "n", {"metadata": {"name": "mine"}})
    assert given == "mine"
    role, _ = cluster.create(
        "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole",
        "r",
        {"metadata": {"name": "system:x"}, "rules": []},
    )
    assert role == "system:x"


def test_custom_kind_lives_where_it_says(cluster: Sandbox) -> None:
    inputs = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": {"x": 1}}
    made, outputs = cluster.create(POOL, "pool", {**inputs, "metadata": {"name": "gpu"}})
    assert (made, outputs["spec"]) == ("gpu", {"x": 1})


def test_service_has_an_address(cluster: Sandbox) -> None:
    _, outputs = cluster.create(SERVICE, "s", {"spec": {"ports": [{"port": 80}]}})
    assert outputs["spec"]["type"] == "ClusterIP"
    assert outputs["spec"]["clusterIP"].startswith("10.")
    _, outside = cluster.create(SERVICE, "e", {"spec": {"type": "ExternalName"}})
    assert "clusterIP" not in outside["spec"]


def test_change_gives_another_resource_version(cluster: Sandbox) -> None:
    made, outputs = cluster.create(CONFIG_MAP, "c", {"data": {"a": "b"}})
    inputs = {**cluster.store.all()[0].inputs, "data": {"a": "c"}}
    changed = cluster.cloud.update(cluster.store.all()[0].urn, made, outputs, inputs)
    assert changed["metadata"]["uid"] == outputs["metadata"]["uid"]
    assert changed["metadata"]["resourceVersion"] != outputs["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("token", "path", "replaces"),
    [
        (CONFIG_MAP, "metadata.name", True),
        (CONFIG_MAP, "data", True),
        (CONFIG_MAP, "metadata.labels", False),
        ("kubernetes:apps/v1:Deployment", "spec.selector", True),
        ("kubernetes:apps/v1:Deployment", "spec", False),
        ("kubernetes:batch/v1:Job", "spec.template", True),
        (POOL, "spec", False),
        (POOL, "metadata.namespace", True),
    ],
)
def test_immutable_fields_replace(token: str, path: str, replaces: bool) -> None:
    assert (path in MODEL.replacements(token)) is replaces


def in_cluster(store: Store, kubeconfig: str, context: str | None = None) -> Sandbox:
    config = {"kubeconfig": kubeconfig, **({"context": context} if context else {})}
    return Sandbox("kubernetes", store, config=config)


def kubeconfig(server: str, user: str = "t") -> str:
    return json.dumps(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": user}}],
        }
    )


def test_objects_of_two_clusters_do_not_meet() -> None:
    store = Store(":memory:")
    inputs = {"metadata": {"name": "a"}}
    clusters = [
        in_cluster(store, kubeconfig("https://one")),
        in_cluster(store, kubeconfig("https://two")),
        in_cluster(store, "/home/me/.kube/config", "one"),
        in_cluster(store, "/home/me/.kube/config", "two"),
    ]
    made = [each.create(CONFIG_MAP, "one", inputs)[0] for each in clusters]
    assert made == ["default/a"] * 4
    with pytest.raises(SandboxError, match="'default/a' already exists"):
        in_cluster(store, kubeconfig("https://one", "other")).create(CONFIG_MAP, "two", inputs)
    first = clusters[0].cloud
    urn, state = store.all()[0].urn, dict(store.all()[0].outputs)
    first.update(urn, "default/a", state, {**inputs, "data": {"k": "v"}})
    assert [each.outputs.get("data") for each in store.all()] == [{"k": "v"}, {}, {}, {}]
    first.delete(urn, "default/a", state)
    assert len(store.all()) == 3
    assert first.read(urn, "default/a", state) is None
    assert clusters[1].cloud.read(urn, "default/a", state) is not None


@pytest.mark.parametrize("text", ["", "not: a: kubeconfig", "[]", "{}", '{"clusters": 3}'])
def test_kubeconfig_that_is_none_still_names_a_cluster(text: str) -> None:
    assert isinstance(cluster_of({"kubeconfig": text, "context": "c"}), str)


def test_release_is_one_object() -> None:
    store = Store(":memory:")
    cluster = Sandbox("kubernetes", store, config={})
    made, outputs = cluster.create(
        "kubernetes:helm.sh/v3:Release", "kueue", {"chart": "kueue", "namespace": "ks"}
    )
    assert made.startswith("ks/kueue-")
    assert "metadata" not in outputs
