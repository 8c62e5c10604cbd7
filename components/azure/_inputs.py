"""What a component tells the engine about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pulumi_inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """A component's arguments under their names in the engine (``node_subnet_ids`` becomes
    ``nodeSubnetIds``), so that policies see them."""
    return {_camel(name): value for name, value in args.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
