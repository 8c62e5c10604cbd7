"""Rules of the pack `residency`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.residency import (
    aws_accounts,
    aws_ai,
    aws_copies,
    aws_databases,
    aws_edges,
    aws_keys,
    aws_networks,
    aws_outlets,
    aws_regionless,
    aws_registries,
    aws_s3,
    aws_sharing,
    aws_streams,
    azure,
    container_images,
    everywhere,
    hosts,
    whereabouts,
)

RULES: tuple[Rule, ...] = (
    *everywhere.RULES,
    *whereabouts.RULES,
    *aws_regionless.RULES,
    *aws_s3.RULES,
    *aws_copies.RULES,
    *aws_databases.RULES,
    *aws_keys.RULES,
    *aws_registries.RULES,
    *aws_sharing.RULES,
    *aws_streams.RULES,
    *aws_outlets.RULES,
    *aws_edges.RULES,
    *aws_networks.RULES,
    *aws_ai.RULES,
    *aws_accounts.RULES,
    *container_images.RULES,
    *hosts.RULES,
    *azure.RULES,
)
