"""Nodes with sick GPUs, looked after by the controller itself, with the account that it has.

API server, admission, RBAC, eviction, scheduler, Kueue and JobSet are real; the machines are
simulated, and what writes a node's conditions is the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.catalogue.clusters import GPU_ERROR_TAINT, NODE_REPAIR, REPAIR_DOMAIN
from falaj.components.catalogue.gpu_errors import XIDS
from falaj.components.kubernetes import training_job
from falaj.components.kubernetes.addons.addon import PRIORITY_CLASS
from falaj.components.kubernetes.addons.installation import foundation, installations
from falaj.components.kubernetes.addons.node_repair import controller_settings
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects
from tests.cluster.made_by_controllers import made_of, refused_to_controllers
from tests.cluster.residency_cluster import account, install
from tests.cluster.residency_cluster import namespace as older
from tests.cluster.residency_cluster import refused as asked
from tests.cluster.tenancy import (
    FORBIDDEN,
    GPU,
    RACKS,
    SITE,
    active,
    claim,
    counted,
    eventually,
    job,
    nodes_of,
    platform_of,
    pod,
    queue_objects,
    running,
    tenant_objects,
)
from tests.components.kubernetes.platforms import spec
from tests.components.kubernetes.training_jobs import arguments
from tests.ports import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

POOLS: dict[str, Any] = {
    "h200": {"nodes": 4, "cpu": 190, "memory_gib": 1900, "devices": {GPU: 8}},
}
TRAINING = "acme-training"
BASE = {NODE_REPAIR, PRIORITY_CLASS}
PLAIN = "workshop"
"""A namespace that Kueue leaves alone."""
RESIDENCY: dict[str, Any] = {
    "distribution": "existing", "region": SITE.region, "registry": "registry.acme.example/falaj",
    "tenant": "platform", "owner": "ml@acme.example", "data_class": "confidential",
    "cost_center": "ml",
}  # fmt: skip
SICK = "GPUMissing"
STATE, RECORD, HOLD = (f"{REPAIR_DOMAIN}/{each}" for each in ("state", "record", "hold"))
STRATEGIC = "application/strategic-merge-patch+json"
#: As the platform asks, but in less time.
QUICK = {
    "conditions": [f"{SICK}=True"], "sick_minutes": 0, "healthy_minutes": 0.02,
    "drain_minutes": 0.1, "most_out": 1, "pass_seconds": 1, "lease_seconds": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Four machines, a tenant with a queue, the platform's policies and the add-on's objects."""
    with platform_of(control_plane, "h200=4") as found:
        quota = {"cpu": 20_000, "memory_gib": 200_000, "pods": 2000, "devices": {GPU: 32}}
        found.apply(tenant_objects("acme", training=quota))
        tenants = {"acme": {"quotas": {"h200": {"devices": {GPU: 32}}}}}
        found.apply(queue_objects(POOLS, tenants, topology_levels=RACKS))
        found.apply(claim("runs", TRAINING))
        of = spec("existing", {"node-repair": True}, region=SITE.region)
        found.apply([each for each in foundation(of) if each["metadata"]["name"] in BASE])
        (addon,) = [each for each in installations(of) if each.addon == NODE_REPAIR]
        # Its pods would be simulated; the controller runs here.
        kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
        found.apply([each for each in addon.after if each["kind"] in kinds])
        found.apply([older("legacy", "privileged"), older(PLAIN, "restricted")])
        found.apply([account("trainer", PLAIN)])
        install(found, RESIDENCY)
        eventually("quotas are counted", lambda: counted(found, TRAINING))
        eventually("the queue is active", lambda: active(found, "acme"))
        yield found


