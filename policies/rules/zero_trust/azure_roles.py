"""Roles on Azure: no more than needed, no more widely than needed, no duties that conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.reading.azure_roles import (
    ASSIGNMENT,
    BROAD,
    DEFINITION,
    GRANTS,
    MANAGES_KEYS,
    USES_DATA,
    actions,
    by_principal,
    definitions,
    duties,
    is_whole,
    principal,
    role_of,
)
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T5.2.2", "iso27001:A.5.15", "iso27001:A.5.18", "iso27001:A.8.2",
                    "nist-800-207:3")  # fmt: skip


@rule(
    "zero-trust-azure-role-wildcards",
    "Roles name what they allow",
    Severity.HIGH,
    DEFINITION,
    _CONTROLS,
    "Name the operations that the duty needs. Reading settings (*/read) is fine.",
)
def role_wildcards(resource: Resource, view: View) -> Iterator[Finding]:
    """``*`` and its like, every operation that grants roles, every operation on data; and to make
    roles, which is to have all of them. What notActions takes away, another role gives."""
    for path, action in actions(resource):
        said = text(action).lower()
        if is_unknown(action):
            yield indeterminate(path, "what the role allows can't be seen")
        elif _is_wide(said, "dataActions" in path):
            yield violation(path, f"the role allows {text(action)}")


def _is_wide(action: str, data: bool) -> bool:
    if action.startswith("*"):
        return data or not action.endswith("/read")
    granting = action.startswith("microsoft.authorization/")
    if granting and ("elevateaccess" in action or action.endswith("roledefinitions/write")):
        return True
    return granting and "*" in action and not action.endswith("/read")


@rule(
    "zero-trust-azure-broad-assignment",
    "Nobody owns or administers a whole subscription all the time",
    Severity.HIGH,
    ASSIGNMENT,
    _CONTROLS,
    "Assign a narrower role, at the group or resource that needs it; make people eligible through "
    "Privileged Identity Management.",
)
def broad_assignment(resource: Resource, view: View) -> Iterator[Finding]:
    """Owner, Contributor and the two that grant roles, at a subscription or above."""
    role, scope = resource.get("roleDefinitionId"), resource.get("scope")
    name = BROAD.get(role_of(resource), "")
    if is_unknown(role):
        if (is_whole(scope) or is_unknown(scope)) and not definitions(resource, view):
            yield indeterminate("roleDefinitionId", "which role is assigned can't be seen")
    elif name and is_unknown(scope):
        if not view.referred(resource, "scope"):
            yield indeterminate("scope", f"where {name} is assigned can't be seen")
    elif name and is_whole(scope):
        yield violation("scope", f"{name} is assigned at {text(scope) or 'the tenant'}")


@rule(
    "zero-trust-azure-unconditional-grants",
    "Who may grant roles may grant named ones only",
    Severity.HIGH,
    ASSIGNMENT,
    (*_CONTROLS, "uae-ia:T3.2.4", "iso27001:A.5.3"),
    "Give the assignment a condition on the roles and principals that may be assigned "
    "(https://learn.microsoft.com/azure/role-based-access-control/delegate-role-assignments-portal).",
)
def unconditional_grants(resource: Resource, view: View) -> Iterator[Finding]:
    """Else he grants himself the rest. Roles of the stack's own are looked up."""
    condition = resource.get("condition")
    if text(condition):
        return
    found = duties(resource, view)
    if GRANTS in found:
        reason = "the role grants roles, and no condition says which"
        yield (indeterminate if is_unknown(condition) else violation)("condition", reason)
    elif view.stack is None and role_of(resource) not in BROAD:
        yield indeterminate("roleDefinitionId", "what the role allows isn't known yet")
    elif is_unknown(resource.get("roleDefinitionId")) and not definitions(resource, view):
        yield indeterminate("roleDefinitionId", "which role is assigned can't be seen")


_CONFLICTS: Final = (
    (MANAGES_KEYS, USES_DATA),
    (GRANTS, USES_DATA),
    (GRANTS, MANAGES_KEYS),
)


@rule(
    "zero-trust-azure-conflicting-duties",
    "Nobody holds two duties that conflict",
    Severity.HIGH,
    ASSIGNMENT,
    ("uae-ia:T3.2.4", "uae-ia:T5.2.2", "iso27001:A.5.3", "nist-800-207:6"),
    "Give the two duties to two identities: who manages keys doesn't use them, and who grants "
    "roles does neither.",
)
def conflicting_duties(resource: Resource, view: View) -> Iterator[Finding]:
    """Managing keys, using keys or data, granting roles without a condition: of one principal, in
    the whole stack. Reported at the assignment of the first of the two."""
    if view.stack is None:
        yield indeterminate("principalId", "what else the principal may do isn't known yet")
        return
    mine, who = _held(resource, view), principal(resource, view.stack)
    if not mine or not who:
        return
    for each in by_principal(view.stack).get(who, []):
        held = _held(each, view)
        for first, second in _CONFLICTS:
            if first in mine and second in held:
                reason = f"one principal {first} and {second} ({each.name})"
                yield violation("principalId", reason)


def _held(assignment: Resource, view: View) -> set[str]:
    found = duties(assignment, view)
    return found - {GRANTS} if text(assignment.get("condition")) else found


_FEDERATED: Final = azure("managedidentity:FederatedIdentityCredential")
_GITHUB: Final = "token.actions.githubusercontent.com"
_AUDIENCE: Final = "api://azureadtokenexchange"


@rule(
    "zero-trust-azure-federated-subject",
    "Identities are lent to one named workload",
    Severity.HIGH,
    _FEDERATED,
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Name the service account, or the repository with its environment or branch, and the audience "
    "api://AzureADTokenExchange.",
)
def federated_subject(resource: Resource, view: View) -> Iterator[Finding]:
    """Any pull request, the default service account of a namespace, patterns, plain HTTP."""
    issuer, subject = resource.get("issuer"), resource.get("subject")
    given = text(subject)
    if is_unknown(subject):
        yield indeterminate("subject", "whom the identity is lent to can't be seen")
    elif "*" in given or subject is ABSENT or not given:
        yield violation("subject", f"it is {given or 'not given'}, which names nobody")
    elif given.startswith("system:serviceaccount:") and given.endswith(":default"):
        yield violation("subject", "every pod that names no account is the default one")
    elif _GITHUB in text(issuer) and not _is_pinned(given):
        yield violation("subject", f"{given} is more than one branch or environment")
    if text(issuer) and not text(issuer).lower().startswith("https://"):
        yield violation("issuer", "tokens of an issuer without HTTPS are anybody's")
    for index, each in enumerate(items(resource.get("audiences"))):
        if is_unknown(each):
            yield indeterminate(f"audiences[{index}]", "whose tokens are taken can't be seen")
        elif text(each) and not text(each).lower().startswith(_AUDIENCE):
            reason = f"tokens for {text(each)} are taken, which were not made for Azure"
            yield violation(f"audiences[{index}]", reason)


def _is_pinned(subject: str) -> bool:
    parts = subject.split(":")
    return len(parts) >= 4 and parts[0] == "repo" and parts[2] in {"ref", "environment"}


RULES: tuple[Rule, ...] = (
    role_wildcards,
    broad_assignment,
    unconditional_grants,
    conflicting_duties,
    federated_subject,
)
