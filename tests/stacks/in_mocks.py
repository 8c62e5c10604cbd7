"""Whole stacks, declared against the sandbox in this process, without an engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml

from falaj.sandbox.inprocess import SandboxMocks
from falaj.stacks.cloud_program import declare_in_cloud, declare_in_cluster
from falaj.stacks.settings import CloudSettings, InClusterSettings, validate
from tests.loops import own_loop

os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"

ROOT = Path(__file__).resolve().parents[2]
SIX = [
    f"{cloud}-{kind}" for cloud in ("aws", "azure") for kind in ("foundation", "cluster", "smb")
]
IN_CLUSTER = [
    *(f"{cloud}-{kind}" for cloud in ("aws", "azure") for kind in ("platform", "workloads")),
    "onprem-cluster",
    "onprem-workloads",
]


def shipped(stack: str) -> dict[str, Any]:
    """The configuration of a stack that ships with the project."""
    path = ROOT / "stacks" / f"Pulumi.{stack}.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["config"])


#: What the stack of the cluster says, as far as stacks inside the cluster ask for it.
CLUSTERS: dict[str, dict[str, Any]] = {
    "aws": {
        "clusterName": "falaj-cluster",
        "networkId": "vpc-0123456789abcdef0",
        "clusterEndpoint": "https://0123456789ABCDEF.gr7.me-central-1.eks.amazonaws.com",
        "certificateAuthority": "Y2VydGlmaWNhdGU=",
        "diskEncryptionId": "arn:aws:kms:me-central-1:111122223333:key/"
        "00000000-1111-2222-3333-444444444444",
        "fileSystemId": "fs-0123456789abcdef0",
        "mountAddress": "fs-0123456789abcdef0.fsx.me-central-1.amazonaws.com@tcp:/abcdefgh",
    },
    "azure": {
        "clusterName": "falaj-cluster",
        "clusterEndpoint": "falaj.privatelink.uaenorth.azmk8s.io",
        "certificateAuthority": "Y2VydGlmaWNhdGU=",
        "diskEncryptionId": "/subscriptions/00000000-1111-2222-3333-444444444444/resourceGroups/"
        "falaj/providers/Microsoft.Compute/diskEncryptionSets/disks",
        "fileSystemId": "/subscriptions/00000000-1111-2222-3333-444444444444/resourceGroups/falaj"
        "/providers/Microsoft.NetApp/netAppAccounts/files/capacityPools/files/volumes/files",
        "mountAddress": "10.64.32.4:/files",
    },
}


class OnACluster(SandboxMocks):
    """The sandbox, and the stack of the cluster that a stack refers to."""

    def __init__(self, outputs: Mapping[str, Any], *, preview: bool) -> None:
        super().__init__(preview=preview)
        self._outputs = outputs

    def new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[Any, Any]]:
        made, outputs = super().new_resource(args)
        if args.typ == "pulumi:pulumi:StackReference":
            outputs = {**outputs, "outputs": dict(self._outputs), "secretOutputNames": []}
        return made, outputs


def declare(
    config: Mapping[str, Any], stack: str = "dev", *, preview: bool = False
) -> SandboxMocks:
    """Declare a stack of this configuration; one that refers to a foundation makes its own."""
    own = {key: value for key, value in config.items() if key != "falaj:foundation"}
    settings = validate(own, ROOT, stack=stack)
    assert isinstance(settings, CloudSettings)
    with own_loop():
        mocks = OnACluster(CLUSTERS.get(str(settings.platform), {}), preview=preview)
        pulumi.runtime.set_mocks(mocks, project="falaj", stack=stack, preview=preview)

        @pulumi.runtime.test
        def program() -> None:
            if isinstance(settings, InClusterSettings):
                declare_in_cluster(settings, ROOT, sandboxed=True)
            else:
                declare_in_cloud(settings, sandboxed=True)

        program()
    return mocks
