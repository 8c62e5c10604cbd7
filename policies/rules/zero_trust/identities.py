"""Identities: no administrators by attachment, no lasting credentials, separate duties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.azure_roles import BUILT_IN_ROLES
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    Stack,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.addresses import are_open
from falaj.policies.reading.iam import (
    Condition,
    Document,
    Statement,
    covers,
    is_any_resource,
    read,
)
from falaj.policies.reading.types import aws, aws_type, azure

# Policies of identities on AWS: where they stand, who holds them, and what bounds the holder.

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


def is_boundary(resource: Resource, context: Context) -> bool:
    """Whether a managed policy is the boundary of some identity, and granted to none."""
    stack = context.stack
    if stack is None or resource.kind != POLICY:
        return False
    bounds = any(stack.referring(resource, kind, "permissionsBoundary") for kind in _HOLDERS)
    granted = any(stack.referring(resource, kind, path) for kind, path in ATTACHMENTS.items())
    return bounds and not granted


def holders(resource: Resource, context: Context) -> list[Resource]:
    """The roles and users of the stack that a policy is given to."""
    stack = context.stack
    if stack is None:
        return []
    if resource.kind in _HOLDERS:
        return [resource]
    found = [
        each for key in ("role", "user") for each in _identities(context.referred(resource, key))
    ]
    if resource.kind == POLICY:
        for kind, path in ATTACHMENTS.items():
            for attachment in stack.referring(resource, kind, path):
                if attachment.kind in _HOLDERS:
                    found.append(attachment)
                for key in ("role", "roles", "user", "users", "roleName", "userName"):
                    found += _identities(context.referred(attachment, key))
    return list({each.urn: each for each in found}.values())


def _identities(found: list[Resource]) -> list[Resource]:
    return [each for each in found if each.kind in _HOLDERS]


def is_bounded(resource: Resource, context: Context) -> bool:
    """Whether every holder of a policy has a boundary of its own that is one."""
    found = holders(resource, context)
    return bool(found) and all(_has_boundary(each, context) for each in found)


def _has_boundary(holder: Resource, context: Context) -> bool:
    value = holder.get("permissionsBoundary")
    if value is ABSENT or text(value).startswith("arn:aws:iam::aws:policy/"):
        return False
    made = [
        each for each in context.referred(holder, "permissionsBoundary") if each.kind == POLICY
    ]
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


# Identities on AWS: no administrators by attachment, no lasting credentials, no local users.

_AWS_CONTROLS: Final = ("iso27001:A.8.2", "iso27001:A.5.15", "uae-ia:T5.2.2", "nist-800-207:3")
#: Policies of AWS that let their holder do everything, or become anybody
#: (https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html).
_ADMINISTRATION: Final = frozenset((
    "AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AdministratorAccess-Amplify",
    "AdministratorAccess-AWSElasticBeanstalk", "SystemAdministrator", "DatabaseAdministrator",
    "NetworkAdministrator", "AWSOrganizationsFullAccess",
))  # fmt: skip
_FULL: Final = "FullAccess"


def _managed(value: object) -> str:
    """The name of a policy that AWS manages, empty for others."""
    given = text(value)
    prefix, _, path = given.partition(":policy/")
    return path.rpartition("/")[2] if prefix.endswith(":iam::aws") else ""


def _unseen(resource: Resource, context: Context, path: str, value: object) -> bool:
    """Whether nobody can say which policy it is: not even one of the stack."""
    made = context.referred(resource, path)
    return is_unknown(value) and not any(each.kind == POLICY for each in made)


@rule(
    "zero-trust-aws-administrator-attached",
    "Nobody is made administrator by AWS's ready-made policies",
    Severity.CRITICAL,
    frozenset(ATTACHMENTS),
    ("cis-aws:2.14", *_AWS_CONTROLS),
    "Attach a policy of your own that names the actions of this duty, within a permissions "
    "boundary.",
)
def administrator_attached(resource: Resource, context: Context) -> Iterator[Finding]:
    """Attachments of policies that allow everything, or the management of identities."""
    for path, value in attached(resource):
        name = _managed(value)
        if name in _ADMINISTRATION:
            yield violation(path, f"{name} allows too much; name the actions of the duty")
        elif _unseen(resource, context, path, value):
            yield indeterminate(path, "which policy is attached can't be known yet")


@rule(
    "zero-trust-aws-full-access-attached",
    "Nobody has all of a service by AWS's ready-made policies",
    Severity.MEDIUM,
    frozenset(ATTACHMENTS),
    _AWS_CONTROLS,
    "Attach a policy of your own that names the actions and resources that are needed.",
)
def full_access_attached(resource: Resource, context: Context) -> Iterator[Finding]:
    """Attachments of policies named ``…FullAccess``, which are about all resources."""
    for path, value in attached(resource):
        name = _managed(value)
        if _FULL in name and name not in _ADMINISTRATION:
            yield violation(path, f"{name} allows all of a service on every resource")
        elif _unseen(resource, context, path, value):
            yield indeterminate(path, "which policy is attached can't be known yet")


@rule(
    "zero-trust-aws-user-grant",
    "Users hold nothing by themselves",
    Severity.LOW,
    aws("iam/userPolicy", "iam/userPolicyAttachment", "iam/policyAttachment",
        "iam/userPolicyAttachmentsExclusive"),
    _AWS_CONTROLS,
    "Grant to roles that people take for a session, or at least to groups.",
)  # fmt: skip
def user_grant(resource: Resource, context: Context) -> Iterator[Finding]:
    """Policies that are given to single users."""
    if resource.kind == aws_type("iam/policyAttachment"):
        users = resource.get("users")
        if users is not ABSENT and (is_unknown(users) or items(users)):
            yield violation("users", "the policy is given to users; give it to roles")
    elif resource.kind == aws_type("iam/userPolicyAttachmentsExclusive"):
        policies = resource.get("policyArns")
        if policies is not ABSENT and (is_unknown(policies) or items(policies)):
            yield violation("policyArns", "policies are given to a user; give them to roles")
    else:
        yield violation("", "the policy is given to a user; give it to a role")


@rule(
    "zero-trust-aws-lasting-credential",
    "There are no credentials that last",
    Severity.HIGH,
    aws("iam/accessKey", "iam/userLoginProfile", "iam/sshKey", "iam/serviceSpecificCredential",
        "iam/signingCertificate"),
    ("iso27001:A.5.16", "iso27001:A.8.5", "uae-ia:T5.2.2", "nist-800-207:6"),
    "Use roles: of instances, pods and functions for workloads, by federation for CI, and by "
    "IAM Identity Center for people.",
)  # fmt: skip
def lasting_credential(resource: Resource, context: Context) -> Iterator[Finding]:
    """Keys and passwords of users, unless they are switched off."""
    status = resource.get("status")
    if is_unknown(status):
        yield indeterminate("status", "whether it is in use can't be known yet")
    elif text(status).lower() != "inactive":
        kind = resource.kind.rpartition(":")[2]
        path = "status" * (status is not ABSENT)
        yield violation(path, f"a credential that lasts ({kind}); sessions of roles are allowed")


@rule(
    "zero-trust-aws-local-user",
    "Local users stay within a boundary",
    Severity.LOW,
    {USER},
    ("iso27001:A.5.16", "uae-ia:T5.2.2", "nist-800-207:6"),
    "Let people sign in by IAM Identity Center or another directory. Where a user has to be, "
    "give it a permissionsBoundary.",
)
def local_user(resource: Resource, context: Context) -> Iterator[Finding]:
    """Users of IAM, whom no directory removes when they leave."""
    if resource.get("permissionsBoundary") is ABSENT:
        yield violation(
            "permissionsBoundary",
            "a local user without a boundary; people sign in by a directory, or have a boundary",
        )


#: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_passwords_account-policy.html
_PASSWORDS: Final[Requirements] = {
    aws("iam/accountPasswordPolicy"): (
        Requirement("minimumPasswordLength", minimum=14, absent="the default is 6"),
        Requirement(
            "passwordReusePrevention",
            minimum=24,
            hint="it has to be 24",
            absent="old passwords may be used again by default",
        ),
        # Without days, or with 0, they never expire.
        Requirement(
            "maxPasswordAge",
            minimum=1,
            maximum=90,
            hint="it has to be 90 days or less",
            absent="passwords never expire by default",
        ),
        *(
            Requirement(
                each, allowed=("true",), absent="it is off by default", hint="it has to be true"
            )
            for each in (
                "requireLowercaseCharacters",
                "requireUppercaseCharacters",
                "requireNumbers",
                "requireSymbols",
            )
        ),
    )
}

password_policy: Final = requirement_rule(
    "zero-trust-aws-password-policy",
    "Passwords of local users are long and aren't used again",
    Severity.LOW,
    _PASSWORDS,
    ("iso27001:A.8.5", "uae-ia:T5.2.3"),
    "Set minimumPasswordLength 14, passwordReusePrevention 24, maxPasswordAge 90, "
    "and demand all four kinds of characters.",
)

#: Switches of data stores that make callers sign in with roles instead of passwords.
_DATABASES: Final = aws("rds/instance", "rds/cluster", "neptune/cluster")
_WITH_IAM: Final = ("mysql", "mariadb", "postgres", "aurora")


@rule(
    "zero-trust-aws-database-sign-in",
    "Databases let callers in by roles",
    Severity.LOW,
    _DATABASES,
    ("iso27001:A.8.5", "uae-ia:T5.2.2", "nist-800-207:6"),
    "Set iamDatabaseAuthenticationEnabled to true.",
)
def database_sign_in(resource: Resource, context: Context) -> Iterator[Finding]:
    """Engines that can, and don't: passwords are all that is left."""
    engine = text(resource.get("engine")).lower()
    neptune = resource.kind == aws_type("neptune/cluster")
    # Copies take the setting from their source.
    copies = ("replicateSourceDb", "replicationSourceIdentifier")
    if any(resource.get(each) is not ABSENT for each in copies):
        return
    if not neptune and engine and not engine.startswith(_WITH_IAM):
        return
    path = "iamDatabaseAuthenticationEnabled"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "its value can't be known yet; it has to be true")
    elif not is_true(value):
        state = "is off" if is_false(value) else "is off by default"
        yield violation(path, f"signing in by roles {state}; it has to be on")


