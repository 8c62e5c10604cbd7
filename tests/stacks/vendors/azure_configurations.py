"""Configurations of Azure to be judged: those that ship, and some with what those leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.stacks.in_mocks import ROOT, shipped

SHIPPED: Final = sorted(
    path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.azure-*.yaml")
)
_SOMEONE = "00000000-1111-2222-3333-444444444444"
_GROUP = f"/subscriptions/{_SOMEONE}/resourceGroups/office/providers"
#: What every stack with a foundation of its own can have, with the longest name of a tenant.
_OPTIONS: Mapping[str, Any] = {
    "falaj:tenant": "t" * 20,
    "falaj:network": {
        "cidr": "10.64.0.0/16",
        "zones": ["1", "2", "3"],
        "egressDomains": ["models.example.ae", ".example.ae"],
        "joinedNetworkIds": [f"{_GROUP}/Microsoft.Network/virtualNetworks/office"],
        "flowLogDays": 365,
    },
    "falaj:keys": {
        "administrators": [_SOMEONE],
        "rotationDays": 90,
        "deletionWindowDays": 7,
    },
    "falaj:registry": {"upstreams": ["public.ecr.aws", "quay.io", "registry.k8s.io"]},
    "falaj:storage": {"auditRetentionDays": 3653, "oldVersionDays": 365},
    "falaj:identity": {
        "members": {
            "provisioner": [_SOMEONE],
            "trainer": [_SOMEONE.replace("0", "5")],
            "auditor": [_SOMEONE.replace("0", "6")],
            "key-administrator": [_SOMEONE.replace("0", "7")],
        },
        "requireMfa": True,
    },
    "falaj:audit": {
        "retentionDays": 730,
        "alertEmails": ["ops@example.ae", "security@example.ae"],
        "dedicatedLogs": True,
    },
    "falaj:budget": {
        "monthlyUsd": 1_000_000_000,
        "emails": ["a@example.ae", "b@example.ae"],
        "alertPercent": [1, 1000],
        "start": "2026-11",
    },
}
_POOLS: Mapping[str, Any] = {
    "falaj:cluster": {"administrators": [_SOMEONE], "viewers": [_SOMEONE.replace("0", "8")]},
    "falaj:cpuPools": {
        "addons": {"system": True, "vcpu": 4},
        "arm": {
            "arch": "arm64",
            "vcpu": 4,
            "capacity": "spot",
            "taints": ["batch=only:NoSchedule"],
            "diskGib": 2048,
        },
    },
    "falaj:gpuPools": {
        "near": {"gpu": "H200", "count": 8, "fabric": "infiniband", "placementGroup": "cluster"},
        "surging": {"gpu": "H200", "count": 8, "maxSurge": 2},
    },
    "falaj:fileSystem": {"zone": "1", "capacityGib": 4096, "homes": False},
}


def _tier(**settings: Any) -> dict[str, Any]:
    served = {"model": "digits", "vcpu": 2, **settings}
    network = {**_OPTIONS["falaj:network"], "purpose": "serving"}
    # Names of clusters are what a joined network would learn: none stands there.
    del network["joinedNetworkIds"]
    return {
        **shipped("azure-smb"), **_OPTIONS, "falaj:network": network, "falaj:inference": served,
    }  # fmt: skip


#: By the name of the stack, which others than the shipped ones have a long one of.
CONFIGURATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{stack: shipped(stack) for stack in SHIPPED},
    "foundation-with-all-that-it-can-have": {**shipped("azure-foundation"), **_OPTIONS},
    "foundation-with-keys-in-a-module": {
        **shipped("azure-foundation"),
        "falaj:keys": {"managedHsm": True, "administrators": [_SOMEONE]},
        "falaj:identity": _OPTIONS["falaj:identity"],
    },
    "cluster-of-machines-of-all-purchases": {**shipped("azure-cluster"), **_OPTIONS, **_POOLS},
    "tier-of-containers-with-a-way-out": _tier(mode="serverless"),
    "tier-of-machines-with-a-way-out": _tier(mode="instances"),
}