@pytest.fixture(autouse=True)
def clean(plane: ControlPlane) -> Iterator[None]:
    """Nothing runs before a test, and all nodes are well."""
    yield
    for api, kind in (("jobset.x-k8s.io/v1alpha2", "JobSet"), ("batch/v1", "Job"),
                      ("policy/v1", "PodDisruptionBudget"), ("apps/v1", "DaemonSet"),
                      ("v1", "Pod")):  # fmt: skip
        for each in plane.objects.list(api, kind, TRAINING):
            plane.objects.delete(api, kind, each["metadata"]["name"], TRAINING)
    eventually("no pod is left", lambda: not plane.objects.list("v1", "Pod", TRAINING))
    for node in names(plane):
        says(plane, node, "False")
        keys = (STATE, RECORD, HOLD, *(f"{REPAIR_DOMAIN}/{each}" for each in
                                       ("cleared", "fault-boot")))  # fmt: skip
        change = {
            "metadata": {"labels": {STATE: None}, "annotations": dict.fromkeys(keys)},
            "spec": {"taints": [each for each in get(plane, node)["spec"].get("taints", [])
                                if each["key"] != GPU_ERROR_TAINT]},
        }  # fmt: skip
        plane.objects.patch("v1", "Node", node, change)
    plane.objects.delete("coordination.k8s.io/v1", "Lease", NODE_REPAIR, NODE_REPAIR)


def names(plane: ControlPlane) -> list[str]:
    return sorted(each["metadata"]["name"] for each in plane.objects.list("v1", "Node"))


def get(plane: ControlPlane, node: str) -> dict[str, Any]:
    found = plane.objects.get("v1", "Node", node)
    assert found is not None
    return found


def says(plane: ControlPlane, node: str, status: str, kind: str = SICK) -> None:
    """A node's condition, as a node problem detector writes it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"type": kind, "status": status, "reason": "Test", "message": "of the test",
            "lastTransitionTime": now, "lastHeartbeatTime": now}  # fmt: skip
    path = plane.objects.path("v1", "Node", None, node) + "/status"
    plane.objects.request("PATCH", path, {"status": {"conditions": [said]}}, STRATEGIC)


def state(plane: ControlPlane, node: str) -> str | None:
    return get(plane, node)["metadata"]["labels"].get(STATE)


def tainted(plane: ControlPlane) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in plane.objects.list("v1", "Node")
        if any(one["key"] == GPU_ERROR_TAINT for one in each["spec"].get("taints") or [])
    }


def events(plane: ControlPlane, node: str) -> set[str]:
    return {
        each["reason"]
        for each in plane.objects.list("v1", "Event", "default")
        if each["involvedObject"]["name"] == node
        and each["source"].get("component") == "falaj-node-repair"
    }


def told(plane: ControlPlane, node: str, reason: str) -> list[str]:
    """Warnings of a node's events."""
    return [
        each["message"]
        for each in plane.objects.list("v1", "Event", "default")
        if each["involvedObject"]["name"] == node
        and each["reason"] == reason
        and each["type"] == "Warning"
    ]


@dataclass
class Replica:
    """A process of the controller."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.log.read_text().splitlines() if each[:1] == "{"]

    def said(self, event: str, **of: Any) -> list[dict[str, Any]]:
        return [
            each
            for each in self.lines()
            if each["event"] == event and all(each.get(key) == of[key] for key in of)
        ]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Start = Callable[..., Replica]


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Start replicas; each has the account of the add-on, and nothing else."""
    account = tmp_path / "account"
    account.mkdir()
    path = plane.objects.path("v1", "ServiceAccount", NODE_REPAIR, NODE_REPAIR) + "/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
             "spec": {"expirationSeconds": 3600}}  # fmt: skip
    token = plane.objects.request("POST", path, asked)["status"]["token"]
    (account / "token").write_text(token)
    (account / "ca.crt").write_bytes(plane.files.authority.read_bytes())
    host, _, port = plane.objects.client.configuration.host.partition("://")[2].partition(":")
    base = controller_settings(spec("existing", {"node-repair": {"read_gpus": False}}))
    started: list[Replica] = []

    def one(name: str = "a", **changes: Any) -> Replica:
        settings = tmp_path / f"{name}-{len(started)}.json"
        settings.write_text(json.dumps({**base, **QUICK, **changes}))
        log, own = tmp_path / f"{name}-{len(started)}.log", free_port()
        with log.open("wb") as to:
            process = subprocess.Popen(
                [sys.executable, "-m", "falaj.workloads.repair", f"--settings={settings}",
                 f"--holder={name}", f"--listen=127.0.0.1:{own}", f"--account={account}"],
                stdout=to, stderr=subprocess.STDOUT,
                env={**os.environ, "KUBERNETES_SERVICE_HOST": host,
                     "KUBERNETES_SERVICE_PORT": port.strip("/")},
            )  # fmt: skip
        started.append(Replica(process, log, own))
        return started[-1]

    yield one
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()
            each.process.wait(30)
        assert "Traceback" not in each.log.read_text(), each.log.read_text()


