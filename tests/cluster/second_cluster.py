"""Two clusters in the country: one's own, and one in a cloud that takes its jobs."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes import training_job
from falaj.engine.controlplane import ControlPlane, Site, addons, controllers, start
from falaj.engine.controlplane.objects import Objects
from falaj.engine.controlplane.processes import write_private
from tests.cluster.relay import Relay, relay
from tests.cluster.residency_cluster import install
from tests.cluster.tenancy import (
    GPU,
    SITE,
    active,
    claim,
    condition,
    counted,
    eventually,
    platform_parts,
    queue_objects,
    tenant_objects,
    workload,
)
from tests.components.kubernetes.training_jobs import arguments

NAMESPACE, SERVING = "acme-training", "acme-serving"
CLOUD = Site(region="uaenorth", zones=("uaenorth-1",), distribution="aks")
CLOUD_REGISTRY = "acmeuaenorth.azurecr.io/falaj"
HOME_REGISTRY = "registry.acme.example/falaj"
JOBSETS = ("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOADS = ("kueue.x-k8s.io/v1beta2", "Workload")
SECRET = "worker-cloud"
ACCOUNT = f"burst-{SITE.region}"
_COMMON: dict[str, Any] = {
    "tenant": "platform", "owner": "platform@acme.example", "data_class": "confidential",
    "cost_center": "ai-1",
}  # fmt: skip
_AT_HOME: dict[str, Any] = {
    "distribution": "existing", "region": SITE.region, "registry": HOME_REGISTRY,
}  # fmt: skip
_IN_CLOUD: dict[str, Any] = {
    "distribution": "aks", "region": CLOUD.region, "registry": CLOUD_REGISTRY,
}  # fmt: skip
_H200 = {"cpu": 190, "memory_gib": 1900, "devices": {GPU: 8}}
_LARGE = {"cpu": 4_000, "memory_gib": 40_000, "pods": 500, "devices": {GPU: 64}}
_BURST: dict[str, Any] = {
    "workers": [{
        "name": "cloud", **_IN_CLOUD, "kubeconfig_secret": SECRET,
        "endpoint_cidrs": ["10.90.0.0/24"],
    }],
    "quotas": {"acme": {"cpu": "300", "memory": "3000Gi", GPU: "16"}},
}  # fmt: skip
del _BURST["workers"][0]["registry"]
#: Both are Kueue's: how long a silent worker is waited for, and how often what is left is cleared.
LOST_SECONDS = 5
_SECONDS = {"workerLostTimeout": f"{LOST_SECONDS}s", "gcInterval": "5s"}


@dataclass(frozen=True)
class Clusters:
    """One's own, and that in the cloud."""

    home: ControlPlane
    cloud: ControlPlane
    account: Objects
    """The account that the first has in the second."""
    line: Relay
    """Between the first's Kueue and the second's API server."""


@contextmanager
def clusters(folder: Path, definitions: list[dict[str, Any]]) -> Generator[Clusters]:
    """Both with their queues, a tenant, and everything that `Residency` refuses.

    Args:
        folder: for the kubeconfig of the one's account in the other.
        definitions: of Trainer, whose jobs MultiKueue watches as well.
    """
    settings = controllers.platforms("kueue")
    settings = {**settings, "multiKueue": {**settings["multiKueue"], **_SECONDS}}
    with ExitStack() as running:
        home, cloud = (
            running.enter_context(
                start(controllers=("kueue", "jobset"), controller_settings={"kueue": settings})
            )
            for _ in range(2)
        )
        for each in (home, cloud):
            addons.install_definitions(each.objects, definitions)
        _cluster(home, _AT_HOME, SITE, gpu_nodes=1, partner=CLOUD.region, burst=_BURST)
        # Images keep the name that they have at home: the cloud's nodes pull from there, or from
        # a mirror of it that their runtime knows.
        accepts = {SITE.region: ["acme"]}
        _cluster(cloud, _IN_CLOUD, CLOUD, gpu_nodes=2, partner=SITE.region, accepts=accepts)
        line = running.enter_context(relay(cloud.client.configuration.host))
        kubeconfig = account_of(cloud, line)
        home.apply([secret_of(kubeconfig)])
        path = write_private(folder / "account.kubeconfig", kubeconfig)
        account = Objects.of(str(path))
        running.callback(account.close)
        eventually("the worker is reached", lambda: worker_is(home, "True"))
        for each in (home, cloud):
            eventually("quotas are counted", lambda each=each: counted(each, NAMESPACE, SERVING))
            eventually("queues are active", lambda each=each: active(each, "acme"))
        eventually("the burst queue is active", lambda: _burst_is_active(home))
        yield Clusters(home, cloud, account, line)


