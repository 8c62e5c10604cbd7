"""Documents of AWS that grant: permissions, trust, and policies of resources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.iam import (
    Condition,
    Document,
    Statement,
    account_of,
    covers,
    is_account,
    is_anybody,
    is_pinning,
    open_statements,
    read,
)
from falaj.policies.reading.resource_policies import RESOURCE_POLICIES
from falaj.policies.reading.types import aws, aws_type
from falaj.policies.rules.zero_trust.identities import (
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

# Grants on AWS: actions by name, on resources by name.

_TYPES: Final = frozenset(DOCUMENTS)
_GRANTS_CONTROLS: Final = (
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
    context: Context,
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
                _resources_unseen(statement) and not context.referred(resource, statement.path)
            ):
                yield indeterminate(statement.path, f"parts can't be known yet; {reason}")
            elif _resources_unseen(statement) and not what(_with_resources(statement)):
                continue
            elif context.stack is None and (resource.kind == POLICY or bounds_help):
                yield indeterminate(
                    statement.path, f"{reason}; whether a boundary holds it, the whole stack says"
                )
            elif not (is_boundary(resource, context) and any(document.denying)) and not (
                bounds_help and is_bounded(resource, context)
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
    _GRANTS_CONTROLS,
    "Name the actions that the identity needs.",
)
def every_action(resource: Resource, context: Context) -> Iterator[Finding]:
    """Statements with the action ``*``."""

    def everything(statement: Statement) -> str:
        if grants_everything(statement) or not statement.can_see("action"):
            return f"{statement.label} allows every action; actions have to be named"
        return ""

    yield from _judge(resource, context, everything)


@rule(
    "zero-trust-aws-iam-all-but",
    "No policy allows all but something",
    Severity.HIGH,
    _TYPES,
    _GRANTS_CONTROLS,
    "Name what is allowed with Action and Resource; use NotAction and NotResource to deny only.",
)
def all_but(resource: Resource, context: Context) -> Iterator[Finding]:
    """``NotAction`` and ``NotResource`` that allow: whatever a cloud adds is allowed as well."""

    def excepting(statement: Statement) -> str:
        for key, found in (
            ("NotAction", statement.not_actions or not statement.can_see("notaction")),
            ("NotResource", statement.not_resources or not statement.can_see("notresource")),
        ):
            if found:
                return f"{statement.label} allows all but something ({key}); name what is allowed"
        return ""

    yield from _judge(resource, context, excepting)


@rule(
    "zero-trust-aws-iam-whole-service",
    "No policy allows all of a service on every resource",
    Severity.MEDIUM,
    _TYPES,
    _GRANTS_CONTROLS,
    "Name the actions or the resources. Where an identity makes infrastructure, give it a "
    "permissions boundary that says what it may never do; IAM, STS, KMS and Organizations have "
    "to be named all the same.",
)
def whole_service(resource: Resource, context: Context) -> Iterator[Finding]:
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

    yield from _judge(resource, context, sensitive)
    yield from _judge(resource, context, others, bounds_help=True)
    yield from _judge(resource, context, unseen)


def _whole(statement: Statement, services: list[str]) -> str:
    if not services:
        return ""
    names = ", ".join(services[:4]) + (" and more" if len(services) > 4 else "")
    return f"{statement.label} allows all of {names} on every resource; name actions or resources"


@rule(
    "zero-trust-aws-iam-data-on-everything",
    "No policy reads or changes everybody's data",
    Severity.MEDIUM,
    _TYPES,
    _GRANTS_CONTROLS,
    "Name the buckets, tables, secrets, keys or roles that the identity needs.",
)
def data_on_everything(resource: Resource, context: Context) -> Iterator[Finding]:
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
        actions = found[0] if found else "an action on data"
        return f"{statement.label} allows {actions} on every resource; name the resources"

    yield from _judge(resource, context, data, bounds_help=True, conditions_help=True)


@rule(
    "zero-trust-aws-iam-pass-role",
    "Roles are passed by name, or to a named service",
    Severity.HIGH,
    _TYPES,
    _GRANTS_CONTROLS,
    "Name the roles that may be passed, and the service with iam:PassedToService.",
)
def pass_role(resource: Resource, context: Context) -> Iterator[Finding]:
    """``iam:PassRole`` on every role: its holder gets what any role may do."""

    def passing(statement: Statement) -> str:
        if grants_everything(statement) or "iam" in wide_services(statement):
            return ""
        pinned = any(map(_names_receiver, statement.conditions))
        may = statement.grants("iam:passrole") or not statement.can_see("action")
        if not may or pinned or not _is_on_all(statement):
            return ""
        return f"{statement.label} passes every role; name the roles"

    yield from _judge(resource, context, passing, conditions_help=True)


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
    _GRANTS_CONTROLS,
    "Name the identities that may be changed, and demand a boundary with "
    "iam:PermissionsBoundary; leave access keys and passwords to a directory.",
)
def escalation(resource: Resource, context: Context) -> Iterator[Finding]:
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
        actions = found[0] if found else "an action that changes identities"
        return (
            f"{statement.label} allows {actions} on every resource, by which its holder gets more"
        )

    yield from _judge(resource, context, escalating, conditions_help=True)


# Who may become a role: named principals, and those that conditions make known.

_ROLES: Final = aws("iam/role")
_PATH: Final = "assumeRolePolicy"
_TRUST_CONTROLS: Final = ("iso27001:A.5.15", "iso27001:A.5.16", "uae-ia:T5.2.2", "nist-800-207:6")
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
    _TRUST_CONTROLS,
    "Name the principals, or add aws:PrincipalOrgID or aws:PrincipalArn as a condition.",
)
def trust_anybody(resource: Resource, context: Context) -> Iterator[Finding]:
    """Trust policies whose principal is everybody."""
    document = read(resource.get(_PATH), _PATH)
    if document.hidden:
        yield indeterminate(document.hidden, f"who may take the role: it {document.reason}")
    for statement, is_certain in open_statements(document):
        if is_certain:
            yield violation(
                statement.path, f"{statement.label} lets anybody take the role; name who may"
            )
        elif not _is_own(statement, resource, context):
            yield indeterminate(
                statement.path, f"who may take the role by {statement.label} can't be known yet"
            )


def _is_own(statement: Statement, resource: Resource, context: Context) -> bool:
    """Whether an unknown principal is a resource of the stack, which is never everybody."""
    return "*" not in statement.unknown and bool(context.referred(resource, _PATH))


@rule(
    "zero-trust-aws-trust-account",
    "A whole account takes a role only under a condition",
    Severity.MEDIUM,
    _ROLES,
    _TRUST_CONTROLS,
    "Name the roles of the account that may take this one. For a partner's account demand an "
    "external id (sts:ExternalId); for people a second factor (aws:MultiFactorAuthPresent).",
)
def trust_account(resource: Resource, context: Context) -> Iterator[Finding]:
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
            and account_of(who) not in context.settings.allowed_accounts
        ]
        if accounts and None not in known and statement.can_see("condition"):
            yield violation(
                statement.path,
                f"everybody to whom account {account_of(accounts[0])} grants it may take the "
                "role; it needs named roles or a condition",
            )
        elif accounts or (
            not statement.can_see("principal") and not _is_own(statement, resource, context)
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
    _TRUST_CONTROLS,
    "Add a condition on the token's subject (PROVIDER:sub), such as one repository's branch or "
    "one service account, and on its audience (PROVIDER:aud); for SAML on SAML:aud.",
)
def trust_federated(resource: Resource, context: Context) -> Iterator[Finding]:
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
            keys = " or ".join(each.strip(":") for each in wanted)
            yield violation(
                statement.path,
                f"{statement.label} lets every user of the provider take the role; it needs a "
                f"condition on {keys} that isn't for everybody",
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


# Policies of resources: nobody is let in who isn't named.

#: Search domains inside a network can't be reached by strangers, whoever a policy names:
#: https://docs.aws.amazon.com/opensearch-service/latest/developerguide/vpc.html
_DOMAINS: Final = aws("opensearch/domain", "elasticsearch/domain")
_PRIVATE_API: Final = aws("apigateway/restApi")
_ENDPOINT: Final = aws_type("ec2/vpcEndpoint")
#: Services by which data could leave to a stranger's account, and which take endpoint policies:
#: https://docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html
_WITH_DATA: Final = frozenset((
    "s3", "dynamodb", "ecr.api", "ecr.dkr", "kms", "secretsmanager", "sns", "sqs", "ssm", "sts",
    "logs", "kinesis-streams", "kinesis-firehose", "lambda", "events", "execute-api", "states",
    "monitoring", "athena", "glue", "sagemaker.api", "sagemaker.runtime", "bedrock",
    "bedrock-runtime", "elasticfilesystem", "ebs", "backup", "rds-data", "redshift-data",
))  # fmt: skip
_REMEDIATION: Final = (
    "Name the principals. Where a service has to be anybody's, add a condition on who that is: "
    "aws:PrincipalOrgID, aws:PrincipalAccount, aws:SourceArn with aws:SourceAccount, or "
    "aws:SourceVpce."
)


def _is_private(resource: Resource) -> bool:
    """Whether the network keeps strangers out, whatever the policy says."""
    if resource.kind in _DOMAINS:
        place = resource.get("vpcOptions")
        return place is not ABSENT and not is_unknown(place) and bool(place)
    if resource.kind in _PRIVATE_API:
        kinds = [each for _, each in select(resource.properties, "endpointConfiguration.types")]
        return [text(each).upper() for each in kinds] == ["PRIVATE"]
    return False


def _hidden(document: Document) -> Iterator[Finding]:
    if document.hidden:
        yield indeterminate(document.hidden, f"whom the policy lets in: it {document.reason}")


@rule(
    "zero-trust-aws-public-policy",
    "No resource's policy lets anybody in",
    Severity.CRITICAL,
    frozenset(RESOURCE_POLICIES),
    ("cis-aws:3.1.4", "iso27001:A.8.3", "iso27001:A.5.15", "uae-ia:T5.2.2", "nist-800-207:6"),
    _REMEDIATION,
)
def public_policy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Statements that allow everybody without a condition that says whom."""
    path = RESOURCE_POLICIES[resource.kind]
    value = resource.get(path)
    if value is ABSENT or _is_private(resource):
        return
    document = read(value, path)
    yield from _hidden(document)
    for statement, is_certain in open_statements(document):
        if is_certain:
            yield violation(
                statement.path,
                f"{statement.label} lets anybody in; principals or conditions have to say whom",
            )
        else:
            yield indeterminate(
                statement.path, f"whom {statement.label} lets in can't be known yet"
            )


