"""Resources, rules and findings: what every rule is written with."""

from __future__ import annotations

from falaj.policies.model.context import Context
from falaj.policies.model.errors import PolicyError
from falaj.policies.model.finding import Finding, FindingKind, Severity, indeterminate, violation
from falaj.policies.model.requirement import (
    Requirement,
    Requirements,
    by_type,
    check_of,
    requirement_rule,
    unmet,
)
from falaj.policies.model.resource import Options, Provider, Resource, Stack, kind_of
from falaj.policies.model.rule import EVERY, PACKS, Check, Rule, rule
from falaj.policies.model.settings import Settings, read_settings
from falaj.policies.model.values import (
    ABSENT,
    REDACTED,
    UNKNOWN,
    Path,
    format_path,
    format_value,
    get,
    holds_unknown,
    is_false,
    is_list,
    is_true,
    is_unknown,
    items,
    leaves,
    number,
    scalar,
    select,
    text,
)

__all__ = [
    "ABSENT",
    "EVERY",
    "PACKS",
    "REDACTED",
    "UNKNOWN",
    "Check",
    "Context",
    "Finding",
    "FindingKind",
    "Options",
    "Path",
    "PolicyError",
    "Provider",
    "Requirement",
    "Requirements",
    "Resource",
    "Rule",
    "Settings",
    "Severity",
    "Stack",
    "by_type",
    "check_of",
    "format_path",
    "format_value",
    "get",
    "holds_unknown",
    "indeterminate",
    "is_false",
    "is_list",
    "is_true",
    "is_unknown",
    "items",
    "kind_of",
    "leaves",
    "number",
    "read_settings",
    "requirement_rule",
    "rule",
    "scalar",
    "select",
    "text",
    "unmet",
    "violation",
]