def _cluster(
    plane: ControlPlane,
    place: Mapping[str, Any],
    site: Site,
    *,
    gpu_nodes: int,
    partner: str,
    **queues: Any,
) -> None:
    platform_parts(plane)
    plane.nodes(f"h200={gpu_nodes},cpu=4", site)
    plane.apply(tenant_objects("acme", training=_LARGE, serving={}, **place))
    plane.apply(_queues(place, gpu_nodes, **queues))
    plane.apply(claim("runs", NAMESPACE))
    residency = {**_COMMON, **place, "partner_regions": [partner]}
    if place["registry"] != HOME_REGISTRY:
        residency["allowed_registries"] = [HOME_REGISTRY]
    install(plane, residency)


def _queues(place: Mapping[str, Any], gpu_nodes: int, **queues: Any) -> list[Any]:
    pools = {"h200": {"nodes": gpu_nodes, **_H200}}
    tenants = {"acme": {"quotas": {"h200": {"devices": {GPU: 8 * gpu_nodes}}}}}
    return queue_objects(pools, tenants, **place, **queues)


def burst_queue(stop_policy: str) -> list[Any]:
    """The first cluster's queue for jobs that the second runs, with this policy of stopping."""
    rendered = _queues(_AT_HOME, 1, burst={**_BURST, "stop_policy": stop_policy})
    return [
        each
        for each in rendered
        if each["kind"] == "ClusterQueue" and each["metadata"]["name"] == "acme-burst"
    ]


def account_of(cloud: ControlPlane, line: Relay, seconds: int = 3600) -> str:
    """A kubeconfig of the account that the first cluster has in the second, with a fresh token.

    Its address is the near end of `line`, which the second's certificate is good for as well.
    """
    about = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    token = cloud.objects.request(
        "POST", f"/api/v1/namespaces/kueue-system/serviceaccounts/{ACCOUNT}/token",
        {**about, "spec": {"expirationSeconds": seconds}},
    )["status"]["token"]  # fmt: skip
    known = json.loads(cloud.kubeconfig.read_text("utf-8"))
    (user,), (cluster,) = known["users"], known["clusters"]
    reached = {**cluster, "cluster": {**cluster["cluster"], "server": line.address}}
    users = [{"name": user["name"], "user": {"token": token}}]
    return json.dumps({**known, "clusters": [reached], "users": users})


def secret_of(kubeconfig: str) -> dict[str, Any]:
    """The secret that the first cluster reaches the second by."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": "kueue-system"},
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }


def worker_is(home: ControlPlane, status: str) -> bool:
    """Whether Kueue says so of its connection to the second cluster."""
    found = home.objects.get("kueue.x-k8s.io/v1beta2", "MultiKueueCluster", "cloud")
    return condition(found, "Active") == status


def _burst_is_active(home: ControlPlane) -> bool:
    found = home.objects.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", "acme-burst")
    return condition(found, "Active") == "True"


def job(name: str, **changes: Any) -> list[dict[str, Any]]:
    """A machine of eight GPUs, that either cluster has."""
    given = arguments(gpus_per_node=8, further_regions=[CLOUD.region], telemetry=False, **changes)
    return [dict(each) for each in training_job.manifests(training_job.check(name, given))]


def moved(home: ControlPlane, name: str, manifests: Sequence[Mapping[str, Any]]) -> None:
    """Replace a job, as the component does when its queue is another: deleted, then made."""
    home.objects.delete(*JOBSETS, name, NAMESPACE)
    eventually("the old one is gone", lambda: not home.objects.get(*JOBSETS, name, NAMESPACE))
    eventually("so is its workload", lambda: not workload(home, name, NAMESPACE))
    home.apply(manifests)


def pods(plane: ControlPlane, name: str) -> list[dict[str, Any]]:
    """Pods of a job that run and aren't on their way out."""
    listed = plane.objects.list("v1", "Pod", NAMESPACE, f"falaj.io/component={name}")
    return [
        each
        for each in listed
        if each["status"].get("phase") == "Running"
        and not each["metadata"].get("deletionTimestamp")
    ]


def state(plane: ControlPlane, name: str) -> str:
    """How a job ended; empty while it hasn't."""
    found = plane.objects.get(*JOBSETS, name, NAMESPACE) or {}
    return str(found.get("status", {}).get("terminalState", ""))


def denied(act: Any) -> int:
    """The status with which the API server refuses something; 0 where it lets it."""
    try:
        act()
    except ApiException as error:
        return int(error.status or -1)
    return 0
