"""All rules of this pack for AWS."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.zero_trust import (
    aws_audit,
    aws_buckets,
    aws_duties,
    aws_eks,
    aws_iam_grants,
    aws_identities,
    aws_machines,
    aws_network_acls,
    aws_public_addresses,
    aws_public_services,
    aws_resource_policies,
    aws_security_groups,
    aws_sharing,
    aws_trust,
)

RULES: tuple[Rule, ...] = (
    *aws_security_groups.RULES,
    *aws_public_addresses.RULES,
    *aws_public_services.RULES,
    *aws_resource_policies.RULES,
    *aws_buckets.RULES,
    *aws_iam_grants.RULES,
    *aws_trust.RULES,
    *aws_identities.RULES,
    *aws_machines.RULES,
    *aws_eks.RULES,
    *aws_audit.RULES,
    *aws_network_acls.RULES,
    *aws_sharing.RULES,
    *aws_duties.RULES,
)