@rule(
    "zero-trust-aws-lambda-permission",
    "Functions are called by those that are named",
    Severity.HIGH,
    aws("lambda/permission", "lambda/functionUrl"),
    ("iso27001:A.8.3", "iso27001:A.5.15", "nist-800-207:6"),
    "Name the principal and give sourceArn (and sourceAccount for buckets); demand AWS_IAM of "
    "callers of a function's URL.",
)
def lambda_permission(resource: Resource, context: Context) -> Iterator[Finding]:
    """Permissions for everybody, also by way of a service that calls for everybody
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html), and addresses without
    authentication."""
    if resource.kind == aws_type("lambda/functionUrl"):
        kind = resource.get("authorizationType")
        if is_unknown(kind):
            yield indeterminate("authorizationType", "its value can't be known yet")
        elif text(kind).upper() != "AWS_IAM":
            yield violation(
                "authorizationType", "anybody may call the function's URL; it has to be AWS_IAM"
            )
        return
    who = resource.get("principal")
    if any(_is_limit(resource.get(key), limit) for key, limit in _LIMITS.items()):
        return
    if is_unknown(who):
        yield indeterminate("principal", "who may call the function can't be known yet")
    elif is_anybody(text(who)):
        yield violation("principal", "anybody may call the function; name who may")
    elif text(who).endswith(_SERVICES) and resource.get("eventSourceToken") is ABSENT:
        reason = f"{text(who)} may call the function for anybody; name the source or its account"
        yield violation("principal", reason)


