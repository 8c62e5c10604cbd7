"""Names in Python's spelling and in the engine's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def camel(name: str) -> str:
    """``max_rows`` as the engine spells it: ``maxRows``."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def snake(name: str) -> str:
    """``maxRows`` as Python spells it: ``max_rows``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def module_of(component: str) -> str:
    """The module of a component: ``gpu_node_pool`` of ``GpuNodePool``."""
    return snake(component).lower()


def engine_inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """A component's arguments as the engine spells them, so that policies see what was asked.

    None counts as left out.
    """
    return {camel(name): value for name, value in args.items() if value is not None}
