"""Simulated nodes as the API server gets them: labels, taints, what they offer."""

from __future__ import annotations

from typing import Any

from falaj.engine.controlplane.pools import Pool, Site

#: The names that Falaj's pools set (components/specification/node_pools.py, which the engine
#: doesn't import); a test compares them.
PREFIX = "falaj.io/"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SIMULATED = "kwok.x-k8s.io/node"
"""The annotation by which kwok takes a node as its own."""
DEAD = "simulation.falaj.io/dead"
"""The annotation of a machine that was made to die."""

MOST_PODS = 110
"""https://kubernetes.io/docs/setup/best-practices/cluster-large/"""
#: What the system keeps for itself of a machine's processors (millicores) and memory (1/32).
SYSTEM_MILLICORES = 500
MEMORY_SHARES = 32
SYSTEM_DISK_GB = 200
_INTERFACES = {"eks": "vpc.amazonaws.com/efa", "aks": "rdma/ib", "existing": "rdma/ib"}
_FABRICS = {"eks": "efa", "aks": "infiniband", "existing": "infiniband"}


def node_name(pool: Pool, index: int, generation: int = 0) -> str:
    """`h200-0007`; a machine that replaces one that died has its generation in its name."""
    return f"{pool.name}-{index:04d}" + (f"-{generation}" if generation else "")


def node(pool: Pool, index: int, site: Site, generation: int = 0) -> dict[str, Any]:
    """The machine number `index` of a pool: it stands in the same rack each time."""
    capacity = _capacity(pool, site)
    allocatable = dict(capacity)
    machine = pool.machine
    allocatable["cpu"] = f"{machine.processors * 1000 - SYSTEM_MILLICORES}m"
    memory = machine.memory_gib * 1024
    allocatable["memory"] = f"{memory - memory // MEMORY_SHARES}Mi"
    name = node_name(pool, index, generation)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **labels(pool, index, site)},
            "annotations": {SIMULATED: "fake"},
        },
        "spec": {
            "providerID": f"kwok://{site.region}/{name}",
            "taints": [GPU_TAINT] if machine.gpus else [],
        },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "kernelVersion": "simulated",
                "containerRuntimeVersion": "kwok",
                "kubeletVersion": "v1.36.1",
                "kubeProxyVersion": "",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def labels(pool: Pool, index: int, site: Site) -> dict[str, str]:
    """Labels of Kubernetes, of the platform's topology, of GPU feature discovery, and Falaj's."""
    machine = pool.machine
    rack = index // site.nodes_in_rack
    block = rack // site.racks_in_block
    found = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.type,
        "topology.kubernetes.io/region": site.region,
        "topology.kubernetes.io/zone": site.zones[block % len(site.zones)],
        f"{PREFIX}pool": pool.name,
        f"{PREFIX}capacity": "on-demand",
        f"{PREFIX}flavor": pool.name if machine.gpus else "cpu-x86-64",
    }
    if site.distribution == "eks":
        # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-topology.html
        found |= {
            "topology.k8s.aws/network-node-layer-1": f"nn-{pool.name}",
            "topology.k8s.aws/network-node-layer-2": f"nn-{pool.name}-{block}",
            "topology.k8s.aws/network-node-layer-3": f"nn-{pool.name}-{block}-{rack}",
        }
    else:
        found |= {
            f"{PREFIX}block": f"{pool.name}-{block}",
            f"{PREFIX}rack": f"{pool.name}-{block}-{rack}",
        }
    if not machine.gpus:
        return found
    found |= {
        f"{PREFIX}gpu": machine.name,
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": machine.product,
        "nvidia.com/gpu.count": str(machine.gpus),
        "nvidia.com/gpu.memory": str(machine.gpu_memory_mib),
        "nvidia.com/gpu.family": machine.family,
        f"{PREFIX}fabric": _FABRICS[site.distribution] if machine.interfaces else "none",
    }
    if pool.sharing.startswith("mig-"):
        found["nvidia.com/mig.config"] = f"all-{pool.sharing.removeprefix('mig-')}"
        found["nvidia.com/mig.config.state"] = "success"
        found["nvidia.com/mig.strategy"] = "mixed"
    elif pool.sharing:
        found["nvidia.com/device-plugin.config"] = pool.sharing
        found["nvidia.com/gpu.replicas"] = pool.sharing.rpartition("-")[2]
    return found


def _capacity(pool: Pool, site: Site) -> dict[str, str]:
    machine = pool.machine
    disk = machine.nvme_gb or SYSTEM_DISK_GB
    found = {
        "cpu": str(machine.processors),
        "memory": f"{machine.memory_gib * 1024}Mi",
        "ephemeral-storage": f"{disk}G",
        "hugepages-2Mi": "10Gi" if machine.interfaces else "0",
        "pods": str(MOST_PODS),
    }
    found |= {name: str(count) for name, count in pool.resources.items()}
    if machine.interfaces:
        found[_INTERFACES[site.distribution]] = str(machine.interfaces)
    return found