# Segregation of duties on AWS: nobody holds two duties of which one checks the other.


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
_AWS_CONFLICTS: Final = ((_KEYS, _USE), (_AUDIT, _DEPLOY), (_IDENTITIES, _DEPLOY))


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
    for one, other in _AWS_CONFLICTS:
        if _holds(one, found, denials) and _holds(other, found, denials):
            yield f"{one.name} and {other.name} are in one hand; give each to a role of its own"


def _granted(holder: Resource, context: Context) -> list[Document]:
    """All documents of an identity: inline, beside, and attached."""
    if context.stack is None:
        return []
    found = [each for _, each in documents(holder)] if holder.kind in DOCUMENTS else []
    inline = ((aws_type("iam/rolePolicy"), "role"), (aws_type("iam/userPolicy"), "user"))
    for kind, key in inline:
        for policy in context.stack.referring(holder, kind, key):
            found += [each for _, each in documents(policy)]
    attachments = [
        (each, path)
        for kind, path in ATTACHMENTS.items()
        for key in ("role", "roles", "user", "users", "roleName", "userName")
        if kind != ROLE
        for each in context.stack.referring(holder, kind, key)
    ]
    if holder.kind == ROLE:
        attachments.append((holder, ATTACHMENTS[ROLE]))
    for attachment, path in attachments:
        made = context.referred(attachment, path)
        found += [read(each.get("policy"), "policy") for each in made if each.kind == POLICY]
    return found


