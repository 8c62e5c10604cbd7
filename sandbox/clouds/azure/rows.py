"""Fills the table with the rows of all services; imported once, by the model."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from falaj.sandbox.clouds.azure import table
from falaj.sandbox.clouds.azure.services import (
    access,
    agent_pool,
    compute,
    containers,
    edge,
    files,
    governance,
    key_vault,
    kubernetes,
    monitor,
    network,
    private_link,
    storage,
)

SERVICES: Final[tuple[ModuleType, ...]] = (
    access, agent_pool, compute, containers, edge, files, governance, key_vault, kubernetes,
    monitor, network, private_link, storage,
)  # fmt: skip

for _service in SERVICES:
    table.add(_service.KINDS)