#: What says for whom a function is called, as the conditions that AWS makes of it.
_LIMITS: Final = {
    "sourceArn": "aws:sourcearn",
    "sourceAccount": "aws:sourceaccount",
    "principalOrgId": "aws:principalorgid",
}
_SERVICES: Final = (".amazonaws.com", ".amazonaws.com.cn")


def _is_limit(value: object, key: str) -> bool:
    """Whether it names somebody; what isn't known yet will name the one that it is made from."""
    given = Condition("stringlike", key, (text(value),), is_unknown=False)
    return is_unknown(value) or (bool(text(value)) and is_pinning(given) is True)


@rule(
    "zero-trust-aws-endpoint-policy",
    "Endpoints reach resources of one's own, not everybody's",
    Severity.MEDIUM,
    aws("ec2/vpcEndpoint", "ec2/vpcEndpointPolicy"),
    ("iso27001:A.8.12", "iso27001:A.8.22", "nist-800-207:2"),
    "Give the endpoint a policy that allows principals of the account (aws:PrincipalAccount or "
    "aws:PrincipalOrgID) and resources of the account (aws:ResourceAccount), or names them.",
)
def endpoint_policy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a policy an endpoint is a way to everybody's buckets and queues."""
    value = resource.get("policy")
    if value is ABSENT:
        yield from _without_policy(resource, context)
        return
    document = read(value, "policy")
    yield from _hidden(document)
    for statement, is_certain in open_statements(document):
        if not statement.can_see("resource", "condition"):
            is_certain = False  # noqa: PLW2901 - what it is about isn't known
        elif not statement.is_on_everything or _keeps_resources(statement):
            continue
        reason = f"{statement.label} lets anybody reach every resource of the service"
        yield (violation if is_certain else indeterminate)(statement.path, reason)