def _bounds(holder: Resource, context: Context) -> list[Document]:
    made = context.referred(holder, "permissionsBoundary")
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
def aws_conflicting_duties(resource: Resource, context: Context) -> Iterator[Finding]:
    """Duties that meet in one policy, or in all policies of one role or user of the stack."""
    if resource.kind in {ROLE, USER}:
        if context.stack is None:
            yield indeterminate("", "which policies it holds, the whole stack says")
            return
        granted = _granted(resource, context)
        for document in granted:
            yield from hidden(document)
        for reason in _conflicts(granted, _bounds(resource, context)):
            yield violation("", reason)
        return
    for path, document in documents(resource):
        yield from hidden(document)
        for reason in _conflicts([document], []):
            if context.stack is None:
                yield indeterminate(path, f"{reason}; whether it is held so, the whole stack says")
            # A policy whose holder the stack shows is judged there, with all that it holds.
            elif not holders(resource, context) and not is_boundary(resource, context):
                yield violation(path, reason)
        unseen = any(not each.can_see("action", "effect") for each in document.allowing)
        if unseen and not holders(resource, context):
            yield indeterminate(path, "which duties it grants can't be known yet")


# Azure's roles: which of them grant roles, manage keys or use data.

DEFINITION: Final = azure("authorization:RoleDefinition")
ASSIGNMENT: Final = azure("authorization:RoleAssignment")

