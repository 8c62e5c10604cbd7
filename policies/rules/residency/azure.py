"""Every rule about where Azure keeps and handles data."""

from __future__ import annotations

from typing import Final

from falaj.policies.model import Rule
from falaj.policies.rules.residency import (
    azure_ai,
    azure_backups,
    azure_endpoints,
    azure_georedundancy,
    azure_global,
    azure_integration,
    azure_linked_stores,
    azure_locations,
    azure_monitoring,
    azure_networks,
    azure_redundancy,
    azure_replicas,
    azure_sharing,
    azure_templates,
)

RULES: Final[tuple[Rule, ...]] = (
    *azure_locations.RULES,
    *azure_global.RULES,
    *azure_redundancy.RULES,
    *azure_backups.RULES,
    *azure_georedundancy.RULES,
    *azure_replicas.RULES,
    *azure_linked_stores.RULES,
    *azure_monitoring.RULES,
    *azure_endpoints.RULES,
    *azure_networks.RULES,
    *azure_ai.RULES,
    *azure_integration.RULES,
    *azure_sharing.RULES,
    *azure_templates.RULES,
)
