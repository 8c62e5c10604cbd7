"""Who may become a role: named principals, and those that conditions make known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    rule,
    violation,
)
from falaj.policies.reading.iam import Condition, Statement, read
from falaj.policies.reading.principals import account_of, is_account, is_pinning, open_statements
from falaj.policies.reading.types import aws

_ROLES: Final = aws("iam/role")
_PATH: Final = "assumeRolePolicy"
_CONTROLS: Final = ("iso27001:A.5.15", "iso27001:A.5.16", "uae-ia:T5.2.2", "nist-800-207:6")
_POSITIVE: Final = frozenset((
    "stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike",
))  # fmt: skip
#: What subjects of GitHub, GitLab and HCP Terraform begin with, before the owner
#: (https://docs.gitlab.com/ci/cloud_services/,
#: https://developer.hashicorp.com/terraform/cloud-docs/workspaces/dynamic-provider-credentials).
_OWNED: Final = frozenset(("repo", "project_path", "organization"))
#: Providers that everybody may sign in to: there the application's id says whose sign-in it is
#: (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_iam-condition-keys.html).
_BY_APPLICATION: Final = (
    "cognito-identity.amazonaws.com", "accounts.google.com", "graph.facebook.com",
    "www.amazon.com",
)  # fmt: skip


def _statements(resource: Resource) -> Iterator[Statement | Finding]:
    document = read(resource.get(_PATH), _PATH)
    if document.hidden:
        yield indeterminate(document.hidden, f"who may take the role: it {document.reason}")
    yield from document.allowing


@rule(
    "zero-trust-aws-trust-anybody",
    "Nobody takes a role who isn't named",
    Severity.CRITICAL,
    _ROLES,
    _CONTROLS,
    "Name the principals, or add aws:PrincipalOrgID or aws:PrincipalArn as a condition.",
)
def trust_anybody(resource: Resource, view: View) -> Iterator[Finding]:
    """Trust policies whose principal is everybody."""
    document = read(resource.get(_PATH), _PATH)
    if document.hidden:
        yield indeterminate(document.hidden, f"who may take the role: it {document.reason}")
    for statement, is_certain in open_statements(document):
        if is_certain:
            yield violation(
                statement.path, f"{statement.label} lets anybody take the role; name who may"
            )
        elif not _is_own(statement, resource, view):
            yield indeterminate(
                statement.path, f"who may take the role by {statement.label} can't be known yet"
            )


def _is_own(statement: Statement, resource: Resource, view: View) -> bool:
    """Whether an unknown principal is a resource of the stack, which is never everybody."""
    return "*" not in statement.unknown and bool(view.referred(resource, _PATH))


@rule(
    "zero-trust-aws-trust-account",
    "A whole account takes a role only under a condition",
    Severity.MEDIUM,
    _ROLES,
    _CONTROLS,
    "Name the roles of the account that may take this one. For a partner's account demand an "
    "external id (sts:ExternalId); for people a second factor (aws:MultiFactorAuthPresent).",
)
def trust_account(resource: Resource, view: View) -> Iterator[Finding]:
    """Accounts as principals: whoever administers them chooses who takes the role."""
    for statement in _statements(resource):
        if isinstance(statement, Finding):
            yield statement
            continue
        known = [_is_condition_on_callers(each) for each in statement.conditions]
        if True in known:
            continue
        accounts = [
            who
            for kind, who in statement.principals
            if kind == "AWS"
            and is_account(who)
            and account_of(who) not in view.settings.allowed_accounts
        ]
        if accounts and None not in known and statement.can_see("condition"):
            yield violation(
                statement.path,
                f"everybody to whom account {account_of(accounts[0])} grants it may take the "
                "role; it needs named roles or a condition",
            )
        elif accounts or (
            not statement.can_see("principal") and not _is_own(statement, resource, view)
        ):
            yield indeterminate(
                statement.path, f"who may take the role by {statement.label} can't be known yet"
            )


def _is_condition_on_callers(condition: Condition) -> bool | None:
    if condition.key == "sts:externalid" and condition.operator in _POSITIVE:
        return None if condition.is_unknown else any(v.strip("*?") for v in condition.values)
    if condition.key == "aws:multifactorauthpresent" and condition.operator == "bool":
        return None if condition.is_unknown else condition.values == ("true",)
    if condition.key == "aws:multifactorauthage" and condition.operator.startswith("numericless"):
        return not condition.is_unknown or None
    return is_pinning(condition, among=True)


@rule(
    "zero-trust-aws-trust-federated",
    "Federated sign-ins say whose they are",
    Severity.HIGH,
    _ROLES,
    _CONTROLS,
    "Add a condition on the token's subject (PROVIDER:sub), such as one repository's branch or "
    "one service account, and on its audience (PROVIDER:aud); for SAML on SAML:aud.",
)
def trust_federated(resource: Resource, view: View) -> Iterator[Finding]:
    """Roles for tokens: without a subject every user of the provider takes the role."""
    for statement in _statements(resource):
        if isinstance(statement, Finding):
            yield statement
            continue
        wanted = _wanted(statement)
        if not wanted:
            continue
        found = [_pins(each, wanted) for each in statement.conditions]
        if True in found:
            continue
        if None in found or not statement.can_see("condition", "action", "notaction"):
            yield indeterminate(
                statement.path, f"the conditions of {statement.label} can't be known yet"
            )
        else:
            said = " or ".join(each.strip(":") for each in wanted)
            yield violation(
                statement.path,
                f"{statement.label} lets every user of the provider take the role; it needs a "
                f"condition on {said} that isn't for everybody",
            )


def _wanted(statement: Statement) -> tuple[str, ...]:
    """Ends of the condition keys of which one has to be there; none where it isn't federated."""
    federated = [who for kind, who in statement.principals if kind == "Federated"]
    if not federated and statement.can_see("principal"):
        return ()
    by_saml = not federated and statement.grants("sts:assumerolewithsaml")
    if by_saml or any(":saml-provider/" in who for who in federated):
        return ("saml:",)
    if statement.can_see("action") and not statement.grants("sts:assumerolewithwebidentity"):
        return ()
    if federated and all(who in _BY_APPLICATION for who in federated):
        return (":aud", ":sub", ":app_id", ":amr")
    return (":sub",)


def _pins(condition: Condition, wanted: tuple[str, ...]) -> bool | None:
    if condition.operator.removeprefix("foranyvalue:") not in _POSITIVE:
        return False
    if not any(condition.key.endswith(e) or condition.key.startswith(e) for e in wanted):
        return False
    if any(_is_everybody(each) for each in condition.values):
        return False
    return None if condition.is_unknown else bool(condition.values)


def _is_everybody(value: str) -> bool:
    """Whether a subject is any: ``*``, ``repo:*``, ``project_path:*/*``,
    ``system:serviceaccount:*``."""
    kind, _, rest = value.partition(":")
    if value.startswith("system:serviceaccount:"):
        return not rest.partition(":")[2].strip("*?:/")
    if kind in _OWNED:
        # The owner has to be named: anybody may make a repository of any name.
        owner = re.split(r"[/:]", rest, maxsplit=1)[0]
        return "*" in owner or not owner.strip("?")
    return not value.strip("*?:/")


RULES: tuple[Rule, ...] = (trust_anybody, trust_account, trust_federated)
