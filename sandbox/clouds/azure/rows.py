"""Fills the table with the rows of all services; imported once, by the model."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from falaj.sandbox.clouds.azure import table
from falaj.sandbox.clouds.azure.services import (
    agent_pool,
    authorization,
    capacity,
    collection,
    compute,
    containers,
    edge,
    files,
    firewall,
    governance,
    groups,
    identity,
    key_vault,
    kubernetes,
    logs,
    maintenance,
    monitor,
    network_watch,
    private_link,
    registry,
    security_rules,
    storage,
    storage_data,
    virtual_network,
)

SERVICES: Final[tuple[ModuleType, ...]] = (
    agent_pool,
    authorization,
    capacity,
    collection,
    compute,
    containers,
    edge,
    files,
    firewall,
    governance,
    groups,
    identity,
    key_vault,
    kubernetes,
    logs,
    maintenance,
    monitor,
    network_watch,
    private_link,
    registry,
    security_rules,
    storage,
    storage_data,
    virtual_network,
)

for _service in SERVICES:
    table.add(_service.KINDS)
