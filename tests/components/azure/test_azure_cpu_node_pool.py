"""CPU pools of AKS: what is refused, and what is made."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.azure import Cluster, CpuNodePool
from tests.components.azure.compute_foundation import ZONES, foundation
from tests.components.azure.conftest import PLACED, Deployed
from tests.components.azure.conftest import deploy as deploy_now

PLAIN: dict[str, Any] = {
    **PLACED,
    "cluster_id": "cluster",
    "node_subnet_ids": dict.fromkeys(ZONES, "nodes"),
    "node_identity_id": "kubelet",
    "security_group_id": "rules",
    "disk_encryption_id": "disks",
}


@pytest.fixture(scope="module", name="several")
def _several() -> Deployed:
    wanted: dict[str, dict[str, Any]] = {
        "usual": {},
        "amx": {
            "int8": "amx",
            "vcpu": 8,
            "memory_gib": 32,
            "max_nodes": 10,
            "nodes": 2,
            "max_unavailable": 4,
        },
        "arm": {"arch": "arm64", "capacity": "spot", "min_nodes": 0},
        "addons": {
            "system": True,
            "machine": "Standard_D8s_v6",
            "zones": ["1", "3"],
            "min_nodes": 2,
            "max_nodes": 2,
            "disk_gib": 200,
            "labels": {"team": "platform"},
            "taints": ["team=platform:NoSchedule"],
            "kubernetes_version": "1.34",
        },
    }

    def program(opts: pulumi.ResourceOptions) -> CpuNodePool:
        base = foundation(opts)
        args: Any = base.cluster_args()
        cluster = Cluster("ai", args, opts)
        made: list[CpuNodePool] = []
        for name, changes in wanted.items():
            pool: Any = base.pool_args(cluster, **changes)
            made.append(CpuNodePool(name, pool, opts))
        return made[0]

    return deploy_now(program)


def inputs(made: Deployed, name: str) -> Any:
    """What was asked of AKS for a pool."""
    (found,) = [each for each in made.of_type("containerservice:AgentPool") if each.name == name]
    return found.inputs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": "reservation"}, "capacity: .*reservations are for GPU pools"),
        ({"capacity": "free"}, "capacity: .*on-demand, spot"),
        ({"capacity": "spot", "data_class": "restricted"}, "capacity: .*'restricted'"),
        ({"capacity": "spot", "system": True}, "capacity: .*'system'"),
        ({"system": True, "min_nodes": 0}, "min_nodes: .*'system'"),
        ({"system": "yes"}, "system: .*true or false"),
        ({"int8": "avx"}, "int8: .*amx"),
        ({"int8": "amx", "arch": "arm64"}, "int8: .*x86_64's"),
        ({"int8": "i8mm", "arch": "x86_64"}, "int8: .*arm64's"),
        ({"arch": "riscv"}, "arch: "),
        ({"vcpu": 0}, "vcpu: "),
        ({"vcpu": 5.5}, "vcpu: .*whole number"),
        ({"memory_gib": 0}, "memory_gib: "),
        ({"memory_gib": 20_000}, "vcpu: "),
        ({"machine": "m7i.xlarge"}, "machine: "),
        ({"machine": "Standard_DC4as_v6"}, "machine: .*confidential"),
        ({"machine": "Standard_DC4s_v3"}, "machine: .*to be avoided"),
        ({"machine": "Standard_D4as_v5", "int8": "vnni"}, "machine: .*change what is asked"),
        ({"zones": ["9"]}, "zones.*1, 2, 3"),
        ({"min_nodes": 4, "max_nodes": 2}, "min_nodes: .*at most"),
        ({"nodes": 9}, "nodes: .*1 to 3"),
        ({"disk_gib": 1}, "disk_gib: "),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"taints": ["x=y:Never"]}, "taints"),
        ({"kubernetes_version": "2"}, "kubernetes_version: "),
        ({"node_subnet_ids": None}, "node_subnet_ids: missing"),
        ({"gpu": "H200"}, "gpu: is not an argument"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    args: Any = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    with pytest.raises(pulumi.InputPropertiesError, match=words):
        CpuNodePool("cpu", args)


def test_a_pool_does_not_take_the_name_of_the_clusters_own() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"name: .*'system' is the pool that"):
        CpuNodePool("system", {**PLAIN})


def test_a_usual_pool(several: Deployed) -> None:
    found = inputs(several, "usual")
    assert found["mode"] == "User"
    assert (found["enableAutoScaling"], found["minCount"], found["maxCount"]) == (True, 1, 3)
    assert found["count"] == 1
    assert found["osDiskSizeGB"] == 100
    assert found["enableEncryptionAtHost"] is True
    assert found["enableNodePublicIP"] is False
    assert found["securityProfile"] == {
        "sshAccess": "Disabled",
        "enableSecureBoot": True,
        "enableVTPM": True,
    }
    assert found["upgradeSettings"]["maxSurge"] == "33%"
    assert found["nodeLabels"]["falaj.io/pool"] == "usual"
    assert found["nodeTaints"] == []
    assert "availabilityZones" not in found


def test_processors_are_what_was_asked_for(several: Deployed) -> None:
    amx = inputs(several, "amx")
    assert amx["vmSize"] == "Standard_D8s_v6"
    assert amx["nodeLabels"]["falaj.io/int8"] == "amx"
    assert amx["count"] == 2
    # As many new ones first: none of the old ones is missed.
    assert amx["upgradeSettings"]["maxSurge"] == "4"
    assert "maxUnavailable" not in amx["upgradeSettings"]


def test_arm_nodes_by_spot(several: Deployed) -> None:
    arm = inputs(several, "arm")
    assert "ps_v6" in arm["vmSize"] or "pls_v6" in arm["vmSize"]
    assert arm["scaleSetPriority"] == "Spot"
    assert arm["nodeTaints"] == ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"]
    assert arm["minCount"] == 0
    assert "upgradeSettings" not in arm
    assert arm["securityProfile"]["enableSecureBoot"] is False


def test_add_ons_in_zones_that_were_named(several: Deployed) -> None:
    found = inputs(several, "addons")
    assert found["mode"] == "System"
    assert found["vmSize"] == "Standard_D8s_v6"
    assert found["availabilityZones"] == ["1", "3"]
    assert (found["enableAutoScaling"], found["count"]) == (False, 2)
    assert found["osDiskSizeGB"] == 200
    assert found["nodeLabels"]["team"] == "platform"
    assert found["nodeTaints"] == ["team=platform:NoSchedule"]
    assert found["orchestratorVersion"] == "1.34"


def test_outputs(several: Deployed) -> None:
    made: CpuNodePool = several.made
    assert made.machine == inputs(several, "usual")["vmSize"]
    assert made.zones == []
    assert made.cost_at_maximum.startswith("USD")
    assert several.outputs["pool_name"] == "usual"
    assert several.outputs["pool_id"].endswith("/agentPools/usual")