def gang(plane: ControlPlane) -> list[dict[str, Any]]:
    """Pods of the training that run, and aren't on their way out."""
    return [
        each
        for each in plane.objects.list("v1", "Pod", TRAINING, "falaj.io/component=gang")
        if each["status"].get("phase") == "Running"
        and not each["metadata"].get("deletionTimestamp")
    ]


def test_a_gang_leaves_a_sick_node_and_runs_again_elsewhere(
    plane: ControlPlane, start: Start
) -> None:
    """With Kueue, which placed its pods by topology, and JobSet, which starts all of it anew."""
    start(drain_minutes=60)
    asked = arguments(nodes=3, gpus_per_node=8)
    plane.apply(training_job.manifests(training_job.check("gang", asked)))
    eventually("the gang runs", lambda: len(gang(plane)) == 3)
    before = {each["metadata"]["uid"] for each in gang(plane)}
    sick = sorted(nodes_of(gang(plane)))[0]
    says(plane, sick, "True")
    eventually("the node is drained", lambda: state(plane, sick) == "drained")
    assert tainted(plane) == {sick}
    record = json.loads(get(plane, sick)["metadata"]["annotations"][RECORD])
    assert record["causes"] == [f"{SICK}=True"]

    def elsewhere() -> bool:
        pods = gang(plane)
        return len(pods) == 3 and sick not in nodes_of(pods)

    eventually("the gang runs elsewhere", elsewhere)
    assert not before & {each["metadata"]["uid"] for each in gang(plane)}
    found = plane.objects.get("jobset.x-k8s.io/v1alpha2", "JobSet", "gang", TRAINING) or {}
    assert found["status"].get("restartsCountTowardsMax", 0) == 0
    assert state(plane, sick) == "drained"
    says(plane, sick, "False")
    eventually("the node is back", lambda: state(plane, sick) is None)
    assert tainted(plane) == set()
    assert RECORD not in get(plane, sick)["metadata"]["annotations"]
    reasons = {"NodeQuarantined", "NodeDraining", "NodeDrained", "NodeRecovering", "NodeReturned"}
    eventually("all is told", lambda: events(plane, sick) >= reasons)


def test_pods_of_a_job_get_their_grace_period(plane: ControlPlane, start: Start) -> None:
    """It is theirs to write a checkpoint in: nothing shortens it."""
    start(drain_minutes=60)
    slow = job(TRAINING, "slow", pods=1, gpus=8, terminationGracePeriodSeconds=77)
    slow["spec"]["template"]["metadata"]["annotations"]["simulation.falaj.io/stop"] = "4s"
    plane.objects.create(slow)
    eventually("it runs", lambda: len(running(plane, "slow", TRAINING)) == 1)
    (before,) = running(plane, "slow", TRAINING)
    node, name = before["spec"]["nodeName"], before["metadata"]["name"]
    says(plane, node, "True")

    def stopping() -> bool:
        found = plane.objects.get("v1", "Pod", name, TRAINING)
        return bool(found and found["metadata"].get("deletionTimestamp"))

    eventually("it is asked to leave", stopping)
    found = plane.objects.get("v1", "Pod", name, TRAINING)
    assert found is not None
    assert found["metadata"]["deletionGracePeriodSeconds"] == 77
    assert state(plane, node) == "draining"
    eventually("the node is drained", lambda: state(plane, node) == "drained")


