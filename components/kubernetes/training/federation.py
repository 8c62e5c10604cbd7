"""The pods of a federation: a coordinator or a site, its certificates, who may reach it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._load_balancer import private_load_balancer
from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training.arguments import Run
from falaj.components.kubernetes.training.jobs import network_policy, queue_labels, selector
from falaj.components.kubernetes.training.pods import DATA, RUNS, gang, gang_pods, template

PORT: Final = 8470
_TLS: Final = "/etc/falaj/tls"
_SITES: Final = "/etc/falaj/sites"
_TOKEN: Final = "/etc/falaj/token"  # noqa: S105 - a folder
_MODE: Final = 0o440


@dataclass(frozen=True)
class Peers:
    """Who talks to whom."""

    coordinator: str
    """``host:port`` that a site calls; empty for the coordinator."""
    ranges: tuple[str, ...]
    """Private ranges of the other side, in other clusters."""
    namespaces: tuple[str, ...]
    """Namespaces of the other side in this cluster."""
    address: str = ""
    """Private address of the coordinator's load balancer; empty: any."""


@dataclass(frozen=True)
class FederatedTrainingSpec:
    """The arguments of `FederatedTraining`, checked."""

    run: Run
    role: str
    peers: Peers
    certificate_secret: str
    token_secret: str
    sites: Mapping[str, str]
    """SHA-256 of each site's token, by its name."""
    options: tuple[str, ...]
    """Of the coordinator: rounds, limits."""
    max_restarts: int


def objects(spec: FederatedTrainingSpec) -> list[Manifest]:
    """The job, its network policy, and for the coordinator its Service and the list of sites."""
    found = [_network_policy(spec), _job_set(spec)]
    return [*found, _sites(spec), _service(spec)] if spec.role == "coordinator" else found


def _job_set(spec: FederatedTrainingSpec) -> Manifest:
    run = spec.run
    pod = template(run, _command(spec), (), {})
    mounts = {"tls": _TLS, **({"sites": _SITES} if spec.sites else {"token": _TOKEN})}
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"] += [
        {"name": name, "mountPath": path, "readOnly": True} for name, path in mounts.items()
    ]
    volumes = [{"name": "tls", "secret": {"secretName": spec.certificate_secret,
                                          "defaultMode": _MODE}}]  # fmt: skip
    if spec.role == "coordinator":
        container["ports"] = [{"name": "federation", "containerPort": PORT}]
        volumes.append({"name": "sites", "configMap": {"name": run.name}})
    else:
        secret = {"secretName": spec.token_secret, "defaultMode": _MODE}
        volumes.append({"name": "token", "secret": secret})
    pod["spec"]["volumes"] += volumes
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "podFailurePolicy": gang_pods(),
        "template": pod,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(
            run.placed, run.name, run.name, run.namespace, labels=queue_labels(run)
        ),
        "spec": {
            "failurePolicy": gang(spec.max_restarts),
            "replicatedJobs": [{"name": spec.role, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _command(spec: FederatedTrainingSpec) -> list[str]:
    run = spec.run
    common = [
        "python", "-m", "falaj.workloads.federation", spec.role,
        "--dataset", f"{DATA}/{run.dataset}",
        "--authority", f"{_TLS}/ca.crt",
        "--certificate", f"{_TLS}/tls.crt",
        "--key", f"{_TLS}/tls.key",
        "--progress", "json",
    ]  # fmt: skip
    if spec.role == "site":
        call = ["--coordinator", spec.peers.coordinator, "--token", f"{_TOKEN}/token"]
        return [*common, *call, *run.arguments]
    serve = [
        "--output", f"{RUNS}/{run.name}",
        "--listen", f"$(POD_IP):{PORT}",
        "--sites", f"{_SITES}/sites.json",
    ]  # fmt: skip
    return [*common, *serve, *spec.options, *run.arguments]


def _sites(spec: FederatedTrainingSpec) -> Manifest:
    run = spec.run
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "data": {"sites.json": json.dumps(dict(sorted(spec.sites.items())), indent=2)},
    }


def _service(spec: FederatedTrainingSpec) -> Manifest:
    """Within the cluster, or with a private address for those that are elsewhere."""
    run = spec.run
    ports = [{"name": "federation", "port": PORT, "targetPort": "federation"}]
    body: dict[str, Any] = {"selector": selector(run), "ports": ports, "type": "ClusterIP"}
    annotations: Mapping[str, str] = {}
    if spec.peers.ranges:
        balancer = private_load_balancer(
            run.placed.distribution, spec.peers.ranges, address=spec.peers.address
        )
        body |= balancer.fields
        annotations = balancer.annotations
    about = metadata(run.placed, run.name, run.name, run.namespace, annotations=annotations)
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": body}


def _network_policy(spec: FederatedTrainingSpec) -> Manifest:
    """Only the other side, on the one port; a coordinator calls nobody, a site isn't called."""
    policy: dict[str, Any] = dict(network_policy(spec.run, peers=False))
    peers: list[dict[str, Any]] = [{"ipBlock": {"cidr": cidr}} for cidr in spec.peers.ranges]
    peers += [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": each}}}
        for each in spec.peers.namespaces
    ]
    port = PORT if spec.role == "coordinator" else int(spec.peers.coordinator.rpartition(":")[2])
    ports = [{"port": port, "protocol": "TCP"}]
    rules = dict(policy["spec"])
    if spec.role == "coordinator":
        rules["ingress"] = [*rules["ingress"], {"from": peers, "ports": ports}]
    else:
        rules["egress"] = [*rules["egress"], {"to": peers, "ports": ports}]
    return {**policy, "spec": rules}
