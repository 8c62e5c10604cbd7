"""Simulated machines: which there are, how they look to the API server, their life and death."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from falaj.engine.controlplane.objects import Objects, wait_for
from falaj.engine.errors import EngineError

# Which simulated machines there are: `h200=64,l4:time-slicing-4=16,h200:mig-1g.18gb=4,cpu=20`.

MOST_NODES = 5000
"""kwok's own benchmark makes 5,000 nodes in a minute: README of kubernetes-sigs/kwok 0.8.0."""
LEAST_SLICES, MOST_SLICES = 2, 16
"""As the components' `time_slices`."""

Distribution = Literal["eks", "aks", "existing"]
_ENTRY = re.compile(r"(?P<machine>[^:=\s]+)(?::(?P<sharing>[^=\s]+))?=(?P<number>[^=\s]+)")
_SLICING = "time-slicing-"
_MIG = "mig-"


@dataclass(frozen=True)
class Machine:
    """What one machine has; `mig` is how many instances of each profile fit on one GPU."""

    name: str
    gpus: int
    processors: int
    memory_gib: int
    nvme_gb: int
    interfaces: int
    type: str
    product: str
    gpu_memory_mib: int
    family: str
    mig: dict[str, int]


@dataclass(frozen=True)
class Pool:
    """So many machines of one kind, their GPUs shared in one way.

    `sharing` is empty, a MIG profile (`mig-1g.18gb`) or `time-slicing-4`.
    """

    machine: Machine
    sharing: str
    number: int

    @property
    def name(self) -> str:
        """Name of the pool and of its flavour: `h200-mig-1g.18gb`."""
        return f"{self.machine.name}-{self.sharing}" if self.sharing else self.machine.name

    @property
    def resources(self) -> dict[str, int]:
        """GPU resources that a node advertises.

        The names are those of NVIDIA's device plugin with the MIG strategy `mixed` and
        `renameByDefault` for time slices.
        """
        gpus = self.machine.gpus
        if not gpus:
            return {}
        if self.sharing.startswith(_MIG):
            parts = self.machine.mig[self.sharing.removeprefix(_MIG)]
            return {f"nvidia.com/{self.sharing}": gpus * parts}
        if self.sharing:
            return {"nvidia.com/gpu.shared": gpus * int(self.sharing.removeprefix(_SLICING))}
        return {"nvidia.com/gpu": gpus}


@dataclass(frozen=True)
class Site:
    """Where the machines stand, for their labels."""

    region: str = "me-central-1"
    """The region's or site's name."""
    zones: tuple[str, ...] = ("me-central-1a", "me-central-1b", "me-central-1c")
    """Machines are spread over them, rack by rack; without any they carry no label of a zone."""
    distribution: Distribution = "eks"
    """Whose labels and fabric they have: `eks` (EFA), `aks` or `existing` (InfiniBand)."""
    nodes_in_rack: int = 4
    racks_in_block: int = 8
    racks_labelled: bool = True
    """Whether they carry labels of their racks and blocks, or of EKS' network layers."""

    def __post_init__(self) -> None:
        if not self.region or not all(self.zones):
            raise EngineError(
                f"a site needs a region and zones with names, or none, given {self.region!r} and "
                f"{self.zones!r}"
            )
        for what, value in (
            ("nodes_in_rack", self.nodes_in_rack),
            ("racks_in_block", self.racks_in_block),
        ):
            if value < 1:
                raise EngineError(f"{what} is {value}; allowed: 1 or more")


@cache
def machines() -> dict[str, Machine]:
    """The known machines by name."""
    path = Path(__file__).with_name("machines.yaml")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: Machine(name, **row) for name, row in rows.items()}


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Read `h200=64,h200:mig-1g.18gb=4,cpu=20`; a pool that is named twice is refused.

    Raises EngineError that names every entry that can't be read, and what is allowed.
    """
    pools: dict[str, Pool] = {}
    wrong: list[str] = []
    for entry in (part.strip() for part in text.split(",")):
        if not entry:
            continue
        try:
            pool = _parse(entry)
        except ValueError as error:
            wrong.append(f"{entry!r}: {error}")
            continue
        if pool.name in pools:
            wrong.append(f"{entry!r}: the pool {pool.name} is named twice; give it one number")
        pools[pool.name] = pool
    total = sum(pool.number for pool in pools.values())
    if total > MOST_NODES:
        wrong.append(f"{total} nodes in all; at most {MOST_NODES}")
    if wrong:
        raise EngineError(
            "nodes can't be made as asked for:\n  "
            + "\n  ".join(wrong)
            + "\n  written MACHINE[:SHARING]=NUMBER with commas between, such as "
            "h200=64,h200:mig-1g.18gb=4,l4:time-slicing-4=2,cpu=20"
        )
    return tuple(pools.values())


def _parse(entry: str) -> Pool:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError("not MACHINE[:SHARING]=NUMBER")
    machine = machines().get(match["machine"])
    if machine is None:
        raise ValueError(
            f"no machine {match['machine']!r} is known; known are {', '.join(machines())}"
        )
    number = match["number"]
    # `isdecimal` takes digits of every script, and int() would read them.
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(MOST_NODES)):
        raise ValueError(f"{number!r} is no number of nodes from 0 to {MOST_NODES}")
    return Pool(machine, _sharing(match["sharing"] or "", machine), int(number))


def _sharing(text: str, machine: Machine) -> str:
    if not text:
        return ""
    if not machine.gpus:
        raise ValueError(f"{machine.name} has no GPU to share")
    slices = text.removeprefix(_SLICING)
    if text.startswith(_SLICING):
        allowed = [str(count) for count in range(LEAST_SLICES, MOST_SLICES + 1)]
        if slices not in allowed:
            raise ValueError(f"{text!r}: from {LEAST_SLICES} to {MOST_SLICES} slices are allowed")
        return text
    if text.startswith(_MIG) and text.removeprefix(_MIG) in machine.mig:
        return text
    profiles = [f"{_MIG}{profile}" for profile in machine.mig]
    raise ValueError(
        f"{machine.name} can't be shared as {text!r}; allowed: "
        + ", ".join([*profiles, f"{_SLICING}{LEAST_SLICES} to {_SLICING}{MOST_SLICES}"])
    )


# Simulated nodes as the API server gets them: labels, taints, what they offer.

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
        f"{PREFIX}pool": pool.name,
        f"{PREFIX}capacity": "on-demand",
        f"{PREFIX}flavor": pool.name if machine.gpus else "cpu-x86-64",
    }
    if site.zones:
        found["topology.kubernetes.io/zone"] = site.zones[block % len(site.zones)]
    if not site.racks_labelled:
        pass  # nobody labelled them
    elif site.distribution == "eks":
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


READY_SECONDS = 120.0
LEASE = ("coordination.k8s.io/v1", "Lease")
LEASES = "kube-node-lease"
"""The namespace of machines' leases."""
FOR_EVER_SECONDS = 2**31 - 1
"""The longest that a lease can be held: 68 years."""