def busy(plane: ControlPlane, name: str = "busy") -> str:
    """A job of one pod; the node that it runs on."""
    plane.objects.create(job(TRAINING, name, pods=1, gpus=8))
    eventually("it runs", lambda: len(running(plane, name, TRAINING)) == 1)
    (node,) = nodes_of(running(plane, name, TRAINING))
    return node


def budget(name: str, of: str) -> dict[str, Any]:
    """One that lets none of a job's pods go."""
    chosen = {"matchLabels": {"batch.kubernetes.io/job-name": of}}
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": TRAINING},
        "spec": {"minAvailable": 1, "selector": chosen},
    }  # fmt: skip


def in_force(plane: ControlPlane, name: str) -> bool:
    found = plane.objects.get("policy/v1", "PodDisruptionBudget", name, TRAINING) or {}
    status = found.get("status", {})
    return status.get("expectedPods") == 1 and status.get("currentHealthy") == 1


def test_a_budget_is_waited_for_told_of_and_kept(plane: ControlPlane, start: Start) -> None:
    replica = start()
    node = busy(plane)
    plane.apply([budget("keeps", "busy")])
    eventually("the budget counts", lambda: in_force(plane, "keeps"))
    says(plane, node, "True")
    eventually("the deadline is over", lambda: state(plane, node) == "drain-blocked")
    assert len(running(plane, "busy", TRAINING)) == 1
    eventually("somebody is told", lambda: "NodeDrainBlocked" in events(plane, node))
    (said,) = [each for each in told(plane, node, "NodeDrainBlocked") if "keeps" in each]
    assert f"{TRAINING}/busy-" in said
    assert len(replica.said("eviction", outcome="refused")) == 1  # not with every pass
    plane.objects.delete("policy/v1", "PodDisruptionBudget", "keeps", TRAINING)
    eventually("the node is drained", lambda: state(plane, node) == "drained")


def test_the_brake_holds_with_three_sick_nodes_of_four(plane: ControlPlane, start: Start) -> None:
    nodes = names(plane)
    for node in nodes[:3]:
        says(plane, node, "True")
    replica = start()
    eventually("the brake is told of", lambda: bool(replica.said("brake-open")))
    assert replica.said("brake-open")[0]["unfit"] == nodes[:3]
    time.sleep(3)
    assert tainted(plane) == set()
    says(plane, nodes[0], "False")
    says(plane, nodes[1], "False")
    eventually("the one that is left is taken out", lambda: state(plane, nodes[2]) == "drained")
    assert tainted(plane) == {nodes[2]}
    says(plane, nodes[3], "True")
    time.sleep(3)
    assert tainted(plane) == {nodes[2]}


def test_killed_in_the_middle_it_goes_on_where_it_was(plane: ControlPlane, start: Start) -> None:
    first = start("first", drain_minutes=60)
    node = busy(plane)
    plane.apply([budget("keeps", "busy")])
    eventually("the budget counts", lambda: in_force(plane, "keeps"))
    says(plane, node, "True")
    eventually("it drains", lambda: state(plane, node) == "draining")
    eventually("it was refused", lambda: bool(first.said("eviction")))
    before = json.loads(get(plane, node)["metadata"]["annotations"][RECORD])
    first.kill()
    second = start("second", drain_minutes=60)
    eventually("another leads", lambda: bool(second.said("leads")))
    eventually("it asks again", lambda: bool(second.said("eviction")))
    assert json.loads(get(plane, node)["metadata"]["annotations"][RECORD]) == before
    assert second.said("changed") == []
    plane.objects.delete("policy/v1", "PodDisruptionBudget", "keeps", TRAINING)
    eventually("the node is drained", lambda: state(plane, node) == "drained")


def test_one_of_two_replicas_leads_until_it_dies(plane: ControlPlane, start: Start) -> None:
    first = start("first")
    eventually("the first leads", lambda: bool(first.said("leads")))
    second, node = start("second"), names(plane)[0]
    says(plane, node, "True")
    eventually("the node is drained", lambda: state(plane, node) == "drained")
    assert second.said("leads") == []
    assert second.said("changed") == []
    first.kill()
    says(plane, node, "False")
    eventually("the node is back", lambda: state(plane, node) is None)
    assert second.said("leads")
    third = start("third")
    eventually("the third answers", lambda: third.process.poll() is None and bool(third.port))
    second.process.terminate()
    assert second.process.wait(30) == 0
    eventually("what stops gives the lease away", lambda: bool(third.said("leads")))


