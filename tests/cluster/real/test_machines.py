"""What real machines do: pods as they were asked for, seen from within, and what breaks them."""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.stream import portforward

from falaj.engine.controlplane import machine, operators, stop, volumes
from falaj.engine.controlplane.machine import CONTROL_GROUPS, hierarchies
from falaj.engine.controlplane.machine_network import NAMESPACES
from falaj.engine.controlplane.machines import is_ready
from falaj.engine.controlplane.processes import NODE_GRACE_SECONDS
from tests.cluster.real.realm import (
    PYTHON,
    SERVE,
    WAIT,
    Realm,
    is_gone,
    is_reached,
    probe,
    realm_with,
    wait_for,
)
from tests.components.kubernetes import workspaces

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
FIRST, SECOND = "real-1", "real-2"
NAME = "machines"


FILLS = """
import time
with open("/scratch/x", "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def image(realm: Realm) -> str:
    return realm.push_base()


@pytest.fixture(scope="module")
def namespace(realm: Realm, image: str) -> Generator[str]:
    with realm.namespace(NAME) as name:
        pod = probe("large", name, image, FILLS, restartPolicy="Never", nodeName=FIRST)
        pod["spec"]["volumes"].append({"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}})
        pod["spec"]["containers"][0]["volumeMounts"].append(
            {"name": "scratch", "mountPath": "/scratch"}
        )
        pod["spec"]["securityContext"]["fsGroup"] = 65532
        # Where heartbeats are late beside other work, it stays to be looked at.
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
        realm.plane.apply([pod])
        yield name


@pytest.fixture(scope="module")
def caller(realm: Realm, namespace: str, image: str) -> str:
    """A pod on the first machine that stays."""
    realm.plane.apply([probe("caller", namespace, image, WAIT, nodeName=FIRST)])
    realm.wait_ready("caller", namespace=namespace)
    return "caller"


def test_machines_are_nodes_of_the_site(realm: Realm) -> None:
    nodes = {each["metadata"]["name"]: each for each in realm.plane.objects.list("v1", "Node")}
    assert set(nodes) == {FIRST, SECOND}
    for each in nodes.values():
        labels = each["metadata"]["labels"]
        assert labels["topology.kubernetes.io/region"] == "abudhabi-dc1"
        assert labels["falaj.io/flavor"] == "cpu-x86-64"
        assert each["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.1"
        assert each["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")


INSIDE = """
import json, os, pathlib, resource, socket
def can_write(path):
    try:
        pathlib.Path(path, "x").write_text("x"); return True
    except OSError as error:
        return error.strerror
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
print(json.dumps({
    "user": os.getuid(), "groups": sorted(os.getgroups()), "host": socket.gethostname(),
    "root": can_write("/"), "tmp": can_write("/tmp"),
    "privileges": status["NoNewPrivs"].strip(), "seccomp": status["Seccomp"].strip(),
    "capabilities": int(status["CapBnd"].strip(), 16),
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "memory": int(open(limit).read()) if os.path.exists(limit) else None,
    "processes": sorted(int(each) for each in os.listdir("/proc") if each.isdigit())[0],
    "tmpfs": [line.split()[2] for line in open("/proc/mounts") if line.split()[1] == "/tmp"],
    "devices": sorted(os.listdir("/dev")),
}))
"""


def test_a_pod_is_from_within_what_was_asked_for(realm: Realm, namespace: str, image: str) -> None:
    realm.plane.apply([probe("inside", namespace, image, INSIDE, restartPolicy="Never")])
    wait_for(
        lambda: realm.pod("inside", namespace).get("status", {}).get("phase") == "Succeeded",
        "it looked around",
    )
    seen = json.loads(realm.log("inside", namespace))
    assert seen["user"] == 65532
    assert seen["groups"] == [65532]
    assert seen["host"] == "inside"
    assert seen["root"] == "Read-only file system"
    assert seen["tmp"] is True
    assert seen["tmpfs"] == ["tmpfs"]
    assert seen["privileges"] == "1"
    assert seen["seccomp"] == "2", "a filter"
    assert seen["capabilities"] == 0
    assert seen["token"] is False
    assert seen["memory"] == 64 << 20
    assert seen["processes"] == 1, "its own processes alone"
    assert "vda" not in seen["devices"]


def test_pods_talk_across_machines_by_name_and_service(
    realm: Realm, namespace: str, image: str, caller: str
) -> None:
    realm.plane.apply([
        probe("web", namespace, image, SERVE, labels={"app": "web"}, nodeName=SECOND),
        {"apiVersion": "v1", "kind": "Service",
         "metadata": {"name": "web", "namespace": namespace},
         "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}},
    ])  # fmt: skip
    realm.wait_ready("web", namespace=namespace)
    address = realm.pod("web", namespace)["status"]["podIP"]
    wait_for(lambda: is_reached(realm, caller, namespace, address), "the pod is reached")
    wait_for(
        lambda: is_reached(realm, caller, namespace, f"web.{namespace}.svc.cluster.local", 80),
        "the service is reached by its name",
    )
    assert not is_reached(realm, caller, namespace, address, 8081)


def test_a_claim_is_a_folder_for_all_until_nobody_claims_it(
    realm: Realm, namespace: str, image: str
) -> None:
    kind = ("v1", "PersistentVolumeClaim", "shared", namespace)
    realm.plane.apply(
        [
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
             "metadata": {"name": "folders"}, "provisioner": volumes.PROVISIONER},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
             "metadata": {"name": "shared", "namespace": namespace},
             "spec": {"storageClassName": "folders", "accessModes": ["ReadWriteMany"],
                      "resources": {"requests": {"storage": "1Gi"}}}},
        ]
    )  # fmt: skip
    programs = {
        FIRST: f"open('/shared/note', 'w').write('kept')\n{WAIT}",
        SECOND: WAIT,
    }
    for node, program in programs.items():
        pod = probe(f"claims-{node}", namespace, image, program, nodeName=node)
        pod["spec"]["volumes"].append(
            {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
        )
        pod["spec"]["containers"][0]["volumeMounts"].append(
            {"name": "shared", "mountPath": "/shared"}
        )
        realm.plane.apply([pod])
    realm.wait_ready(*(f"claims-{node}" for node in programs), namespace=namespace)
    read = ("-c", "print(open('/shared/note').read())")
    wait_for(
        lambda: realm.run(f"claims-{SECOND}", namespace, PYTHON, *read) == (0, "kept\n"),
        "the other machine reads what was written",
    )
    claim = realm.plane.objects.get(*kind)
    assert claim is not None
    volume = claim["spec"]["volumeName"]
    folder = realm.plane.files.folder / "volumes" / volume
    assert (folder / "note").read_text() == "kept"
    for node in programs:
        realm.plane.objects.delete("v1", "Pod", f"claims-{node}", namespace)
    realm.plane.objects.delete(*kind)
    wait_for(
        lambda: realm.plane.objects.get("v1", "PersistentVolume", volume) is None,
        "the volume is gone",
    )
    wait_for(lambda: not folder.exists(), "its folder is gone")


def test_a_command_s_status_and_output_come_back(realm: Realm, namespace: str, image: str) -> None:
    realm.plane.apply([probe("exec", namespace, image, WAIT)])
    realm.wait_ready("exec", namespace=namespace)
    assert realm.run("exec", namespace, PYTHON, "-c", "print(6 * 7)") == (0, "42\n")
    assert realm.run("exec", namespace, PYTHON, "-c", "raise SystemExit(3)")[0] == 3


def test_who_takes_too_much_memory_is_killed_told_of_and_started_again(
    realm: Realm, namespace: str, image: str
) -> None:
    realm.plane.apply([probe("hungry", namespace, image, "x = bytearray(200 << 20)")])

    def killed() -> bool:
        last = realm.state("hungry", namespace).get("lastState", {}).get("terminated") or {}
        return last.get("reason") == "OOMKilled" and last.get("exitCode") == 137

    wait_for(killed, "it was killed for its memory")
    wait_for(lambda: realm.state("hungry", namespace)["restartCount"] >= 1, "it started again")


def test_what_runs_outlives_its_kubelet(
    realm: Realm, namespace: str, image: str, caller: str
) -> None:
    realm.plane.apply([probe("outlives", namespace, image, SERVE, nodeName=SECOND)])
    realm.wait_ready("outlives", namespace=namespace)
    began = realm.state("outlives", namespace)["state"]["running"]["startedAt"]
    address = realm.pod("outlives", namespace)["status"]["podIP"]
    # A container that runs doesn't listen yet.
    wait_for(lambda: is_reached(realm, caller, namespace, address), "the pod is reached")
    realm.plane.real.hold(SECOND, "kubelet")
    try:
        wait_for(lambda: is_reached(realm, caller, namespace, address), "it is reached still")
        wait_for(
            lambda: not is_ready(realm.plane.objects.get("v1", "Node", SECOND)),
            "the machine isn't ready", 3 * NODE_GRACE_SECONDS,
        )  # fmt: skip
    finally:
        realm.plane.real.release(SECOND, "kubelet")
    wait_for(lambda: is_ready(realm.plane.objects.get("v1", "Node", SECOND)), "it is ready again")
    # Its pods were evicted meanwhile, or go on as the same containers.
    if not is_gone(realm, "outlives", namespace) and "deletionTimestamp" not in realm.pod(
        "outlives", namespace
    )["metadata"]:  # fmt: skip
        assert realm.state("outlives", namespace)["state"]["running"]["startedAt"] == began


def test_pods_of_a_machine_without_power_come_back_elsewhere(
    realm: Realm, namespace: str, image: str
) -> None:
    template = probe("x", namespace, image, SERVE, labels={"app": "moved"})
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [SECOND]}
    template["spec"]["affinity"] = {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [there]}}
        ]
    }}  # fmt: skip
    realm.plane.apply([{
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "moved", "namespace": namespace},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "moved"}},
            "template": {"metadata": {"labels": {"app": "moved"}}, "spec": template["spec"]},
        },
    }])  # fmt: skip

    def serving() -> list[dict[str, Any]]:
        pods = realm.plane.objects.list("v1", "Pod", namespace, labels="app=moved")
        return [
            each for each in pods
            if "deletionTimestamp" not in each["metadata"]
            and realm.is_ready(each["metadata"]["name"], namespace)
        ]  # fmt: skip

    [before] = wait_for(serving, "it serves")
    lost = before["spec"]["nodeName"]
    assert lost == SECOND
    since = time.monotonic()
    realm.plane.real.cut_power(lost)
    try:
        [after] = wait_for(
            lambda: [each for each in serving() if each["spec"]["nodeName"] != lost],
            "it serves elsewhere",
        )  # fmt: skip
        print(f"\nfrom the power cut until it served elsewhere: {time.monotonic() - since:.1f} s")
        assert after["metadata"]["name"] != before["metadata"]["name"]
    finally:
        realm.plane.real.give_power(lost)
    wait_for(lambda: is_gone(realm, before["metadata"]["name"], namespace), "the old one is gone")
    assert len(serving()) == 1


def test_who_fills_its_disk_is_evicted(realm: Realm, namespace: str) -> None:
    """It began with the first test: kubelets look at disks every half minute or so."""
    wait_for(
        lambda: realm.pod("large", namespace).get("status", {}).get("reason") == "Evicted",
        "it was evicted",
    )  # fmt: skip
    assert "exceeds the limit" in realm.pod("large", namespace)["status"]["message"]


def test_nothing_is_left_of_machines(tmp_path: Path) -> None:
    with realm_with(tmp_path / "plane", machines=1) as realm:
        network = json.loads((tmp_path / "plane/settings.json").read_text())["network"]
        name = f"falaj-{network['key']}"
        assert (NAMESPACES / name).exists()
        assert realm.plane.real.names == [FIRST]
    assert _left(name) == []
    assert not (tmp_path / "plane").exists()


def test_what_was_killed_is_cleared_up_by_the_next_who_looks(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    with realm_with(folder, machines=1) as realm:
        name = f"falaj-{json.loads((folder / 'settings.json').read_text())['network']['key']}"
        psutil.Process(realm.plane.record.pid).kill()
        wait_for(lambda: not realm.plane.record.is_running, "its host is dead")
        wait_for(lambda: not _processes(name), "the machine has ended with it")
        assert _left(name) != []
        stop(folder)
        assert _left(name) == []


def test_what_certificates_and_entries_ask_for_is_brought(realm: Realm) -> None:
    realm.plane.define("cert-manager", "external-secrets")
    operators.write_entry(realm.plane.files, "acme/keys", b"the ring")
    with realm.namespace("test-operators") as namespace:
        store = {"name": "falaj", "kind": "ClusterSecretStore"}
        certificate = {
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "tls", "namespace": namespace},
            "spec": {
                "secretName": "tls", "dnsNames": [f"digits.{namespace}.svc"],
                "issuerRef": {"kind": "ClusterIssuer", "name": "falaj"},
            },
        }  # fmt: skip
        entry = {
            "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
            "metadata": {"name": "keys", "namespace": namespace},
            "spec": {
                "secretStoreRef": store,
                "data": [{"secretKey": "ring", "remoteRef": {"key": "acme/keys"}}],
            },
        }  # fmt: skip
        realm.plane.apply([certificate, entry])

        def secret(name: str) -> dict[str, Any]:
            return realm.plane.objects.get("v1", "Secret", name, namespace) or {}

        wait_for(lambda: secret("tls") and secret("keys"), "both secrets are there")
        assert base64.b64decode(secret("keys")["data"]["ring"]) == b"the ring"
        assert set(secret("tls")["data"]) == {"ca.crt", "tls.crt", "tls.key"}


_ANSWERS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"alice's notebook")
    def log_message(self, *_): pass
print("listens", flush=True)
http.server.HTTPServer(("127.0.0.1", 8443), Handler).serve_forever()
"""


