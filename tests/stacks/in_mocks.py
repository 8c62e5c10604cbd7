"""Whole stacks, declared against the sandbox in this process, without an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml

from engine.sandbox.mocks import SandboxMocks
from stacks.program import declare_in_cloud
from stacks.settings import CloudSettings, validate

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


def declare(
    config: Mapping[str, Any], stack: str = "dev", *, preview: bool = False
) -> SandboxMocks:
    """Declare a stack of this configuration; one that refers to a foundation makes its own."""
    own = {key: value for key, value in config.items() if key != "falaj:foundation"}
    settings = validate(own, ROOT, stack=stack)
    assert isinstance(settings, CloudSettings)
    asyncio.set_event_loop(asyncio.new_event_loop())
    mocks = SandboxMocks(preview=preview)
    pulumi.runtime.set_mocks(mocks, project="falaj", stack=stack, preview=preview)

    @pulumi.runtime.test
    def program() -> None:
        declare_in_cloud(settings, sandboxed=True)

    program()
    return mocks
