"""What is given to everybody, or to another tenant, by a setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    check_of,
    indeterminate,
    is_true,
    is_unknown,
    requirement_rule,
    rule,
    text,
    violation,
)
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import aws, aws_type, azure

# What AWS gives to everybody by a setting: images, snapshots, documents, APIs without sign-in.

_EVERYBODY: Final[Requirements] = {
    aws("ec2/amiLaunchPermission"): (
        Requirement("group", denied=("all",), hint="images are shared with named accounts"),
    ),
    aws("rds/snapshot"): (
        Requirement(
            "sharedAccounts", denied=("all",), hint="snapshots are shared with named accounts"
        ),
    ),
    aws("rds/clusterSnapshotCopy"): (
        Requirement(
            "sharedAccounts", denied=("all",), hint="snapshots are shared with named accounts"
        ),
    ),
    aws("rds/snapshotCopy"): (
        Requirement(
            "sharedAccounts", denied=("all",), hint="snapshots are shared with named accounts"
        ),
    ),
    aws("ssm/document"): (
        Requirement(
            "permissions.account_ids", denied=("all",), hint="documents are for named accounts"
        ),
    ),
    aws("ec2/imageBlockPublicAccess"): (
        Requirement("state", denied=("unblocked",), hint="public images have to be blocked"),
    ),
    aws("ebs/snapshotBlockPublicAccess"): (
        Requirement("state", denied=("unblocked",), hint="public snapshots have to be blocked"),
    ),
}

shared_with_everybody: Final = requirement_rule(
    "zero-trust-aws-shared-with-everybody",
    "Images, snapshots and documents are shared with nobody unnamed",
    Severity.CRITICAL,
    _EVERYBODY,
    ("iso27001:A.8.3", "iso27001:A.8.12", "uae-ia:T5.2.2", "nist-800-207:1"),
    "Name the accounts, and block public sharing for the account.",
)


@rule(
    "zero-trust-aws-public-registry",
    "Images are in private registries",
    Severity.HIGH,
    aws("ecrpublic/repository", "ecr/repository"),
    ("iso27001:A.8.12", "iso27001:A.8.3", "nist-800-207:1"),
    "Use aws.ecr.Repository, and let named accounts pull.",
)
def public_registry(resource: Resource, context: Context) -> Iterator[Finding]:
    """Repositories of ECR Public have no private form."""
    if resource.kind == aws_type("ecrpublic/repository"):
        yield violation("", "everybody may pull from a repository of ECR Public")


_SIGN_IN: Final = "callers have to sign in"
_CALLERS: Final[Requirements] = {
    aws("cognito/identityPool"): (
        Requirement("allowUnauthenticatedIdentities", denied=("true", "1"), hint=_SIGN_IN),
    ),
    aws("appsync/graphQLApi"): (
        Requirement("authenticationType", denied=("API_KEY",), hint=_SIGN_IN),
        Requirement(
            "additionalAuthenticationProviders.authenticationType",
            denied=("API_KEY",),
            hint=_SIGN_IN,
        ),
    ),
    aws("vpclattice/service"): (
        Requirement(
            "authType", denied=("NONE",), absent="nobody has to sign in by default", hint=_SIGN_IN
        ),
    ),
    aws("vpclattice/serviceNetwork"): (
        Requirement(
            "authType", denied=("NONE",), absent="nobody has to sign in by default", hint=_SIGN_IN
        ),
    ),
}
_CALLED: Final = check_of(_CALLERS)
_METHOD: Final = aws_type("apigateway/method")
_ROUTE: Final = aws_type("apigatewayv2/route")


@rule(
    "zero-trust-aws-unauthenticated",
    "Nobody calls an API without signing in",
    Severity.HIGH,
    frozenset((_METHOD, _ROUTE)).union(*_CALLERS),
    ("iso27001:A.8.5", "iso27001:A.8.3", "uae-ia:T5.4.x", "nist-800-207:6"),
    "Demand AWS_IAM, a user pool, JWT or an authorizer of your own.",
)
def unauthenticated(resource: Resource, context: Context) -> Iterator[Finding]:
    """APIs, methods and pools of identities that take anybody."""
    if resource.kind not in {_METHOD, _ROUTE}:
        yield from _CALLED(resource, context)
        return
    path = "authorization" if resource.kind == _METHOD else "authorizationType"
    # Browsers ask for what is allowed (CORS) without signing in; ends of connections carry none.
    verb = text(resource.get("httpMethod")) or text(resource.get("routeKey")).partition(" ")[0]
    if verb.upper() in {"OPTIONS", "$DISCONNECT"} or is_true(resource.get("apiKeyRequired")):
        return
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, f"its value can't be known yet; {_SIGN_IN}")
    elif value is ABSENT or text(value).upper() in {"", "NONE"}:
        yield violation(path, f"nobody has to sign in; {_SIGN_IN}")


# Strangers on Azure: other tenants that administer, and anybody who may connect.


@rule(
    "zero-trust-azure-private-link-visibility",
    "Private link services are for named subscriptions",
    Severity.HIGH,
    azure("network:PrivateLinkService"),
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:6"),
    "Name the subscriptions in visibility and autoApproval.",
)
def private_link_visibility(resource: Resource, context: Context) -> Iterator[Finding]:
    """``*`` lets every customer of Azure find the service, or connect without being asked:
    https://learn.microsoft.com/azure/private-link/private-link-service-overview."""
    for key in ("visibility.subscriptions", "autoApproval.subscriptions"):
        for where, each in entries(resource.get(key), key):
            if is_unknown(each):
                yield indeterminate(where, "whom the service is for can't be seen")
            elif text(each) == "*":
                yield violation(where, "every subscription of every customer is let in")


_MANAGED: Final = azure("managedservices:RegistrationDefinition")


@rule(
    "zero-trust-azure-foreign-administration",
    "No other tenant administers this one",
    Severity.HIGH,
    _MANAGED,
    ("uae-ia:T5.2.2", "iso27001:A.5.19", "iso27001:A.8.2", "nist-800-207:6"),
    "Delete the definition, or name the tenant in allowedAccounts where a contract binds it.",
)
def foreign_administration(resource: Resource, context: Context) -> Iterator[Finding]:
    """Azure Lighthouse gives roles to people of another tenant, who sign in there:
    https://learn.microsoft.com/azure/lighthouse/concepts/architecture."""
    path = "properties.managedByTenantId"
    tenant = resource.get(path)
    allowed = {each.lower() for each in context.settings.allowed_accounts}
    if is_unknown(tenant):
        yield indeterminate(path, "which tenant may administer this one can't be seen")
    elif text(tenant).lower() not in allowed:
        yield violation(path, f"tenant {text(tenant) or 'not given'} may administer this one")


RULES: tuple[Rule, ...] = (
    shared_with_everybody,
    public_registry,
    unauthenticated,
    private_link_visibility,
    foreign_administration,
)
