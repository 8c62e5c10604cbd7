"""Rules of the pack `zero_trust` for Azure."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.zero_trust import (
    azure_database_records,
    azure_firewall_rules,
    azure_kubernetes,
    azure_local_keys,
    azure_machines,
    azure_networks,
    azure_public_access,
    azure_public_addresses,
    azure_records,
    azure_roles,
    azure_security_groups,
    azure_storage,
    azure_strangers,
)

RULES: tuple[Rule, ...] = (
    *azure_database_records.RULES,
    *azure_firewall_rules.RULES,
    *azure_kubernetes.RULES,
    *azure_local_keys.RULES,
    *azure_machines.RULES,
    *azure_networks.RULES,
    *azure_public_access.RULES,
    *azure_public_addresses.RULES,
    *azure_records.RULES,
    *azure_roles.RULES,
    *azure_security_groups.RULES,
    *azure_storage.RULES,
    *azure_strangers.RULES,
)
