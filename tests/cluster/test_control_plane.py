"""The control plane decides as a real one does: who may what, what runs where, what dies."""

from __future__ import annotations

import json
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import Any

import psutil
import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes.gpu_queues.queues import CREDIT
from falaj.engine.controlplane import ControlPlane, objects
from falaj.engine.controlplane.objects import wait_for
from falaj.engine.errors import EngineError

pytestmark = pytest.mark.cluster

Apply = Callable[[list[dict[str, Any]]], object]


def pod(name: str, namespace: str, limits: dict[str, str] | None = None, **more: Any) -> Any:
    """A pod that tolerates what GPU nodes are tainted with."""
    annotations = more.pop("annotations", {})
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "x", "resources": {"limits": limits or {}}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "restartPolicy": "Never",
        **more,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": spec,
    }


def refusal(act: Apply, manifest: dict[str, Any]) -> tuple[int, str]:
    """Status and words with which the API server refuses."""
    with pytest.raises(ApiException) as raised:
        act([manifest])
    return int(raised.value.status or 0), json.loads(raised.value.body or "{}")["message"]


def found(cluster: ControlPlane, name: str, namespace: str) -> dict[str, Any]:
    answer = cluster.objects.get("v1", "Pod", name, namespace)
    assert answer is not None
    return answer


def place(cluster: ControlPlane, name: str, namespace: str) -> str:
    """The pool of the node that the scheduler chose."""
    node = wait_for(
        lambda: found(cluster, name, namespace)["spec"].get("nodeName"), f"a node for {name}"
    )
    labels = cluster.objects.get("v1", "Node", node)["metadata"]["labels"]  # type: ignore[index]
    return labels["falaj.io/pool"]


def unschedulable(cluster: ControlPlane, name: str, namespace: str) -> str:
    """Why the scheduler finds no node."""

    def why() -> str:
        conditions = found(cluster, name, namespace).get("status", {}).get("conditions") or []
        return "".join(
            each.get("message", "") for each in conditions if each.get("reason") == "Unschedulable"
        )

    return wait_for(why, f"the scheduler gives {name} up")


def test_it_is_the_version_that_is_pinned(cluster: ControlPlane) -> None:
    assert cluster.objects.request("GET", "/version")["gitVersion"] == "v1.36.1"
    assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
    assert {"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok"} <= set(
        cluster.record.processes
    )


def test_controllers_begin_once_the_kinds_beside_them_are_defined(cluster: ControlPlane) -> None:
    """Else quotas that count these are in force half a minute later."""
    name = "jobsets.jobset.x-k8s.io"
    kind = cluster.objects.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    assert kind is not None
    defined = datetime.fromisoformat(kind["metadata"]["creationTimestamp"]).timestamp()
    # By the wall clock, as the API server tells it. A process's own start is told from the boot
    # time, which the kernel gives in whole seconds.
    process = psutil.Process(cluster.record.processes["kube-controller-manager"])
    ran = time.clock_gettime(time.CLOCK_BOOTTIME) - (process.create_time() - psutil.boot_time())
    assert time.time() - ran > defined


def test_nobody_comes_in_without_a_certificate(cluster: ControlPlane) -> None:
    address = f"{cluster.client.configuration.host}/api"
    context = ssl.create_default_context(cafile=str(cluster.files.authority))
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(address, context=context)  # noqa: S310
    assert raised.value.code == 401
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(address)  # noqa: S310


def test_rbac_denies_what_no_role_grants(cluster: ControlPlane, namespace: str) -> None:
    trainer = cluster.as_user("ali", ["acme:trainers"])
    with pytest.raises(ApiException) as raised:
        trainer.list("v1", "Pod", namespace)
    assert raised.value.status == 403
    said = json.loads(raised.value.body or "{}")["message"]
    assert 'User "ali" cannot list resource "pods"' in said
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "trainers", "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "acme:trainers"}
        ],
    }  # fmt: skip
    cluster.apply([binding])
    wait_for(lambda: allowed(trainer, namespace), "the group's binding works")
    with pytest.raises(ApiException):
        trainer.list("v1", "Secret", namespace)
    with pytest.raises(ApiException):
        cluster.as_user("ali", ["globex:trainers"]).list("v1", "Pod", namespace)