def test_pods_are_left_alone_as_by_kubectl_drain(plane: ControlPlane, start: Start) -> None:
    """Of DaemonSets, or ended: not counted; local data goes; what nobody manages is told of."""
    node = names(plane)[0]
    here = {"nodeSelector": {"topology.kubernetes.io/region": SITE.region,
                             "kubernetes.io/hostname": node}}  # fmt: skip
    of_set = {"matchLabels": {"app": "agent"}}
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": agent()}
    plane.objects.create({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {"selector": of_set, "template": template},
    })  # fmt: skip
    small = {"cpu": "1", "memory": "1Gi", GPU: "1"}
    # As its kubelet tells of it.
    kubelet = plane.as_user(f"system:node:{node}", ["system:nodes"])
    static = pod(PLAIN, "static", small, nodeName=node)
    del static["spec"]["serviceAccountName"]
    static["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": node, "controller": True,
         "uid": get(plane, node)["metadata"]["uid"]}
    ]  # fmt: skip
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "of-the-kubelet"}
    scratch = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    jobs = [
        job(PLAIN, "ended", gpus=1, seconds=1, **here),
        job(PLAIN, "local", gpus=1, **here, **scratch),
    ]
    try:
        kubelet.create(static)
        for each in (pod(PLAIN, "alone", small, **here), *jobs):
            plane.objects.create(each)
        there = {"agent", "static", "alone", "local"}
        eventually("what is to run runs", lambda: on(plane, node) >= there)
        eventually("one has ended", lambda: "ended" in on(plane, node, "Succeeded"))
        start()
        says(plane, node, "True")
        eventually("the deadline is over", lambda: state(plane, node) == "drain-blocked")
        assert on(plane, node) >= {"agent", "static", "alone"}
        assert "local" not in on(plane, node)
        assert "ended" in on(plane, node, "Succeeded")
        said = told(plane, node, "NodeDrainBlocked")
        assert any(f"nothing starts again: {PLAIN}/alone" in each for each in said)
        plane.objects.delete("v1", "Pod", "alone", PLAIN)
        eventually("the node is drained", lambda: state(plane, node) == "drained")
        assert on(plane, node) >= {"agent", "static"}
    finally:
        plane.objects.delete("apps/v1", "DaemonSet", "agent", "kube-system")
        for each in ("ended", "local"):
            plane.objects.delete("batch/v1", "Job", each, PLAIN)
        for each in ("static", "alone"):
            plane.objects.delete("v1", "Pod", each, PLAIN, 0)


def agent() -> dict[str, Any]:
    """A pod of a DaemonSet that goes wherever it can."""
    return {
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "agent", "image": "registry.acme.example/falaj/agent:1"}],
    }


def on(plane: ControlPlane, node: str, phase: str = "Running") -> set[str]:
    """What runs on a node, by the beginning of pods' names."""
    return {
        each["metadata"]["name"].partition("-")[0]
        for each in plane.objects.list("v1", "Pod")
        if each["spec"].get("nodeName") == node and each["status"].get("phase") == phase
        and not each["metadata"].get("deletionTimestamp")
    }  # fmt: skip


def test_a_person_can_keep_it_away(plane: ControlPlane, start: Start) -> None:
    nodes = names(plane)
    held = {"metadata": {"annotations": {HOLD: "looked at by hand"}}}
    plane.objects.patch("v1", "Node", nodes[0], held)
    says(plane, nodes[0], "True")
    start(most_out=2)
    says(plane, nodes[1], "True")
    eventually("the other is drained", lambda: state(plane, nodes[1]) == "drained")
    assert tainted(plane) == {nodes[1]}
    # Who takes the taint away means it: nobody puts it back.
    taints = [each for each in get(plane, nodes[1])["spec"]["taints"]
              if each["key"] != GPU_ERROR_TAINT]  # fmt: skip
    plane.objects.patch("v1", "Node", nodes[1], {"spec": {"taints": taints}})
    eventually("it is let go", lambda: state(plane, nodes[1]) is None)
    assert HOLD in get(plane, nodes[1])["metadata"]["annotations"]
    eventually("it is told", lambda: "NodeLeftAlone" in events(plane, nodes[1]))
    time.sleep(3)
    assert tainted(plane) == set()