#: Built-in roles that may do nearly everything, or grant it, by their ids.
BROAD: Final = {
    BUILT_IN_ROLES[name]: name
    for name in (
        "Owner", "Contributor", "User Access Administrator",
        "Role Based Access Control Administrator",
    )
}  # fmt: skip
GRANTS: Final = "grants roles"
MANAGES_KEYS: Final = "manages keys"
USES_DATA: Final = "uses keys or data"
_DUTIES: Final = {
    BUILT_IN_ROLES[name]: duty
    for name, duty in {
        "Owner": GRANTS,
        "User Access Administrator": GRANTS,
        "Role Based Access Control Administrator": GRANTS,
        "Key Vault Administrator": MANAGES_KEYS,
        "Key Vault Crypto Officer": MANAGES_KEYS,
        "Key Vault Crypto User": USES_DATA,
        "Key Vault Crypto Service Encryption User": USES_DATA,
        "Key Vault Secrets User": USES_DATA,
        "Storage Blob Data Owner": USES_DATA,
        "Storage Blob Data Contributor": USES_DATA,
        "Storage Blob Data Reader": USES_DATA,
    }.items()
}
_OF_ACTIONS: Final = (
    (re.compile(r"microsoft\.authorization/roleassignments/(write|\*)"), GRANTS),
    (re.compile(r"microsoft\.keyvault/vaults/keys/(create|import|delete|update|rotate)(/.*)?"),
     MANAGES_KEYS),
    (re.compile(r"microsoft\.keyvault/vaults/(keys/(decrypt|unwrap|sign)|secrets/getsecret).*"),
     USES_DATA),
    (re.compile(r"microsoft\.storage/storageaccounts/blobservices/containers/blobs/.*"),
     USES_DATA),
)  # fmt: skip


def role_of(assignment: Resource) -> str:
    """The id of the role that is assigned, in small letters; empty where it can't be seen."""
    return text(assignment.get("roleDefinitionId")).rstrip("/").rpartition("/")[2].lower()


def definitions(assignment: Resource, context: Context) -> list[Resource]:
    """The role's definition where the stack makes it."""
    found = [
        each
        for each in context.referred(assignment, "roleDefinitionId")
        if each.kind in DEFINITION
    ]
    if found or context.stack is None:
        return found
    return _by_id(context.stack).get(role_of(assignment), [])


@remembered(2)
def _by_id(stack: Stack) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for each in stack.of_kind(*sorted(DEFINITION)):
        if role := text(each.get("roleDefinitionId")).lower():
            found.setdefault(role, []).append(each)
    return found


#: Who holds a role: an id, or the resources that it will be made from.
Principal = str | frozenset[str]


def principal(assignment: Resource, stack: Stack) -> Principal:
    """Who holds the role, as far as that can be told; empty where it can't."""
    given = text(assignment.get("principalId")).lower()
    return given or frozenset(each.urn for each in stack.referred(assignment, "principalId"))


@remembered(2)
def by_principal(stack: Stack) -> dict[Principal, list[Resource]]:
    """A stack's assignments by who holds the role."""
    found: dict[Principal, list[Resource]] = {}
    for each in stack.of_kind(*sorted(ASSIGNMENT)):
        found.setdefault(principal(each, stack), []).append(each)
    return found


def duties(assignment: Resource, context: Context) -> set[str]:
    """What the role lets its holder do, of what conflicts."""
    if built_in := _DUTIES.get(role_of(assignment)):
        return {built_in}
    found: set[str] = set()
    for each in definitions(assignment, context):
        found |= set(_of_definition(each))
    return found


def _of_definition(definition: Resource) -> Iterator[str]:
    for _, action in actions(definition):
        for pattern, duty in _OF_ACTIONS:
            if pattern.fullmatch(text(action).lower()):
                yield duty


def actions(definition: Resource) -> Iterator[tuple[str, Any]]:
    """Everything that a role allows, with its path; what can't be seen included."""
    for key in ("actions", "dataActions"):
        yield from select(definition.properties, f"permissions.{key}")


_WHOLE: Final = re.compile(
    r"/?|/?subscriptions/[^/]+|/?providers/microsoft\.management/managementgroups/[^/]+"
)


def is_whole(scope: Any) -> bool:
    """Whether a scope is a whole subscription, or more of the tenant."""
    given = text(scope).lower().rstrip("/")
    return not is_unknown(scope) and isinstance(scope, str) and _WHOLE.fullmatch(given) is not None