def allowed(objects: Any, namespace: str) -> bool:
    try:
        objects.list("v1", "Pod", namespace)
    except ApiException:
        return False
    return True


def test_a_node_may_not_touch_another(cluster: ControlPlane) -> None:
    first, second = cluster.nodes("cpu=2")
    kubelet = cluster.as_user(f"system:node:{first}", ["system:nodes"])
    kubelet.patch("v1", "Node", first, {"metadata": {"annotations": {"example": "own"}}})
    with pytest.raises(ApiException) as raised:
        kubelet.patch("v1", "Node", second, {"metadata": {"annotations": {"example": "other"}}})
    assert raised.value.status == 403


def test_pod_security_is_enforced(cluster: ControlPlane, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.objects.patch("v1", "Namespace", namespace, {"metadata": {"labels": labels}})
    status, said = refusal(cluster.apply, pod("bare", namespace))
    assert status == 403
    assert 'violates PodSecurity "restricted' in said


def test_a_field_that_does_not_exist_is_refused(cluster: ControlPlane, namespace: str) -> None:
    status, said = refusal(cluster.apply, pod("typo", namespace, hostnetwork=False))
    assert status in {400, 500}
    assert "hostnetwork" in said


def test_a_kind_that_is_not_served_is_named(
    cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_SERVED_SECONDS", 0.5)
    with pytest.raises(
        EngineError, match=r"serves no Nonsense of apps/v1; it serves .*Deployment"
    ):
        cluster.objects.get("apps/v1", "Nonsense", "x", "default")


def test_secrets_are_encrypted_in_etcd_and_kept_out_of_the_audit_log(
    cluster: ControlPlane, namespace: str
) -> None:
    value = "correct-horse-battery-staple"
    cluster.apply([
        {
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "kept", "namespace": namespace}, "stringData": {"key": value},
        }
    ])  # fmt: skip
    store = cluster.files.folder / "etcd" / "member"
    path = f"/registry/secrets/{namespace}/kept".encode()

    def stored() -> bytes:
        content = b"".join(each.read_bytes() for each in store.rglob("*") if each.is_file())
        return content if path in content else b""

    content = wait_for(stored, "the secret is on the disk")
    assert b"k8s:enc:secretbox:v1:key1:" in content
    assert value.encode() not in content
    assert "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ" not in cluster.files.audit_log.read_text()
    assert value not in cluster.files.audit_log.read_text()


def test_who_did_what_is_in_the_audit_log(cluster: ControlPlane, namespace: str) -> None:
    intruder = cluster.as_user("mallory", ["guests"])
    with pytest.raises(ApiException):
        intruder.list("v1", "Secret", namespace)

    def denied() -> bool:
        events = map(json.loads, cluster.files.audit_log.read_text().splitlines())
        return any(
            event["user"]["username"] == "mallory"
            and event["objectRef"].get("resource") == "secrets"
            and event["responseStatus"]["code"] == 403
            for event in events
        )

    wait_for(denied, "the refusal is in the audit log")


def test_gpu_pods_land_where_their_gpus_are(cluster: ControlPlane, namespace: str) -> None:
    cluster.nodes("h200=1,h200:mig-1g.18gb=1,l4:time-slicing-4=1,cpu=1")
    cluster.apply(
        [
            pod("whole", namespace, {"nvidia.com/gpu": "8"}),
            pod("slice", namespace, {"nvidia.com/mig-1g.18gb": "1"}),
            pod("shared", namespace, {"nvidia.com/gpu.shared": "1"}),
            pod("plain", namespace, {"cpu": "1"}, tolerations=[]),
        ]
    )
    assert place(cluster, "whole", namespace) == "h200"
    assert place(cluster, "slice", namespace) == "h200-mig-1g.18gb"
    assert place(cluster, "shared", namespace) == "l4-time-slicing-4"
    assert place(cluster, "plain", namespace) == "cpu"


def test_what_does_not_fit_waits(cluster: ControlPlane, namespace: str) -> None:
    cluster.nodes("h200=1,cpu=1")
    cluster.apply([pod("first", namespace, {"nvidia.com/gpu": "6"})])
    assert place(cluster, "first", namespace) == "h200"
    cluster.apply(
        [
            pod("second", namespace, {"nvidia.com/gpu": "3"}),
            pod("intolerant", namespace, {"nvidia.com/gpu": "1"}, tolerations=[]),
        ]
    )
    assert "Insufficient nvidia.com/gpu" in unschedulable(cluster, "second", namespace)
    assert "untolerated taint" in unschedulable(cluster, "intolerant", namespace)


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("42", "Failed")])
def test_a_pod_ends_when_and_as_it_is_told(
    cluster: ControlPlane, namespace: str, code: str, phase: str
) -> None:
    cluster.nodes("cpu=1")
    annotations = {"simulation.falaj.io/duration": "1s", "simulation.falaj.io/exit-code": code}
    cluster.apply([pod("ending", namespace, annotations=annotations)])
    wait_for(lambda: found(cluster, "ending", namespace)["status"]["phase"] == phase, phase)
    status = found(cluster, "ending", namespace)["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["exitCode"] == int(code)


def test_a_machine_dies_and_is_replaced(cluster: ControlPlane, namespace: str) -> None:
    cluster.nodes("l4=1")
    pinned = {"falaj.io/pool": "l4"}  # machines of other tests may be there
    workload = pod("", namespace, {"nvidia.com/gpu": "1"}, nodeSelector=pinned)
    workload["spec"]["restartPolicy"] = "Always"
    template = {"metadata": {"labels": {"app": "server"}}, "spec": workload["spec"]}
    cluster.apply([
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "server", "namespace": namespace},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "server"}},
                "template": template,
            },
        }
    ])  # fmt: skip

    def running(node: str) -> bool:
        return any(
            each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running"
            for each in cluster.objects.list("v1", "Pod", namespace)
            if "deletionTimestamp" not in each["metadata"]
        )

    wait_for(lambda: running("l4-0000"), "the server runs")
    cluster.machines.kill("l4-0000")
    # Nobody says so of it: the node controller misses its lease.
    wait_for(lambda: readiness(cluster, "l4-0000") == "Unknown", "the machine is missed", 120)
    wait_for(lambda: not running("l4-0000"), "its pod is evicted", 120)
    new = cluster.machines.replace("l4-0000")
    assert new == "l4-0000-1"
    wait_for(lambda: running(new), "the server runs on the new machine", 120)
    with pytest.raises(EngineError, match="no machine 'l4-0000' was made here"):
        cluster.machines.replace("l4-0000")
    with pytest.raises(EngineError, match=r"no machine 'l4-0000' runs here; known: .*l4-0000-1"):
        cluster.machines.kill("l4-0000")


