"""Policies of resources: nobody is let in who isn't named."""

from __future__ import annotations

import re
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
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.iam import Condition, Document, Statement, read
from falaj.policies.reading.principals import is_anybody, is_pinning, open_statements
from falaj.policies.reading.types import aws, aws_type

#: Which property of a type is its policy document.
_DOCUMENTS: Final[Mapping[str, str]] = {
    **{
        aws_type(each): "policy"
        for each in (
            "s3/bucket", "s3/bucketV2", "s3/bucketPolicy", "s3/accessPoint",
            "s3/vectorsVectorBucketPolicy", "s3/filesFileSystemPolicy", "s3control/bucketPolicy",
            "s3control/accessPointPolicy", "s3control/objectLambdaAccessPointPolicy",
            "s3control/accessGrantsInstanceResourcePolicy", "sns/topic", "sns/topicPolicy",
            "sqs/queue", "sqs/queuePolicy", "kms/key", "kms/keyPolicy", "kms/externalKey",
            "kms/replicaKey", "kms/replicaExternalKey", "secretsmanager/secret",
            "secretsmanager/secretPolicy", "ecr/repositoryPolicy", "ecr/registryPolicy",
            "ecrpublic/repositoryPolicy", "efs/fileSystemPolicy", "backup/vaultPolicy",
            "glacier/vaultLock", "cloudwatch/eventBusPolicy", "acmpca/policy",
            "codebuild/resourcePolicy", "dynamodb/resourcePolicy", "kinesis/resourcePolicy",
            "glue/resourcePolicy", "lambda/resourcePolicy", "msk/clusterPolicy",
            "networkfirewall/resourcePolicy", "oam/sinkPolicy", "redshift/resourcePolicy",
            "redshiftserverless/resourcePolicy", "opensearchingest/resourcePolicy",
            "schemas/registryPolicy", "ses/identityPolicy", "sesv2/emailIdentityPolicy",
            "mediastore/containerPolicy", "vpclattice/authPolicy", "vpclattice/resourcePolicy",
            "dsql/clusterPolicy", "bedrock/agentcoreResourcePolicy", "apigateway/restApiPolicy",
            "apigateway/restApi", "apigateway/domainName",
        )
    },
    aws_type("elasticsearch/domain"): "accessPolicies",
    aws_type("elasticsearch/domainPolicy"): "accessPolicies",
    aws_type("opensearch/domain"): "accessPolicies",
    aws_type("opensearch/domainPolicy"): "accessPolicies",
    aws_type("cloudsearch/domainServiceAccessPolicy"): "accessPolicy",
    aws_type("glacier/vault"): "accessPolicy",
    aws_type("cloudwatch/logDestinationPolicy"): "accessPolicy",
    aws_type("cloudwatch/logDeliveryDestinationPolicy"): "deliveryDestinationPolicy",
    aws_type("cloudwatch/logResourcePolicy"): "policyDocument",
    aws_type("xray/resourcePolicy"): "policyDocument",
    aws_type("amp/resourcePolicy"): "policyDocument",
    aws_type("codeartifact/domainPermissions"): "policyDocument",
    aws_type("codeartifact/repositoryPermissionsPolicy"): "policyDocument",
    aws_type("ecr/repositoryCreationTemplate"): "repositoryPolicy",
    aws_type("s3tables/tableBucketPolicy"): "resourcePolicy",
    aws_type("s3tables/tablePolicy"): "resourcePolicy",
    aws_type("sagemaker/modelPackageGroupPolicy"): "resourcePolicy",
}  # fmt: skip
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
    frozenset(_DOCUMENTS),
    ("cis-aws:3.1.4", "iso27001:A.8.3", "iso27001:A.5.15", "uae-ia:T5.2.2", "nist-800-207:6"),
    _REMEDIATION,
)
def public_policy(resource: Resource, view: View) -> Iterator[Finding]:
    """Statements that allow everybody without a condition that says whom."""
    path = _DOCUMENTS[resource.kind]
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
def lambda_permission(resource: Resource, view: View) -> Iterator[Finding]:
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
def endpoint_policy(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a policy an endpoint is a way to everybody's buckets and queues."""
    value = resource.get("policy")
    if value is ABSENT:
        yield from _without_policy(resource, view)
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


def _without_policy(resource: Resource, view: View) -> Iterator[Finding]:
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
    if view.stack is None:
        yield indeterminate("policy", "whether it has a policy, the whole stack says")
    elif not view.stack.referring(resource, aws_type("ec2/vpcEndpointPolicy"), "vpcEndpointId"):
        yield violation(
            "policy",
            "without a policy the endpoint reaches everybody's resources; only one's own may be",
        )


RULES: tuple[Rule, ...] = (public_policy, lambda_permission, endpoint_policy)