def test_a_dry_run_changes_nothing(plane: ControlPlane, start: Start) -> None:
    node = names(plane)[0]
    says(plane, node, "True")
    before = get(plane, node)
    replica = start(dry_run=True)
    eventually("it says so", lambda: bool(replica.said("would-change", node=node)))
    time.sleep(2)
    after = get(plane, node)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert len(replica.said("would-change", node=node)) == 1
    assert all(each["dry_run"] for each in replica.lines())


class Exporter(ThreadingHTTPServer):
    """Answers as dcgm-exporter does, with one error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.xid = ""


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Exporter)
        said = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0"} 0\n'
        if server.xid:
            said += f'DCGM_EXP_XID_ERRORS_COUNT{{gpu="3",xid="{server.xid}"}} 1\n'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fault(plane: ControlPlane, node: str) -> tuple[str, str]:
    conditions = get(plane, node)["status"]["conditions"]
    kind = f"{REPAIR_DOMAIN}/GpuFault"
    found = [(each["status"], each["reason"]) for each in conditions if each["type"] == kind]
    return found[0] if found else ("", "")


def test_what_gpus_report_takes_a_node_out_until_it_was_rebooted(
    plane: ControlPlane, start: Start, exporter: Exporter
) -> None:
    """The exporter forgets an error after minutes; the node stays out until its next boot."""
    node = names(plane)[0]
    labels = {"app": "nvidia-dcgm-exporter"}
    agents = {**agent(), "nodeSelector": {"kubernetes.io/hostname": node}}
    made = {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "exporter", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": agents}},
    }  # fmt: skip
    status = plane.objects.path("v1", "Node", None, node) + "/status"
    boots = get(plane, node)["status"]["nodeInfo"].get("bootID", "")
    first = {"status": {"nodeInfo": {"bootID": "before-the-reboot"}}}
    plane.objects.request("PATCH", status, first, STRATEGIC)
    try:
        plane.objects.create(made)
        eventually("it runs", lambda: "exporter" in on(plane, node))
        (its,) = plane.objects.list("v1", "Pod", "kube-system", "app=nvidia-dcgm-exporter")
        address = {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
        plane.objects.patch("v1", "Pod", its["metadata"]["name"], address, "kube-system",
                            part="status")  # fmt: skip
        at = {"namespace": "kube-system", "label": "app=nvidia-dcgm-exporter",
              "port": exporter.server_port}  # fmt: skip
        xids = {str(number): need for number, need in XIDS.items()}
        replica = start(exporters=at, xids=xids)
        eventually("it reports nothing", lambda: fault(plane, node) == ("False", "NoFault"))
        exporter.xid = "31"  # a program's
        time.sleep(2)
        assert fault(plane, node) == ("False", "NoFault")
        exporter.xid = "79"
        eventually("the node is drained", lambda: state(plane, node) == "drained")
        assert fault(plane, node) == ("True", "Xid79")
        (said,) = replica.said("gpu-fault", reason="Xid79")
        assert said["message"] == "Xid79 on GPU 3: needs reboot"
        exporter.xid = ""
        time.sleep(2)
        assert fault(plane, node) == ("True", "Xid79")
        boot = {"status": {"nodeInfo": {"bootID": "after-the-reboot"}}}
        plane.objects.request("PATCH", status, boot, STRATEGIC)
        eventually("the node is back", lambda: state(plane, node) is None)
        assert fault(plane, node) == ("False", "Rebooted")
        text = urllib.request.urlopen(f"http://127.0.0.1:{replica.port}/metrics").read().decode()
        assert "falaj_node_repair_leads 1.0" in text
        assert 'falaj_node_repair_changes_total{state="drained"} 1.0' in text
        assert "falaj_node_repair_unread_exporters 3.0" in text
    finally:
        plane.objects.delete("apps/v1", "DaemonSet", "exporter", "kube-system")
        boot = {"status": {"nodeInfo": {"bootID": boots}}}
        plane.objects.request("PATCH", status, boot, STRATEGIC)


def no(objects: Objects, node: str, change: dict[str, Any], part: str = "") -> str:
    """What the API server has against a change of a node."""
    with pytest.raises(ApiException) as refused:
        objects.patch("v1", "Node", node, change, part=part)
    assert refused.value.status == FORBIDDEN, refused.value.body
    return str(json.loads(str(refused.value.body))["message"])


def test_nobody_else_changes_its_marks_and_it_nothing_else(plane: ControlPlane) -> None:
    node = names(plane)[0]
    marks: list[dict[str, Any]] = [
        {"metadata": {"labels": {STATE: "drained"}}},
        {"metadata": {"annotations": {HOLD: "mine"}}},
        {"spec": {"taints": [{"key": GPU_ERROR_TAINT, "value": "x", "effect": "NoSchedule"}]}},
    ]
    # Whoever may change nodes, but not policies: an operator of nodes, as upgrades have them.
    rights = [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "node-operator"},
         "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"],
                    "verbs": ["get", "list", "patch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
         "metadata": {"name": "node-operator"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                     "name": "node-operator"},
         "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                       "name": "upgrades@acme.example"}]},
    ]  # fmt: skip
    plane.apply(rights)
    operator = plane.as_user("upgrades@acme.example")
    kubelet = plane.as_user(f"system:node:{node}", ["system:nodes"])
    controller = plane.as_user(f"system:serviceaccount:{NODE_REPAIR}:{NODE_REPAIR}")
    eventually("the role holds", lambda: bool(operator.get("v1", "Node", node)))
    for change in marks:
        assert "cluster-node-repair-marks" in no(operator, node, change)
    assert "cluster-node-repair-marks" in no(kubelet, node, marks[1])
    assert "cluster-node-repair-marks" in no(operator, node, marks[1], "status")
    assert "cluster-node-repair-marks" in no(kubelet, node, marks[1], "status")
    operator.patch("v1", "Node", node, {"metadata": {"annotations": {"acme.example/a": "b"}}})
    operator.patch("v1", "Node", node, {"spec": {"unschedulable": True}})
    operator.patch("v1", "Node", node, {"spec": {"unschedulable": None}})
    beyond: list[tuple[dict[str, Any], str]] = [
        ({"spec": {"unschedulable": True}}, ""),
        ({"metadata": {"labels": {"falaj.io/flavor": "h100"}}}, ""),
        ({"metadata": {"labels": {"falaj.io/flavor": None}}}, ""),
        ({"metadata": {"annotations": {"acme.example/a": "c"}}}, ""),
        ({"spec": {"taints": []}}, ""),
        ({"status": {"capacity": {"cpu": "1000"}}}, "status"),
        ({"status": {"conditions": []}}, "status"),
    ]
    for change, part in beyond:
        assert "cluster-node-repair-reach" in no(controller, node, change, part), change
    for kind in ("Secret", "ConfigMap"):
        with pytest.raises(ApiException):
            controller.list("v1", kind)
    with pytest.raises(ApiException):
        controller.delete("v1", "Node", node)


def test_the_add_on_is_taken_by_the_platforms_own_policies(plane: ControlPlane) -> None:
    of = spec("existing", {"node-repair": True}, region=SITE.region)
    (addon,) = [each for each in installations(of) if each.addon == NODE_REPAIR]
    assert {each["kind"] for each in addon.after} >= {"Deployment", "ConfigMap", "Role"}
    assert asked(plane, addon.after) == {}
    made = [one for each in addon.after for one in made_of(each)]
    assert {each.manifest["kind"] for each in made} == {"ReplicaSet", "Pod"}
    assert refused_to_controllers(plane, made) == {}
