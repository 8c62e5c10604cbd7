"""Fills the table with the rows of all services; imported once, by the model."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from engine.sandbox.clouds.azure import table
from engine.sandbox.clouds.azure.services import (
    groups,
    security_rules,
    virtual_network,
)

SERVICES: Final[tuple[ModuleType, ...]] = (
    groups,
    security_rules,
    virtual_network,
)

for _service in SERVICES:
    table.add(_service.KINDS)