def test_a_port_is_forwarded_to_the_owner_of_a_workspace_alone(realm: Realm) -> None:
    """The workspace's own rights; in its pod's place one that listens as it does."""
    kinds = ("Role", "RoleBinding")
    namespace = "test-forwarding"
    with realm.namespace(namespace):
        rendered = workspaces.rendered(namespace=namespace)
        realm.plane.apply([dict(each) for each in rendered if each["kind"] in kinds])
        image = realm.push_base()
        realm.plane.apply([probe("alice-workspace", namespace, image, _ANSWERS)])
        realm.wait_ready("alice-workspace", namespace=namespace)
        wait_for(lambda: "listens" in realm.log("alice-workspace", namespace), "it listens")

        def asked(user: str, *groups: str) -> bytes:
            file = realm.plane.user_kubeconfig(user, groups)
            api = CoreV1Api(new_client_from_config(str(file)))
            forwarded = portforward(
                api.connect_get_namespaced_pod_portforward, "alice-workspace", namespace,
                ports="8443",
            )  # fmt: skip
            connection = http.client.HTTPConnection("127.0.0.1", 8443)
            connection.sock = forwarded.socket(8443)
            connection.sock.setblocking(True)
            connection.request("GET", "/")
            return connection.getresponse().read()

        assert asked(workspaces.OWNER) == b"alice's notebook"
        with pytest.raises(ApiException, match="403"):
            asked("sara", "acme:trainers")


