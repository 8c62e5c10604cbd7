"""A whole foundation on Azure, as one program deploys it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pulumi

from falaj.sandbox.inprocess import Declared
from tests.components.azure.conftest import Deployed, deploy
from tests.components.azure.foundation import Foundation

MEMBERS = {
    duty: [f"10000000-0000-0000-0000-00000000000{position}"]
    for position, duty in enumerate(
        ("provisioner", "trainer", "deployer", "auditor", "key-administrator")
    )
}


def everything(opts: pulumi.ResourceOptions, **placed: Any) -> dict[str, Any]:
    """Every component of a foundation, and of what stands on it; their outputs by component."""
    foundation = Foundation(opts, **placed)
    store = foundation.store()
    parts = {
        "store": store,
        "images": foundation.registry(
            upstreams=["quay.io", "mcr.microsoft.com"], repositories=["training", "inference"]
        ),
        "audit": foundation.trail(
            alert_emails=["soc@acme.ae"], data_store_id=store.store_ids["datasets"]
        ),
        "people": foundation.people(members=MEMBERS, require_mfa=False),
        "trainer": foundation.workload("trainer"),
        "deployer": foundation.workload("deployer"),
        "files": foundation.files(),
        "money": foundation.budget(),
    }
    return {
        f"{name}.{output}": value
        for name, part in parts.items()
        for output, value in vars(part).items()
        if isinstance(value, pulumi.Output)
    }


@cache
def foundation() -> Deployed:
    """What the program declares; once for all modules that look at it."""
    return deploy(everything)


def own(made: Deployed) -> list[Declared]:
    """Resources of the cloud."""
    return [each for each in made.resources if each.type.startswith("azure-native:")]