def test_a_machine_that_was_missed_comes_back(cluster: ControlPlane) -> None:
    (name,) = cluster.nodes("a10g=1")
    missed = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    cluster.objects.patch("v1", "Node", name, {"status": {"conditions": [missed]}}, part="status")
    wait_for(lambda: readiness(cluster, name) == "True", "the machine is back")
    assert cluster.nodes("a10g=1") == [name]  # waits until it takes pods


def readiness(cluster: ControlPlane, name: str) -> str:
    """What is said of a node's readiness."""
    node = cluster.objects.get("v1", "Node", name)
    assert node is not None
    return "".join(
        each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"
    )


def test_kueue_holds_back_what_exceeds_the_quota(cluster: ControlPlane, namespace: str) -> None:
    cluster.nodes("h200=2")
    # What the configuration's selector takes: Kueue leaves other namespaces alone.
    labels = {"falaj.io/duty": "training"}
    cluster.objects.patch("v1", "Namespace", namespace, {"metadata": {"labels": labels}})
    quotas = {"nvidia.com/gpu": 8, CREDIT: 1_000_000}  # credits are not what holds back here
    resources = [{"name": each, "nominalQuota": quota} for each, quota in quotas.items()]
    flavors = [{"name": "quota-h200", "resources": resources}]
    group = {"coveredResources": list(quotas), "flavors": flavors}
    queue = {"kueue.x-k8s.io/queue-name": "default"}
    api = "kueue.x-k8s.io/v1beta2"
    cluster.apply([
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "quota-h200"},
         "spec": {"nodeLabels": {"falaj.io/flavor": "h200"}}},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "quota"},
         "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
        {"apiVersion": api, "kind": "LocalQueue",
         "metadata": {"name": "default", "namespace": namespace},
         "spec": {"clusterQueue": "quota"}},
        *(
            {"apiVersion": "batch/v1", "kind": "Job",
             "metadata": {"name": name, "namespace": namespace, "labels": queue},
             "spec": {"template": {"spec": pod("", namespace, {"nvidia.com/gpu": "8"})["spec"]}}}
            for name in ("first", "second")
        ),
    ])  # fmt: skip

    def admitted() -> list[str]:
        return [
            each["metadata"]["ownerReferences"][0]["name"]
            for each in cluster.objects.list(api, "Workload", namespace)
            if any(
                condition["type"] == "Admitted" and condition["status"] == "True"
                for condition in each.get("status", {}).get("conditions", [])
            )
        ]

    (running,) = wait_for(admitted, "one job is admitted", 120)
    wait_for(lambda: cluster.objects.list("v1", "Pod", namespace), "its pod is there")
    # Both machines are there: it is the quota, not the room, that holds the other back.
    assert len(cluster.objects.list("v1", "Pod", namespace)) == 1
    assert admitted() == [running]
    cluster.objects.delete("batch/v1", "Job", running, namespace)
    other = "second" if running == "first" else "first"
    wait_for(lambda: admitted() == [other], "the other is admitted", 120)