def _left(name: str) -> list[str]:
    """Namespaces, control groups, interfaces and processes of a control plane."""
    found = [str(each) for each in NAMESPACES.glob(f"{name}*")]
    found += [
        str(path) for each in hierarchies() if (path := CONTROL_GROUPS / each / name).exists()
    ]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    found += [line for line in links.splitlines() if f"fj-{name.removeprefix('falaj-')}" in line]
    return found + _processes(name)


def _processes(name: str) -> list[str]:
    """What runs in a control plane's groups."""
    groups = (CONTROL_GROUPS / hierarchies()[0] / name).rglob("cgroup.procs")
    return [line for each in groups for line in each.read_text().split()]


def test_a_process_that_is_left_does_not_keep_a_group() -> None:
    group = f"falaj-test-{secrets.token_hex(3)}/real-1/pod"
    machine.make_group(group)
    with subprocess.Popen(["sleep", "60"]) as left:
        for hierarchy in hierarchies():
            (CONTROL_GROUPS / hierarchy / group / "cgroup.procs").write_text(str(left.pid))
        machine.remove_group(group.partition("/")[0])
        assert left.wait(timeout=10) == -signal.SIGKILL
    for hierarchy in hierarchies():
        assert not (CONTROL_GROUPS / hierarchy / group.partition("/")[0]).exists()
