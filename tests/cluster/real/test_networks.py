"""What tenants' network policies let through, packet by packet, as a real enforcement sees it.

The enforcement is kube-router's, before it are kube-proxy's services and CoreDNS. Hosts "abroad"
and the cloud's metadata service are addresses of the control plane's own network namespace.
"""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from falaj.components.kubernetes import tenant
from falaj.engine.controlplane.machine_network import MACHINES, Network
from falaj.engine.controlplane.processes import FIRST_SERVICE
from falaj.engine.controlplane.record import Settings
from falaj.engine.guard import guarded
from tests.cluster.real.realm import PYTHON, REGION, Realm, is_reached, probe, serving, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ABROAD, METADATA, NEXT_TO_IT = "203.0.113.10", "169.254.169.254", "10.70.0.5"
#: Kinds of a tenant's objects that say who reaches whom; the rest is for controllers.
KINDS = ("Namespace", "ServiceAccount", "NetworkPolicy")
GATEWAY, MONITORING = "envoy-gateway-system", "monitoring"
JOB = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True)
class Pod:
    """Who calls, or is called."""

    name: str
    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    machine: str = "real-1"

    @property
    def service(self) -> str:
        return f"{self.name}.{self.namespace}.svc.cluster.local"


TRAINER = Pod("trainer", "acme-training", ((JOB, "fraud"),))
PEER = Pod("peer", "acme-training", ((JOB, "fraud"),), "real-2")
ALONE = Pod("alone", "acme-training", machine="real-2")
SERVER = Pod("server", "acme-serving", machine="real-2")
OTHER = Pod("other", "bank-serving", machine="real-2")
PROXY = Pod("proxy", GATEWAY)
PROMETHEUS = Pod("prometheus", MONITORING, (("app.kubernetes.io/name", "prometheus"),))
STRANGER = Pod("stranger", MONITORING)
PODS = (TRAINER, PEER, ALONE, SERVER, OTHER, PROXY, PROMETHEUS, STRANGER)

#: Who may reach whom at the port of their service, and who may not.
MAY = (
    (TRAINER, PEER), (PEER, TRAINER), (PROXY, SERVER), (PROXY, OTHER),
)  # fmt: skip
MAY_NOT = (
    (TRAINER, ALONE), (ALONE, TRAINER), (TRAINER, SERVER), (SERVER, TRAINER), (TRAINER, OTHER),
    (OTHER, SERVER), (SERVER, OTHER), (OTHER, TRAINER), (PROXY, TRAINER), (STRANGER, SERVER),
    (PROMETHEUS, SERVER), (SERVER, PROXY), (SERVER, STRANGER), (ALONE, PROMETHEUS),
)  # fmt: skip
OUT = (
    (ABROAD, 443), (METADATA, 80), (FIRST_SERVICE, 443), (NEXT_TO_IT, 9000),
    (str(MACHINES[11]), 10250), (str(MACHINES[1]), 443),
)  # fmt: skip
SERVING_PORT = 8080
METRICS_PORT = 9464


def objects_of(name: str, **more: Any) -> list[Any]:
    given: Any = {
        "distribution": "existing", "region": REGION,
        "registry": f"registry.{REGION}.example.ae/falaj", "owner": "ml@acme.example",
        "data_class": "confidential", "cost_center": "ml", "tenant": name,
        "serving_ports": [SERVING_PORT], **more,
    }  # fmt: skip
    found = tenant.manifests(tenant.check(name, given))
    return [each for each in found if each["kind"] in KINDS]


def running(pod: Pod, image: str) -> list[dict[str, Any]]:
    """A pod that serves at two ports, and a service before the first."""
    made = probe(
        pod.name, pod.namespace, image, serving(SERVING_PORT, METRICS_PORT),
        labels={"pod": pod.name, **dict(pod.labels)}, nodeName=pod.machine,
    )  # fmt: skip
    made["spec"]["containers"][0]["ports"] = [
        {"name": "metrics", "containerPort": METRICS_PORT},
        {"name": "serve", "containerPort": SERVING_PORT},
    ]
    service = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "spec": {"selector": {"pod": pod.name},
                 "ports": [{"port": 80, "targetPort": SERVING_PORT}]},
    }  # fmt: skip
    return [made, service]


