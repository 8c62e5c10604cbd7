"""Rules of the pack `zero_trust`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.zero_trust import (
    audit,
    clusters,
    iam_policies,
    identities,
    images,
    machines,
    networks,
    public_addresses,
    public_services,
    security_groups,
    sharing,
    sign_in,
    storage,
)

RULES: tuple[Rule, ...] = (
    *audit.RULES,
    *clusters.RULES,
    *iam_policies.RULES,
    *identities.RULES,
    *images.RULES,
    *machines.RULES,
    *networks.RULES,
    *public_addresses.RULES,
    *public_services.RULES,
    *security_groups.RULES,
    *sharing.RULES,
    *sign_in.RULES,
    *storage.RULES,
)
