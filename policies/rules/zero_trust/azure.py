"""Rules of the pack `zero_trust` for Azure."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.zero_trust import (
    azure_firewall_rules,
    azure_kubernetes,
    azure_local_keys,
    azure_public_access,
    azure_public_addresses,
    azure_security_groups,
    azure_storage,
)

RULES: tuple[Rule, ...] = (
    *azure_firewall_rules.RULES,
    *azure_local_keys.RULES,
    *azure_public_addresses.RULES,
    *azure_storage.RULES,
    *azure_kubernetes.RULES,
    *azure_public_access.RULES,
    *azure_security_groups.RULES,
)