# Roles on Azure: no more than needed, no more widely than needed, no duties that conflict.

_AZURE_CONTROLS: Final = ("uae-ia:T5.2.2", "iso27001:A.5.15", "iso27001:A.5.18", "iso27001:A.8.2",
                    "nist-800-207:3")  # fmt: skip


@rule(
    "zero-trust-azure-role-wildcards",
    "Roles name what they allow",
    Severity.HIGH,
    DEFINITION,
    _AZURE_CONTROLS,
    "Name the operations that the duty needs. Reading settings (*/read) is fine.",
)
def role_wildcards(resource: Resource, context: Context) -> Iterator[Finding]:
    """``*`` and its like, every operation that grants roles, every operation on data; and to make
    roles, which is to have all of them. What notActions takes away, another role gives."""
    for path, action in actions(resource):
        given = text(action).lower()
        if is_unknown(action):
            yield indeterminate(path, "what the role allows can't be seen")
        elif _is_wide(given, "dataActions" in path):
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
    _AZURE_CONTROLS,
    "Assign a narrower role, at the group or resource that needs it; make people eligible through "
    "Privileged Identity Management.",
)
def broad_assignment(resource: Resource, context: Context) -> Iterator[Finding]:
    """Owner, Contributor and the two that grant roles, at a subscription or above."""
    role, scope = resource.get("roleDefinitionId"), resource.get("scope")
    name = BROAD.get(role_of(resource), "")
    if is_unknown(role):
        if (is_whole(scope) or is_unknown(scope)) and not definitions(resource, context):
            yield indeterminate("roleDefinitionId", "which role is assigned can't be seen")
    elif name and is_unknown(scope):
        if not context.referred(resource, "scope"):
            yield indeterminate("scope", f"where {name} is assigned can't be seen")
    elif name and is_whole(scope):
        yield violation("scope", f"{name} is assigned at {text(scope) or 'the tenant'}")


@rule(
    "zero-trust-azure-unconditional-grants",
    "Who may grant roles may grant named ones only",
    Severity.HIGH,
    ASSIGNMENT,
    (*_AZURE_CONTROLS, "uae-ia:T3.2.4", "iso27001:A.5.3"),
    "Give the assignment a condition on the roles and principals that may be assigned "
    "(https://learn.microsoft.com/azure/role-based-access-control/delegate-role-assignments-portal).",
)
def unconditional_grants(resource: Resource, context: Context) -> Iterator[Finding]:
    """Else he grants himself the rest. Roles of the stack's own are looked up."""
    condition = resource.get("condition")
    if text(condition):
        return
    found = duties(resource, context)
    if GRANTS in found:
        reason = "the role grants roles, and no condition says which"
        yield (indeterminate if is_unknown(condition) else violation)("condition", reason)
    elif context.stack is None and role_of(resource) not in BROAD:
        yield indeterminate("roleDefinitionId", "what the role allows isn't known yet")
    elif is_unknown(resource.get("roleDefinitionId")) and not definitions(resource, context):
        yield indeterminate("roleDefinitionId", "which role is assigned can't be seen")


_AZURE_CONFLICTS: Final = (
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
def azure_conflicting_duties(resource: Resource, context: Context) -> Iterator[Finding]:
    """Managing keys, using keys or data, granting roles without a condition: of one principal, in
    the whole stack. Reported at the assignment of the first of the two."""
    if context.stack is None:
        yield indeterminate("principalId", "what else the principal may do isn't known yet")
        return
    mine, who = _held(resource, context), principal(resource, context.stack)
    if not mine or not who:
        return
    for each in by_principal(context.stack).get(who, []):
        held = _held(each, context)
        for first, second in _AZURE_CONFLICTS:
            if first in mine and second in held:
                reason = f"one principal {first} and {second} ({each.name})"
                yield violation("principalId", reason)


def _held(assignment: Resource, context: Context) -> set[str]:
    found = duties(assignment, context)
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
def federated_subject(resource: Resource, context: Context) -> Iterator[Finding]:
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
    administrator_attached,
    full_access_attached,
    user_grant,
    lasting_credential,
    local_user,
    password_policy,
    database_sign_in,
    aws_conflicting_duties,
    role_wildcards,
    broad_assignment,
    unconditional_grants,
    azure_conflicting_duties,
    federated_subject,
)