class Machines:
    """Nodes that kwok keeps."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, tuple[Pool, int, Site, int]] = {}

    def set(self, pools: tuple[Pool, ...], site: Site) -> list[str]:
        """Make each pool have its number of nodes, and wait until they are ready."""
        wanted: list[dict[str, Any]] = []
        for pool in pools:
            there = {
                each["metadata"]["name"]
                for each in self._objects.list("v1", "Node", labels=f"{PREFIX}pool={pool.name}")
            }
            names = [node_name(pool, index) for index in range(pool.number)]
            for name in sorted(there - set(names)):
                self.remove(name)
            for index, name in enumerate(names):
                self._known[name] = (pool, index, site, 0)
                wanted.append(node(pool, index, site))
        self._objects.create_all(wanted)
        return self._wait([each["metadata"]["name"] for each in wanted])

    def remove(self, name: str) -> None:
        """Take a machine away, as a cloud does: its node object goes, its pods are collected."""
        self._objects.delete("v1", "Node", name)
        # A dead machine's lease is nobody's to renew: it must not outlive the node until the
        # garbage collector comes, or a new machine of that name would not get it.
        self._objects.delete(*LEASE, name, LEASES)
        self._known.pop(name, None)

    def kill(self, name: str) -> None:
        """Let a machine die: it says nothing any more, and can't confirm that its pods end.

        Kubernetes learns of it when the grace period is over (commands.NODE_GRACE_SECONDS). Its
        pods are then evicted as their tolerations say (commands.TOLERATION_SECONDS by default),
        and stay on their way out until the node is removed. Raises EngineError for a name that
        is no machine's.
        """
        if self._objects.get(*LEASE, name, LEASES) is None:
            raise EngineError(
                f"no machine {name!r} runs here; known: {', '.join(self._known) or 'none'}"
            )
        self._objects.patch("v1", "Node", name, {"metadata": {"annotations": {DEAD: "true"}}})
        # kwok renews no lease that another holds, and leaves that node's pods alone. The time of
        # the last renewal stays: the machine's last sign of life.
        taken = {"holderIdentity": DEAD, "leaseDurationSeconds": FOR_EVER_SECONDS}
        self._objects.patch(*LEASE, name, {"spec": taken}, LEASES)

    def replace(self, name: str) -> str:
        """Put a new machine into the place of one that died; return the new node's name."""
        if name not in self._known:
            raise EngineError(
                f"no machine {name!r} was made here; known: {', '.join(self._known) or 'none'}"
            )
        pool, index, site, generation = self._known[name]
        self.remove(name)
        new = node(pool, index, site, generation + 1)
        self._objects.create_all([new])
        self._known[new["metadata"]["name"]] = (pool, index, site, generation + 1)
        return self._wait([new["metadata"]["name"]])[0]

    def _wait(self, names: list[str]) -> list[str]:
        expected = set(names)

        def none_missing() -> bool:
            ready = {
                each["metadata"]["name"]
                for each in self._objects.list("v1", "Node", labels=f"{PREFIX}pool")
                if is_ready(each)
            }
            return expected <= ready

        if expected:
            wait_for(none_missing, f"{len(expected)} nodes are ready", READY_SECONDS)
        return names


def is_ready(found: dict[str, Any] | None) -> bool:
    """Whether a node is there, ready, and takes pods."""
    if found is None:
        return False
    conditions = found["status"].get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    held = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    taints = found["spec"].get("taints") or ()
    return ready and not any(each["key"] in held for each in taints)
