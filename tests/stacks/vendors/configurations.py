"""Configurations of AWS to be judged: those that ship, and some with what those leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.stacks.in_mocks import ROOT, shipped

SHIPPED: Final = sorted(
    path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.aws-*.yaml")
)
_ROLE = "arn:aws:iam::111122223333:role/{}"
#: What every stack with a foundation of its own can have, with the longest name of a tenant.
_OPTIONS: Mapping[str, Any] = {
    "falaj:tenant": "t" * 20,
    "falaj:network": {
        "cidr": "10.64.0.0/16",
        "zones": ["mec1-az1", "mec1-az2", "mec1-az3"],
        "egressDomains": ["models.example.ae", ".example.ae"],
        "organizationId": "o-a1b2c3d4e5",
    },
    "falaj:keys": {
        "administrators": [_ROLE.format("keys")],
        "rotationDays": 90,
        "deletionWindowDays": 7,
    },
    "falaj:registry": {"upstreams": ["public.ecr.aws", "quay.io", "registry.k8s.io"]},
    "falaj:identity": {
        "members": {"auditor": [_ROLE.format("auditor")]},
        "requireMfa": True,
        "sessionMinutes": 720,
    },
    "falaj:audit": {"retentionDays": 3653, "alertEmails": ["ops@example.ae"]},
    "falaj:budget": {
        "monthlyUsd": 1_000_000_000,
        "emails": ["a@example.ae", "b@example.ae"],
        "alertPercent": [1, 1000],
        "start": "2026-11",
    },
}
_BOUGHT = {"reservationId": "cr-0123456789abcdef0", "zones": ["mec1-az1"]}
_POOLS: Mapping[str, Any] = {
    "falaj:cluster": {
        "administrators": [_ROLE.format("administrator")],
        "viewers": [_ROLE.format("viewer")],
    },
    "falaj:cpuPools": {
        "system": {"system": True, "vcpu": 4},
        "arm": {
            "arch": "arm64",
            "vcpu": 4,
            "int8": "i8mm",
            "capacity": "spot",
            "taints": ["batch=only:NoSchedule"],
            "diskGib": 4095,
        },
    },
    "falaj:gpuPools": {
        "spot": {"gpu": "L40S", "count": 1, "capacity": "spot"},
        "reserved": {"gpu": "L40S", "count": 4, "capacity": "reservation", **_BOUGHT},
        "block": {
            "gpu": "H200",
            "count": 8,
            "fabric": "efa",
            "capacity": "capacity-block",
            "nodes": 2,
            "maxNodes": 2,
            **_BOUGHT,
        },
        "surging": {"gpu": "L40S", "count": 1, "zones": ["mec1-az1"], "maxSurge": 2},
    },
    "falaj:fileSystem": {
        "zone": "mec1-az1",
        "capacityGib": 2400,
        "deploymentType": "persistent-1",
        "throughputMbsPerTib": 200,
        "homes": False,
    },
}


def _tier(**settings: Any) -> dict[str, Any]:
    served = {"model": "digits", "vcpu": 2, **settings}
    return {**shipped("aws-smb"), **_OPTIONS, "falaj:inference": served}


#: By the name of the stack, which others than the shipped ones have a long one of.
CONFIGURATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{stack: shipped(stack) for stack in SHIPPED},
    "foundation-with-all-that-it-can-have": {**shipped("aws-foundation"), **_OPTIONS},
    "cluster-of-machines-of-all-purchases": {**shipped("aws-cluster"), **_OPTIONS, **_POOLS},
    "tier-of-containers-with-an-authority": _tier(mode="serverless", privateAuthority=True),
    "tier-of-machines-with-shells-on-them": _tier(mode="instances", sessionManager=True),
}
