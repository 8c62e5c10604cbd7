"""Segregation of duties on AWS: nobody holds two duties of which one checks the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from falaj.policies.reading.iam import Document, Statement, covers, read
from falaj.policies.reading.types import aws_type
from falaj.policies.rules.zero_trust._aws_identities import (
    ATTACHMENTS,
    DOCUMENTS,
    POLICY,
    ROLE,
    USER,
    documents,
    grants_everything,
    hidden,
    holders,
    is_boundary,
)


@dataclass(frozen=True)
class Duty:
    """Actions by which a duty is known; any of them shows it."""

    name: str
    actions: tuple[str, ...]
    everywhere: bool = False
    """Whether only grants on every resource count."""


_KEYS: Final = Duty(
    "managing keys", ("kms:putkeypolicy", "kms:disablekey", "kms:schedulekeydeletion")
)
_USE: Final = Duty("using keys", ("kms:decrypt", "kms:generatedatakey", "kms:encrypt"))
_AUDIT: Final = Duty(
    "ending audit trails",
    ("cloudtrail:deletetrail", "cloudtrail:stoplogging", "cloudtrail:updatetrail",
     "guardduty:deletedetector", "config:stopconfigurationrecorder"),
)  # fmt: skip
_DEPLOY: Final = Duty(
    "deploying workloads",
    ("ecs:updateservice", "ecr:putimage", "lambda:updatefunctioncode", "ec2:runinstances",
     "cloudformation:createstack", "eks:updatenodegroupconfig"),
)  # fmt: skip
_IDENTITIES: Final = Duty(
    "managing identities",
    ("iam:createrole", "iam:putrolepolicy", "iam:attachrolepolicy", "iam:createuser"),
    everywhere=True,
)
#: Pairs of which the one is there to hold the other
#: (ISO/IEC 27001:2022 A.5.3; https://docs.aws.amazon.com/kms/latest/developerguide/iam-policies-best-practices.html).
_CONFLICTS: Final = ((_KEYS, _USE), (_AUDIT, _DEPLOY), (_IDENTITIES, _DEPLOY))


def _holds(duty: Duty, documents: Sequence[Document], denials: Sequence[Statement]) -> bool:
    for statement in (each for document in documents for each in document.allowing):
        # Who may do everything is a rule of its own.
        if grants_everything(statement) or (duty.everywhere and not statement.is_on_everything):
            continue
        for action in duty.actions:
            allowed = any(covers(given, action) for given in statement.actions)
            if allowed and not any(each.grants(action) for each in denials):
                return True
    return False


def _conflicts(found: Sequence[Document], bounds: Sequence[Document]) -> Iterator[str]:
    denials = [each for document in (*found, *bounds) for each in document.denying]
    for one, other in _CONFLICTS:
        if _holds(one, found, denials) and _holds(other, found, denials):
            yield f"{one.name} and {other.name} are in one hand; give each to a role of its own"


def _granted(holder: Resource, view: View) -> list[Document]:
    """All documents of an identity: inline, beside, and attached."""
    if view.stack is None:
        return []
    found = [each for _, each in documents(holder)] if holder.kind in DOCUMENTS else []
    inline = ((aws_type("iam/rolePolicy"), "role"), (aws_type("iam/userPolicy"), "user"))
    for kind, key in inline:
        for policy in view.stack.referring(holder, kind, key):
            found += [each for _, each in documents(policy)]
    attachments = [
        (each, path)
        for kind, path in ATTACHMENTS.items()
        for key in ("role", "roles", "user", "users", "roleName", "userName")
        if kind != ROLE
        for each in view.stack.referring(holder, kind, key)
    ]
    if holder.kind == ROLE:
        attachments.append((holder, ATTACHMENTS[ROLE]))
    for attachment, path in attachments:
        made = view.referred(attachment, path)
        found += [read(each.get("policy"), "policy") for each in made if each.kind == POLICY]
    return found


def _bounds(holder: Resource, view: View) -> list[Document]:
    made = view.referred(holder, "permissionsBoundary")
    return [read(each.get("policy"), "policy") for each in made if each.kind == POLICY]


@rule(
    "zero-trust-aws-conflicting-duties",
    "Nobody holds two duties of which one checks the other",
    Severity.HIGH,
    frozenset((*DOCUMENTS, USER)),
    ("iso27001:A.5.3", "uae-ia:T3.2.4", "uae-ia:T5.2.2", "nist-800-207:3"),
    "Give key administration, audit, identity management and deployment to roles of their own, "
    "or deny the other duty's actions in the role's policy or boundary.",
)
def conflicting_duties(resource: Resource, view: View) -> Iterator[Finding]:
    """Duties that meet in one policy, or in all policies of one role or user of the stack."""
    if resource.kind in {ROLE, USER}:
        if view.stack is None:
            yield indeterminate("", "which policies it holds, the whole stack says")
            return
        granted = _granted(resource, view)
        for document in granted:
            yield from hidden(document)
        for reason in _conflicts(granted, _bounds(resource, view)):
            yield violation("", reason)
        return
    for path, document in documents(resource):
        yield from hidden(document)
        for reason in _conflicts([document], []):
            if view.stack is None:
                yield indeterminate(path, f"{reason}; whether it is held so, the whole stack says")
            # A policy whose holder the stack shows is judged there, with all that it holds.
            elif not holders(resource, view) and not is_boundary(resource, view):
                yield violation(path, reason)
        unseen = any(not each.can_see("action", "effect") for each in document.allowing)
        if unseen and not holders(resource, view):
            yield indeterminate(path, "which duties it grants can't be known yet")


RULES: tuple[Rule, ...] = (conflicting_duties,)
