"""Identities on AWS: no administrators by attachment, no lasting credentials, no local users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    requirement_rule,
    rule,
    text,
    violation,
)
from falaj.policies.reading.types import aws, aws_type
from falaj.policies.rules.zero_trust._aws_identities import ATTACHMENTS, POLICY, USER, attached

_CONTROLS: Final = ("iso27001:A.8.2", "iso27001:A.5.15", "uae-ia:T5.2.2", "nist-800-207:3")
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
    said = text(value)
    prefix, _, path = said.partition(":policy/")
    return path.rpartition("/")[2] if prefix.endswith(":iam::aws") else ""


def _unseen(resource: Resource, view: View, path: str, value: object) -> bool:
    """Whether nobody can say which policy it is: not even one of the stack."""
    made = view.referred(resource, path)
    return is_unknown(value) and not any(each.kind == POLICY for each in made)


@rule(
    "zero-trust-aws-administrator-attached",
    "Nobody is made administrator by AWS's ready-made policies",
    Severity.CRITICAL,
    frozenset(ATTACHMENTS),
    ("cis-aws:2.14", *_CONTROLS),
    "Attach a policy of your own that names the actions of this duty, within a permissions "
    "boundary.",
)
def administrator_attached(resource: Resource, view: View) -> Iterator[Finding]:
    """Attachments of policies that allow everything, or the management of identities."""
    for path, value in attached(resource):
        name = _managed(value)
        if name in _ADMINISTRATION:
            yield violation(path, f"{name} allows too much; name the actions of the duty")
        elif _unseen(resource, view, path, value):
            yield indeterminate(path, "which policy is attached can't be known yet")


@rule(
    "zero-trust-aws-full-access-attached",
    "Nobody has all of a service by AWS's ready-made policies",
    Severity.MEDIUM,
    frozenset(ATTACHMENTS),
    _CONTROLS,
    "Attach a policy of your own that names the actions and resources that are needed.",
)
def full_access_attached(resource: Resource, view: View) -> Iterator[Finding]:
    """Attachments of policies named ``…FullAccess``, which are about all resources."""
    for path, value in attached(resource):
        name = _managed(value)
        if _FULL in name and name not in _ADMINISTRATION:
            yield violation(path, f"{name} allows all of a service on every resource")
        elif _unseen(resource, view, path, value):
            yield indeterminate(path, "which policy is attached can't be known yet")


@rule(
    "zero-trust-aws-user-grant",
    "Users hold nothing by themselves",
    Severity.LOW,
    aws("iam/userPolicy", "iam/userPolicyAttachment", "iam/policyAttachment",
        "iam/userPolicyAttachmentsExclusive"),
    _CONTROLS,
    "Grant to roles that people take for a session, or at least to groups.",
)  # fmt: skip
def user_grant(resource: Resource, view: View) -> Iterator[Finding]:
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
def lasting_credential(resource: Resource, view: View) -> Iterator[Finding]:
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
def local_user(resource: Resource, view: View) -> Iterator[Finding]:
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
def database_sign_in(resource: Resource, view: View) -> Iterator[Finding]:
    """Engines that can, and don't: passwords are all that is left."""
    engine = text(resource.get("engine")).lower()
    neptune = resource.kind == aws_type("neptune/cluster")
    # Members of Aurora clusters and copies take the setting from their cluster or source.
    copies = ("replicateSourceDb", "clusterIdentifier")
    if any(resource.get(each) is not ABSENT for each in copies):
        return
    if not neptune and engine and not engine.startswith(_WITH_IAM):
        return
    path = "iamDatabaseAuthenticationEnabled"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "its value can't be known yet; it has to be true")
    elif not is_true(value):
        said = "is off" if is_false(value) else "is off by default"
        yield violation(path, f"signing in by roles {said}; it has to be on")


RULES: tuple[Rule, ...] = (
    administrator_attached,
    full_access_attached,
    user_grant,
    lasting_credential,
    local_user,
    password_policy,
    database_sign_in,
)
