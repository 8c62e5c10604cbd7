"""Rules of the pack `encryption`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.encryption import (
    aws_at_rest,
    aws_classic_balancers,
    aws_database_transport,
    aws_keys,
    aws_plain_text,
    aws_secrets_in_text,
    aws_templates,
    aws_tls_versions,
    aws_transport_policies,
    azure_at_rest,
    azure_clusters,
    azure_customer_keys,
    azure_gateways,
    azure_key_uses,
    azure_keys,
    azure_plain_text,
    azure_templates,
    azure_tls,
    azure_vpn,
)

RULES: tuple[Rule, ...] = (
    *aws_at_rest.RULES,
    *aws_classic_balancers.RULES,
    *aws_database_transport.RULES,
    *aws_keys.RULES,
    *aws_plain_text.RULES,
    *aws_secrets_in_text.RULES,
    *aws_templates.RULES,
    *aws_tls_versions.RULES,
    *aws_transport_policies.RULES,
    *azure_at_rest.RULES,
    *azure_clusters.RULES,
    *azure_customer_keys.RULES,
    *azure_gateways.RULES,
    *azure_key_uses.RULES,
    *azure_keys.RULES,
    *azure_plain_text.RULES,
    *azure_templates.RULES,
    *azure_tls.RULES,
    *azure_vpn.RULES,
)
