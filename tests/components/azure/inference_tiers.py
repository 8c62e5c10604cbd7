"""CPU inference tiers with everything that they stand on."""

from __future__ import annotations

from typing import Any

import pulumi

from falaj.components.azure import CpuInferenceTier
from tests.components.azure.compute_foundation import foundation
from tests.components.azure.conftest import Deployed
from tests.components.azure.conftest import deploy as deploy_now

BASE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/acme-base/providers"


def make(late: dict[str, Any] | None = None, stack: str = "dev", **changes: Any) -> Deployed:
    """Make one tier with everything it stands on; ``late`` values are outputs."""

    def program(opts: pulumi.ResourceOptions) -> CpuInferenceTier:
        known_late = {k: pulumi.Output.from_input(v) for k, v in (late or {}).items()}
        args: Any = foundation(opts).tier_args(**{**changes, **known_late})
        return CpuInferenceTier("churn", args, opts)

    return deploy_now(program, stack=stack)