@contextmanager
def hosts(realm: Realm) -> Generator[None]:
    """Servers outside of the cluster, which pods have a route to."""
    found = Settings.read(realm.plane.files).network
    assert found is not None
    network = Network(**found)
    inside = ["ip", "netns", "exec", network.namespace]
    listening = {(ABROAD, 443), (METADATA, 80), (NEXT_TO_IT, 9000)}
    with ExitStack() as kept:
        for address, port in sorted(listening):
            add = ["ip", "-n", network.namespace, "addr", "add", f"{address}/32", "dev", "lo"]
            subprocess.run(add, check=True)
            remove = [*add[:4], "del", *add[5:]]
            kept.callback(subprocess.run, remove, check=False)
            server = subprocess.Popen(
                guarded(["/usr/sbin/ip", *inside[1:], sys.executable, "-m", "http.server",
                         "--bind", address, str(port)]),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            kept.callback(server.wait)
            kept.callback(server.terminate)
        yield


@pytest.fixture(scope="module")
def tenants(realm: Realm) -> Generator[Realm]:
    """Two tenants, the gateway's and the monitoring's namespaces, pods in all, hosts outside."""
    image = realm.push_base()
    objects = [*objects_of("acme"), *objects_of("bank")]
    spaces = [each for each in objects if each["kind"] == "Namespace"]
    for each in spaces:  # real pods of the test are its own; their standard is tested elsewhere
        assert each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    with hosts(realm), realm.namespace(GATEWAY), realm.namespace(MONITORING):
        realm.plane.apply(objects)
        try:
            for each in PODS:
                realm.plane.apply(running(each, image))
            for each in PODS:
                realm.wait_ready(each.name, namespace=each.namespace)
            # Rules come a moment after the pods that they are about.
            wait_for(lambda: reaches(realm, PROXY, SERVER), "the gateway reaches what is served")
            wait_for(lambda: reaches(realm, TRAINER, PEER), "pods of a job reach each other")
            wait_for(lambda: not reaches(realm, STRANGER, SERVER), "others don't")
            yield realm
        finally:
            for each in spaces:
                realm.plane.objects.delete("v1", "Namespace", each["metadata"]["name"])


def address(realm: Realm, pod: Pod) -> str:
    return str(realm.pod(pod.name, pod.namespace)["status"]["podIP"])


def reaches(realm: Realm, caller: Pod, called: Pod, port: int = SERVING_PORT) -> bool:
    """At the address of the pod, as names and services are tried apart from it."""
    return is_reached(realm, caller.name, caller.namespace, address(realm, called), port)


def named(pair: tuple[Pod, Pod]) -> str:
    return f"{pair[0].name}-{pair[1].name}"


@pytest.mark.parametrize("pair", MAY, ids=named)
def test_who_may_gets_through(tenants: Realm, pair: tuple[Pod, Pod]) -> None:
    caller, called = pair
    assert reaches(tenants, caller, called)
    assert is_reached(tenants, caller.name, caller.namespace, called.service, 80)


@pytest.mark.parametrize("pair", MAY_NOT, ids=named)
def test_who_may_not_does_not(tenants: Realm, pair: tuple[Pod, Pod]) -> None:
    caller, called = pair
    assert not reaches(tenants, caller, called)
    assert not is_reached(tenants, caller.name, caller.namespace, called.service, 80)


def test_the_gateway_reaches_what_serves_and_no_other_port(tenants: Realm) -> None:
    assert not reaches(tenants, PROXY, SERVER, METRICS_PORT)


def test_prometheus_alone_reads_metrics(tenants: Realm) -> None:
    for called in (SERVER, OTHER, TRAINER):
        assert reaches(tenants, PROMETHEUS, called, METRICS_PORT)
        assert not reaches(tenants, STRANGER, called, METRICS_PORT)


@pytest.mark.parametrize(("host", "port"), OUT)
@pytest.mark.parametrize("caller", [TRAINER, SERVER], ids=["training", "serving"])
def test_tenants_reach_nothing_outside(tenants: Realm, caller: Pod, host: str, port: int) -> None:
    """Hosts abroad, the cloud's metadata, the API server, kubelets, the registry."""
    assert is_reached(tenants, PROXY.name, GATEWAY, host, port), "it is there"
    assert not is_reached(tenants, caller.name, caller.namespace, host, port)


@pytest.mark.parametrize("caller", [TRAINER, SERVER], ids=["training", "serving"])
def test_names_are_resolved_by_the_cluster_alone(tenants: Realm, caller: Pod) -> None:
    def resolved(name: str) -> bool:
        program = f"import socket; socket.getaddrinfo({name!r}, 80)"
        return tenants.run(caller.name, caller.namespace, PYTHON, "-c", program)[0] == 0

    assert resolved(OTHER.service), "a name isn't a secret"
    assert not resolved("carries-data-out.example.com")
    # Past the cluster's resolver to one abroad.
    ask = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); "
        f"s.sendto(bytes.fromhex('00010100000100000000000001610000010001'), ('{ABROAD}', 53)); "
        "s.recv(512)"
    )
    assert tenants.run(caller.name, caller.namespace, PYTHON, "-c", ask)[0] != 0


def test_a_way_out_that_is_named_leads_there_and_nowhere_else(tenants: Realm) -> None:
    store = {"object-store": {"cidrs": [f"{NEXT_TO_IT}/32"], "ports": [9000]}}
    opened = objects_of("acme", egress=store)
    tenants.plane.apply([each for each in opened if each["kind"] == "NetworkPolicy"])
    trainer = (TRAINER.name, TRAINER.namespace)
    wait_for(lambda: is_reached(tenants, *trainer, NEXT_TO_IT, 9000), "the store is reached")
    assert not is_reached(tenants, *trainer, ABROAD, 443)
    assert not is_reached(tenants, OTHER.name, OTHER.namespace, NEXT_TO_IT, 9000)


def test_a_pod_that_changes_its_label_gets_no_further_than_its_tenant(tenants: Realm) -> None:
    """A label is the tenant's own to set: what it opens is of the tenant."""
    liar = replace(ALONE, name="liar", labels=((JOB, "fraud"),))
    tenants.plane.apply(running(liar, tenants.push_base()))
    tenants.wait_ready(liar.name, namespace=liar.namespace)
    wait_for(lambda: reaches(tenants, liar, TRAINER), "it is one of the tenant's jobs")
    assert not reaches(tenants, liar, OTHER)
    assert not reaches(tenants, liar, SERVER)


def test_every_address_outside_is_outside_of_the_cluster() -> None:
    """Else a test above would be about something else."""
    for host in (ABROAD, METADATA, NEXT_TO_IT):
        assert ipaddress.ip_address(host) not in MACHINES