def _keeps_resources(statement: Statement) -> bool:
    return any(
        each.key in {"aws:resourceaccount", "aws:resourceorgid", "aws:resourceorgpaths"}
        and not each.operator.startswith(("stringnot", "null", "forallvalues"))
        for each in statement.conditions
    )


def _without_policy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Endpoints to services of AWS; those of partners and gateway load balancers take none."""
    name = resource.get("serviceName")
    kind = text(resource.get("vpcEndpointType")).lower() or "gateway"
    if resource.kind != _ENDPOINT or kind not in {"gateway", "interface"}:
        return
    if is_unknown(name):
        yield indeterminate("policy", "whether the service takes a policy can't be known yet")
        return
    service = re.fullmatch(r"(?:com|cn)\.amazonaws\.(?:[a-z]{2}-[a-z-]+-\d\.)?(.+)", text(name))
    if service is None or service[1].startswith("vpce.") or service[1] not in _WITH_DATA:
        return
    if context.stack is None:
        yield indeterminate("policy", "whether it has a policy, the whole stack says")
    elif not context.stack.referring(resource, aws_type("ec2/vpcEndpointPolicy"), "vpcEndpointId"):
        yield violation(
            "policy",
            "without a policy the endpoint reaches everybody's resources; only one's own may be",
        )


RULES: tuple[Rule, ...] = (
    every_action,
    all_but,
    whole_service,
    data_on_everything,
    pass_role,
    escalation,
    trust_anybody,
    trust_account,
    trust_federated,
    public_policy,
    lambda_permission,
    endpoint_policy,
)