def test_the_number_of_nodes_is_what_was_asked_for(cluster: ControlPlane) -> None:
    assert cluster.nodes("l4=3") == ["l4-0000", "l4-0001", "l4-0002"]
    assert cluster.nodes("l4=1") == ["l4-0000"]
    pool = cluster.objects.list("v1", "Node", labels="falaj.io/pool=l4")
    assert [each["metadata"]["name"] for each in pool] == ["l4-0000"]
    assert cluster.nodes("l4=0") == []
    assert not cluster.objects.list("v1", "Node", labels="falaj.io/pool=l4")


def test_definitions_are_installed_with_their_schemas(cluster: ControlPlane) -> None:
    cluster.define("cert-manager")
    issuer = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "ClusterIssuer",
        "metadata": {"name": "own"},
        "spec": {"selfsigned": {}},
    }
    status, said = refusal(lambda given: cluster.apply(given, dry_run=True), issuer)
    assert status in {400, 500}
    assert "selfsigned" in said
    issuer["spec"] = {"selfSigned": {}}
    cluster.apply([issuer], dry_run=True)
    with pytest.raises(EngineError, match=r"no 'nonsense' is known; known are cert-manager"):
        cluster.define("nonsense")


def test_definitions_are_installed_of_the_kinds_that_are_wanted(cluster: ControlPlane) -> None:
    cluster.define("velero", kinds=("Backup",))
    served = cluster.objects.request("GET", "/apis/velero.io/v1")["resources"]
    assert {each["kind"] for each in served} == {"Backup"}
    with pytest.raises(EngineError, match=r"no Nothing is defined by velero; defined are Backup,"):
        cluster.define("velero", kinds=("Backup", "Nothing"))
