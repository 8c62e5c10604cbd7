"""Grants on AWS: actions by name, on resources by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from falaj.policies.reading.iam import Condition, Statement, covers
from falaj.policies.rules.zero_trust._aws_identities import (
    DOCUMENTS,
    POLICY,
    documents,
    grants_everything,
    hidden,
    is_boundary,
    is_bounded,
    is_narrowed,
    wide_services,
)

_TYPES: Final = frozenset(DOCUMENTS)
_CONTROLS: Final = (
    "cis-aws:2.14", "iso27001:A.5.15", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:3",
)  # fmt: skip
#: Whole services that let their holder become anybody, or read anything.
_NEVER_WHOLE: Final = frozenset(("iam", "sts", "kms", "organizations", "sso", "account"))
#: Actions that read or change data and secrets; on everything they know no need
#: (https://docs.aws.amazon.com/service-authorization/latest/reference/).
_DATA_ACTIONS: Final = (
    "s3:getobject", "s3:putobject", "s3:deleteobject", "s3:putbucketpolicy", "s3:putbucketacl",
    "secretsmanager:getsecretvalue", "ssm:getparameter", "ssm:getparameters",
    "ssm:getparametersbypath", "kms:decrypt", "kms:reencryptfrom", "dynamodb:getitem",
    "dynamodb:scan", "dynamodb:query", "dynamodb:putitem", "dynamodb:deleteitem",
    "sts:assumerole", "lambda:invokefunction", "sqs:receivemessage", "rds-db:connect",
)  # fmt: skip
#: What all of a service's resources look like, after the account.
_ALL_OF_SERVICE: Final = re.compile(r"\*|\*/\*|(key|secret|parameter|table|role|function)[:/]\*")
_Judge = Callable[[Statement], str]


def _judge(
    resource: Resource,
    view: View,
    what: _Judge,
    *,
    bounds_help: bool = False,
    conditions_help: bool = False,
) -> Iterator[Finding]:
    """Findings for statements that a judge objects to (it returns the reason)."""
    needed = ("action", "notaction", "effect", *(["condition"] if conditions_help else []))
    for _, document in documents(resource):
        yield from hidden(document)
        for statement in document.allowing:
            if not (reason := what(statement)):
                continue
            if not statement.can_see(*needed) or (
                _resources_unseen(statement) and not view.referred(resource, statement.path)
            ):
                yield indeterminate(statement.path, f"parts can't be known yet; {reason}")
            elif _resources_unseen(statement) and not what(_with_resources(statement)):
                continue
            elif view.stack is None and (resource.kind == POLICY or bounds_help):
                yield indeterminate(
                    statement.path, f"{reason}; whether a boundary holds it, the whole stack says"
                )
            elif not (is_boundary(resource, view) and any(document.denying)) and not (
                bounds_help and is_bounded(resource, view)
            ):
                yield violation(statement.path, reason)


def _with_resources(statement: Statement) -> Statement:
    """The statement where its unknown resources are some of the stack, none of them ``*``."""
    return replace(statement, unknown=statement.unknown - {"resource", "notresource"})


def _resources_unseen(statement: Statement) -> bool:
    return not statement.can_see("resource", "notresource")


def _is_on_all(statement: Statement) -> bool:
    """Whether it may be about every resource of a service."""
    return (
        _resources_unseen(statement)
        or statement.is_on_everything
        or any(
            len(parts) == 6 and _ALL_OF_SERVICE.fullmatch(parts[5]) is not None
            for parts in (each.split(":", 5) for each in statement.resources)
        )
    )


@rule(
    "zero-trust-aws-iam-every-action",
    "No policy allows every action",
    Severity.CRITICAL,
    _TYPES,
    _CONTROLS,
    "Name the actions that the identity needs.",
)
def every_action(resource: Resource, view: View) -> Iterator[Finding]:
    """Statements with the action ``*``."""

    def everything(statement: Statement) -> str:
        if grants_everything(statement) or not statement.can_see("action"):
            return f"{statement.label} allows every action; actions have to be named"
        return ""

    yield from _judge(resource, view, everything)


@rule(
    "zero-trust-aws-iam-all-but",
    "No policy allows all but something",
    Severity.HIGH,
    _TYPES,
    _CONTROLS,
    "Name what is allowed with Action and Resource; use NotAction and NotResource to deny only.",
)
def all_but(resource: Resource, view: View) -> Iterator[Finding]:
    """``NotAction`` and ``NotResource`` that allow: whatever a cloud adds is allowed as well."""

    def excepting(statement: Statement) -> str:
        for key, found in (
            ("NotAction", statement.not_actions or not statement.can_see("notaction")),
            ("NotResource", statement.not_resources or not statement.can_see("notresource")),
        ):
            if found:
                return f"{statement.label} allows all but something ({key}); name what is allowed"
        return ""

    yield from _judge(resource, view, excepting)


@rule(
    "zero-trust-aws-iam-whole-service",
    "No policy allows all of a service on every resource",
    Severity.MEDIUM,
    _TYPES,
    _CONTROLS,
    "Name the actions or the resources. Where an identity makes infrastructure, give it a "
    "permissions boundary that says what it may never do; IAM, STS, KMS and Organizations have "
    "to be named all the same.",
)
def whole_service(resource: Resource, view: View) -> Iterator[Finding]:
    """``service:*`` on ``*``; within a boundary for services that make infrastructure only."""

    def sensitive(statement: Statement) -> str:
        found = [each for each in wide_services(statement) if each in _NEVER_WHOLE]
        return _whole(statement, found)

    def others(statement: Statement) -> str:
        found = [each for each in wide_services(statement) if each not in _NEVER_WHOLE]
        return _whole(statement, found)

    def unseen(statement: Statement) -> str:
        whole = any(each.endswith(":*") for each in statement.actions)
        if not statement.can_see("action") or (whole and _resources_unseen(statement)):
            return "no service may be allowed as a whole on every resource"
        return ""

    yield from _judge(resource, view, sensitive)
    yield from _judge(resource, view, others, bounds_help=True)
    yield from _judge(resource, view, unseen)


def _whole(statement: Statement, services: list[str]) -> str:
    if not services:
        return ""
    said = ", ".join(services[:4]) + (" and more" if len(services) > 4 else "")
    return f"{statement.label} allows all of {said} on every resource; name actions or resources"


@rule(
    "zero-trust-aws-iam-data-on-everything",
    "No policy reads or changes everybody's data",
    Severity.MEDIUM,
    _TYPES,
    _CONTROLS,
    "Name the buckets, tables, secrets, keys or roles that the identity needs.",
)
def data_on_everything(resource: Resource, view: View) -> Iterator[Finding]:
    """Actions on data, secrets and roles, on every resource and without a condition."""

    def data(statement: Statement) -> str:
        if grants_everything(statement) or is_narrowed(statement) or not _is_on_all(statement):
            return ""
        services = wide_services(statement)
        found = [
            each
            for each in _DATA_ACTIONS
            if each.partition(":")[0] not in services
            and any(covers(given, each) for given in statement.actions)
        ]
        if not found and statement.can_see("action"):
            return ""
        said = found[0] if found else "an action on data"
        return f"{statement.label} allows {said} on every resource; name the resources"

    yield from _judge(resource, view, data, bounds_help=True, conditions_help=True)


@rule(
    "zero-trust-aws-iam-pass-role",
    "Roles are passed by name, or to a named service",
    Severity.HIGH,
    _TYPES,
    _CONTROLS,
    "Name the roles that may be passed, and the service with iam:PassedToService.",
)
def pass_role(resource: Resource, view: View) -> Iterator[Finding]:
    """``iam:PassRole`` on every role: its holder gets what any role may do."""

    def passing(statement: Statement) -> str:
        if grants_everything(statement) or "iam" in wide_services(statement):
            return ""
        pinned = any(map(_names_receiver, statement.conditions))
        may = statement.grants("iam:passrole") or not statement.can_see("action")
        if not may or pinned or not _is_on_all(statement):
            return ""
        return f"{statement.label} passes every role; name the roles"

    yield from _judge(resource, view, passing, conditions_help=True)


def _names_receiver(condition: Condition) -> bool:
    """Whether it says which service, or which resource, gets the role."""
    return (
        condition.key in {"iam:passedtoservice", "iam:associatedresourcearn"}
        and condition.operator.removeprefix("foranyvalue:") in _EQUAL
        and not condition.is_unknown
        and not any(each.strip("*?") in {"", ".amazonaws.com"} for each in condition.values)
    )


_EQUAL: Final = frozenset((
    "stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike",
))  # fmt: skip
#: Actions by which an identity gives itself more, where they are about everybody
#: (https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html#bp-boundaries).
_ESCALATING: Final = (
    "iam:addusertogroup", "iam:attachgrouppolicy", "iam:attachrolepolicy",
    "iam:attachuserpolicy", "iam:createaccesskey", "iam:createloginprofile",
    "iam:createpolicyversion", "iam:deleterolepermissionsboundary",
    "iam:deleteuserpermissionsboundary", "iam:putgrouppolicy", "iam:putrolepolicy",
    "iam:putuserpolicy", "iam:setdefaultpolicyversion", "iam:updateassumerolepolicy",
    "iam:updateloginprofile", "lambda:updatefunctioncode", "glue:updatedevendpoint",
    "ssm:sendcommand",
)  # fmt: skip


@rule(
    "zero-trust-aws-iam-escalation",
    "No policy lets its holder give itself more",
    Severity.HIGH,
    _TYPES,
    _CONTROLS,
    "Name the identities that may be changed, and demand a boundary with "
    "iam:PermissionsBoundary; leave access keys and passwords to a directory.",
)
def escalation(resource: Resource, view: View) -> Iterator[Finding]:
    """Changes of identities and code on every resource, without a condition."""

    def escalating(statement: Statement) -> str:
        if grants_everything(statement) or "iam" in wide_services(statement):
            return ""
        if is_narrowed(statement) or not _is_on_all(statement):
            return ""
        found = [
            each
            for each in _ESCALATING
            if each.partition(":")[0] not in wide_services(statement)
            and any(covers(given, each) for given in statement.actions)
        ]
        if not found and statement.can_see("action"):
            return ""
        said = found[0] if found else "an action that changes identities"
        return f"{statement.label} allows {said} on every resource, by which its holder gets more"

    yield from _judge(resource, view, escalating, conditions_help=True)


RULES: tuple[Rule, ...] = (
    every_action, all_but, whole_service, data_on_everything, pass_role, escalation,
)  # fmt: skip
