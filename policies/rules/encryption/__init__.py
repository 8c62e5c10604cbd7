"""Rules of the pack `encryption`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.encryption import (
    at_rest,
    keys,
    plain_text,
    secrets_in_text,
    templates,
    tls_demanded,
    tls_versions,
)

RULES: tuple[Rule, ...] = (
    *at_rest.RULES,
    *keys.RULES,
    *plain_text.RULES,
    *secrets_in_text.RULES,
    *templates.RULES,
    *tls_demanded.RULES,
    *tls_versions.RULES,
)
