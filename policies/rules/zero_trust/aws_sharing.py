"""What AWS gives to everybody by a setting: images, snapshots, documents, APIs without sign-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.rules.zero_trust._demands import (
    Setting,
    aws,
    check_of,
    none_of,
    not_true,
    token,
)

_EVERYBODY: Final[Mapping[str, tuple[Setting, ...]]] = {
    token("ec2/amiLaunchPermission"): (
        Setting("group", none_of("all"), "images are shared with named accounts"),
    ),
    token("rds/snapshot"): (
        Setting("sharedAccounts", none_of("all"), "snapshots are shared with named accounts"),
    ),
    token("rds/clusterSnapshotCopy"): (
        Setting("sharedAccounts", none_of("all"), "snapshots are shared with named accounts"),
    ),
    token("rds/snapshotCopy"): (
        Setting("sharedAccounts", none_of("all"), "snapshots are shared with named accounts"),
    ),
    token("ssm/document"): (
        Setting("permissions.account_ids", none_of("all"), "documents are for named accounts"),
    ),
    token("ec2/imageBlockPublicAccess"): (
        Setting("state", none_of("unblocked"), "public images have to be blocked"),
    ),
    token("ebs/snapshotBlockPublicAccess"): (
        Setting("state", none_of("unblocked"), "public snapshots have to be blocked"),
    ),
}

shared_with_everybody: Final = Rule(
    id="zero-trust-aws-shared-with-everybody",
    pack="zero_trust",
    title="Images, snapshots and documents are shared with nobody unnamed",
    severity=Severity.CRITICAL,
    types=frozenset(_EVERYBODY),
    controls=("iso27001:A.8.3", "iso27001:A.8.12", "uae-ia:T5.2.2", "nist-800-207:1"),
    remediation="Name the accounts, and block public sharing for the account.",
    check=check_of(_EVERYBODY),
)


@rule(
    "zero-trust-aws-public-registry",
    "Images are in private registries",
    Severity.HIGH,
    aws("ecrpublic/repository", "ecr/repository"),
    ("iso27001:A.8.12", "iso27001:A.8.3", "nist-800-207:1"),
    "Use aws.ecr.Repository, and let named accounts pull.",
)
def public_registry(resource: Resource, view: View) -> Iterator[Finding]:
    """Repositories of ECR Public have no private form."""
    if resource.kind == token("ecrpublic/repository"):
        yield violation("", "everybody may pull from a repository of ECR Public")


_SIGN_IN: Final = "callers have to sign in"
_CALLERS: Final[Mapping[str, tuple[Setting, ...]]] = {
    token("cognito/identityPool"): (
        Setting("allowUnauthenticatedIdentities", not_true, _SIGN_IN),
    ),
    token("appsync/graphQLApi"): (
        Setting("authenticationType", none_of("API_KEY"), _SIGN_IN),
        Setting("additionalAuthenticationProviders.authenticationType", none_of("API_KEY"),
                _SIGN_IN),
    ),
    token("vpclattice/service"): (
        Setting("authType", none_of("NONE"), _SIGN_IN, "nobody has to sign in by default"),
    ),
    token("vpclattice/serviceNetwork"): (
        Setting("authType", none_of("NONE"), _SIGN_IN, "nobody has to sign in by default"),
    ),
}  # fmt: skip
_METHOD: Final = token("apigateway/method")
_ROUTE: Final = token("apigatewayv2/route")


@rule(
    "zero-trust-aws-unauthenticated",
    "Nobody calls an API without signing in",
    Severity.HIGH,
    {*_CALLERS, _METHOD, _ROUTE},
    ("iso27001:A.8.5", "iso27001:A.8.3", "uae-ia:T5.4.x", "nist-800-207:6"),
    "Demand AWS_IAM, a user pool, JWT or an authorizer of your own.",
)
def unauthenticated(resource: Resource, view: View) -> Iterator[Finding]:
    """APIs, methods and pools of identities that take anybody."""
    if resource.kind in _CALLERS:
        yield from check_of(_CALLERS)(resource, view)
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


RULES: tuple[Rule, ...] = (
    shared_with_everybody, public_registry, unauthenticated,
)  # fmt: skip
