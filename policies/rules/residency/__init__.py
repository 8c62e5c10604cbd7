"""Rules of the pack `residency`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.residency import (
    aws_copies,
    aws_databases,
    aws_regionless,
    aws_s3,
    azure,
    everywhere,
    whereabouts,
)

RULES: tuple[Rule, ...] = (
    *everywhere.RULES,
    *whereabouts.RULES,
    *aws_regionless.RULES,
    *aws_s3.RULES,
    *aws_copies.RULES,
    *aws_databases.RULES,
    *azure.RULES,
)
