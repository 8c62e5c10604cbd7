"""Policies of identities on AWS: where they stand, who holds them, and what bounds the holder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    View,
    indeterminate,
    is_unknown,
    items,
    select,
    text,
)
from falaj.policies.reading.cidr import are_open
from falaj.policies.reading.iam import Condition, Document, Statement, is_any_resource, read
from falaj.policies.reading.types import aws, aws_type

POLICY: Final = aws_type("iam/policy")
ROLE: Final = aws_type("iam/role")
USER: Final = aws_type("iam/user")
GROUP: Final = aws_type("iam/group")
ROLE_POLICY: Final = aws_type("iam/rolePolicy")
#: Which property of a type holds documents that say what identities may do.
DOCUMENTS: Final[Mapping[str, str]] = {
    POLICY: "policy",
    ROLE_POLICY: "policy",
    aws_type("iam/userPolicy"): "policy",
    aws_type("iam/groupPolicy"): "policy",
    ROLE: "inlinePolicies.policy",
    aws_type("ssoadmin/permissionSetInlinePolicy"): "inlinePolicy",
    aws_type("eks/podIdentityAssociation"): "policy",
}
#: Which property attaches managed policies to identities.
ATTACHMENTS: Final[Mapping[str, str]] = {
    aws_type("iam/rolePolicyAttachment"): "policyArn",
    aws_type("iam/userPolicyAttachment"): "policyArn",
    aws_type("iam/groupPolicyAttachment"): "policyArn",
    aws_type("iam/policyAttachment"): "policyArn",
    aws_type("iam/rolePolicyAttachmentsExclusive"): "policyArns",
    aws_type("iam/userPolicyAttachmentsExclusive"): "policyArns",
    aws_type("iam/groupPolicyAttachmentsExclusive"): "policyArns",
    aws_type("ssoadmin/managedPolicyAttachment"): "managedPolicyArn",
    ROLE: "managedPolicyArns",
}
_HOLDERS: Final = aws("iam/role", "iam/user")


def documents(resource: Resource) -> Iterator[tuple[str, Document]]:
    """The documents of a resource, with their paths."""
    for path, value in select(resource.properties, DOCUMENTS[resource.kind]):
        yield path, read(value, path)


def hidden(document: Document) -> Iterator[Finding]:
    """A finding where a document can't be seen."""
    if document.hidden:
        yield indeterminate(document.hidden, f"what the policy grants: it {document.reason}")


def statements(resource: Resource) -> Iterator[Statement]:
    """The allowing statements of all documents of a resource."""
    for _, document in documents(resource):
        yield from document.allowing


def is_boundary(resource: Resource, view: View) -> bool:
    """Whether a managed policy is the boundary of some identity, and granted to none."""
    stack = view.stack
    if stack is None or resource.kind != POLICY:
        return False
    bounds = any(stack.referring(resource, kind, "permissionsBoundary") for kind in _HOLDERS)
    granted = any(stack.referring(resource, kind, path) for kind, path in ATTACHMENTS.items())
    return bounds and not granted


def holders(resource: Resource, view: View) -> list[Resource]:
    """The roles and users of the stack that a policy is given to."""
    stack = view.stack
    if stack is None:
        return []
    if resource.kind in _HOLDERS:
        return [resource]
    found = [
        each for key in ("role", "user") for each in _identities(view.referred(resource, key))
    ]
    if resource.kind == POLICY:
        for kind, path in ATTACHMENTS.items():
            for attachment in stack.referring(resource, kind, path):
                if attachment.kind in _HOLDERS:
                    found.append(attachment)
                for key in ("role", "roles", "user", "users", "roleName", "userName"):
                    found += _identities(view.referred(attachment, key))
    return list({each.urn: each for each in found}.values())


def _identities(found: list[Resource]) -> list[Resource]:
    return [each for each in found if each.kind in _HOLDERS]


def is_bounded(resource: Resource, view: View) -> bool:
    """Whether every holder of a policy has a boundary of its own that is one."""
    found = holders(resource, view)
    return bool(found) and all(_has_boundary(each, view) for each in found)


def _has_boundary(holder: Resource, view: View) -> bool:
    value = holder.get("permissionsBoundary")
    if value is ABSENT or text(value).startswith("arn:aws:iam::aws:policy/"):
        return False
    made = [each for each in view.referred(holder, "permissionsBoundary") if each.kind == POLICY]
    if not made:
        return not is_unknown(value)
    return not any(
        grants_everything(statement) and not any(read(each.get("policy")).denying)
        for each in made
        for statement in read(each.get("policy")).allowing
    )


def grants_everything(statement: Statement) -> bool:
    """Whether a statement allows every action."""
    return any(each in {"*", "*:*"} or not each.strip("*:?") for each in statement.actions)


#: Keys that every request meets, whatever it is about, or that its sender makes up.
_SAY_NOTHING: Final = frozenset((
    "aws:securetransport", "aws:useragent", "aws:referer", "s3:signatureversion", "s3:tlsversion",
))  # fmt: skip


def is_narrowed(statement: Statement) -> bool:
    """Whether a condition holds a grant back; one that all requests meet doesn't. Values that
    aren't known yet are somebody's, except for addresses, which may be the world."""
    return any(map(_narrows, statement.conditions))


def _narrows(condition: Condition) -> bool:
    if condition.key in _SAY_NOTHING:
        return False
    if condition.key.endswith("sourceip"):
        return not condition.is_unknown and not are_open(condition.values)
    return condition.is_unknown or any(value.strip("*?") for value in condition.values)


def wide_services(statement: Statement) -> list[str]:
    """Services all of whose actions a statement allows, on every resource."""
    if not any(is_any_resource(each) for each in statement.resources):
        return []
    found = [each.partition(":") for each in statement.actions]
    return sorted(
        {
            service
            for service, colon, action in found
            if colon and service.strip("*?") and action and not action.strip("*?")
        }
    )


def attached(resource: Resource) -> Iterator[tuple[str, object]]:
    """The managed policies that a resource attaches, with their paths."""
    path = ATTACHMENTS[resource.kind]
    for at, value in select(resource.properties, path):
        for each in items(value):
            yield at, each
