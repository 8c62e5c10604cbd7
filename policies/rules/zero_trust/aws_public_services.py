"""AWS services that can be put on the internet by a setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.cidr import are_open
from falaj.policies.reading.types import aws, aws_type

_CONTROLS: Final = ("iso27001:A.8.20", "iso27001:A.8.3", "uae-ia:T4.5.3", "nist-800-207:2")
_PRIVATE: Final = "it may be reached from private networks only"


#: A switch that is off by default.
_NOT_PUBLIC: Final = (Requirement("publiclyAccessible", denied=("true", "1"), hint=_PRIVATE),)


_DATA_STORES: Final[Requirements] = {
    aws(
        "rds/instance",
        "rds/clusterInstance",
        "rds/cluster",
        "rds/shardGroup",
        "neptune/clusterInstance",
        "docdb/clusterInstance",
        "redshift/cluster",
        "redshiftserverless/workgroup",
        "dms/replicationInstance",
        "mq/broker",
        "lightsail/database",
        "timestreaminfluxdb/dbInstance",
        "timestreaminfluxdb/dbCluster",
        "m2/environment",
    ): _NOT_PUBLIC,
    aws("dms/instanceProfile"): (
        Requirement(
            "publiclyAccessible",
            ("false",),
            hint=_PRIVATE,
            absent="without this setting it is public",
        ),
    ),
    aws("neptunegraph/graph"): (
        Requirement("publicConnectivity", denied=("true", "1"), hint=_PRIVATE),
    ),
    aws("msk/cluster"): (
        Requirement(
            "brokerNodeGroupInfo.connectivityInfo.publicAccess.type",
            allowed=("DISABLED",),
            hint=_PRIVATE,
        ),
    ),
    # Without a network of one's own a domain's endpoint is on the internet:
    # https://docs.aws.amazon.com/opensearch-service/latest/developerguide/vpc.html
    aws("opensearch/domain", "elasticsearch/domain"): (
        Requirement(
            "vpcOptions", absent="a domain without vpcOptions is on the internet", hint=_PRIVATE
        ),
    ),
}

public_data_store: Final = requirement_rule(
    "zero-trust-aws-public-data-store",
    "Databases, brokers and search domains are private",
    Severity.CRITICAL,
    _DATA_STORES,
    ("cis-aws:3.2.3", *_CONTROLS),
    "Switch public access off and place it in private subnets of a VPC.",
)


_SERVICES: Final[Requirements] = {
    aws("sagemaker/notebookInstance"): (
        Requirement(
            "directInternetAccess",
            allowed=("Disabled",),
            absent="notebooks are on the internet by default",
            hint="it has to be Disabled",
        ),
        Requirement("subnetId", absent="it is in no VPC", hint="it has to be in a private subnet"),
    ),
    aws("sagemaker/domain"): (
        Requirement(
            "appNetworkAccessType",
            allowed=("VpcOnly",),
            absent="apps reach the internet directly by default",
            hint="it has to be VpcOnly",
        ),
    ),
    aws("transfer/server"): (
        Requirement(
            "endpointType",
            denied=("PUBLIC",),
            absent="servers are public by default",
            hint=_PRIVATE,
        ),
    ),
    aws("apprunner/service"): (
        Requirement(
            "networkConfiguration.ingressConfiguration.isPubliclyAccessible",
            allowed=("false",),
            absent="services are public by default",
            hint=_PRIVATE,
        ),
    ),
    aws("codebuild/project"): (
        Requirement(
            "projectVisibility", denied=("PUBLIC_READ",), hint="builds have to be private"
        ),
    ),
    aws("grafana/workspace"): (
        Requirement(
            "networkAccessControl", absent="workspaces are public by default", hint=_PRIVATE
        ),
    ),
    aws("mwaa/environment"): (
        Requirement("webserverAccessMode", denied=("PUBLIC_ONLY",), hint=_PRIVATE),
    ),
    aws("emr/blockPublicAccessConfiguration"): (
        Requirement(
            "blockPublicSecurityGroupRules",
            allowed=("true",),
            hint="clusters with public security groups have to be blocked",
        ),
    ),
    aws("apigateway/restApi"): (
        Requirement(
            "endpointConfiguration.types",
            allowed=("PRIVATE",),
            absent="APIs are EDGE by default, which is on the internet",
            hint="it has to be PRIVATE",
        ),
    ),
    aws("apigateway/domainName"): (
        Requirement(
            "endpointConfiguration.types",
            allowed=("PRIVATE",),
            absent="domains are EDGE by default, which is on the internet",
            hint="it has to be PRIVATE",
        ),
    ),
}


public_service: Final = requirement_rule(
    "zero-trust-aws-public-service",
    "Services are reached from private networks",
    Severity.HIGH,
    _SERVICES,
    _CONTROLS,
    "Choose the service's private mode: a VPC's subnets, a VPC endpoint, or the "
    "setting that the finding names.",
)


# These APIs have no private form; only their default address can be switched off.
public_http_api: Final = requirement_rule(
    "zero-trust-aws-public-http-api",
    "HTTP and WebSocket APIs aren't on the internet",
    Severity.MEDIUM,
    {
        aws("apigatewayv2/api"): (
            Requirement(
                "disableExecuteApiEndpoint",
                ("true",),
                absent="HTTP and WebSocket APIs are on the internet by default",
                hint="its default address has to be off",
            ),
        )
    },
    _CONTROLS,
    "Use a REST API of type PRIVATE, or an internal load balancer. Where it stays, set "
    "disableExecuteApiEndpoint and offer it under a domain that demands client certificates.",
)


@rule(
    "zero-trust-aws-beanstalk-public",
    "Elastic Beanstalk environments are private",
    Severity.HIGH,
    aws("elasticbeanstalk/environment", "elasticbeanstalk/configurationTemplate"),
    _CONTROLS,
    "In the namespace aws:ec2:vpc, set ELBScheme to internal and AssociatePublicIpAddress to "
    "false.",
)
def beanstalk_public(resource: Resource, view: View) -> Iterator[Finding]:
    """Option settings that make an environment public."""
    public = {"elbscheme": "public", "associatepublicipaddress": "true"}
    for path, setting in select(resource.properties, "settings"):
        if is_unknown(setting):
            yield indeterminate(path, f"its options can't be known yet; {_PRIVATE}")
            continue
        found = {key: next(select(setting, key), ("", ""))[1] for key in ("name", "value")}
        refused = public.get(text(found["name"]).lower())
        if refused is None:
            continue
        if is_unknown(found["value"]):
            yield indeterminate(f"{path}.value", f"its value can't be known yet; {_PRIVATE}")
        elif refused in (text(found["value"]).lower(), str(found["value"]).lower()):
            yield violation(f"{path}.value", f"{text(found['name'])} is {refused}; {_PRIVATE}")


_ALLOW_LISTS: Final = {
    aws_type("lightsail/instancePublicPorts"): ("portInfos", ("cidrs", "ipv6Cidrs")),
    aws_type("workspaces/ipGroup"): ("rules", ("source",)),
}


@rule(
    "zero-trust-aws-open-allow-list",
    "Lists of allowed addresses don't name the world",
    Severity.HIGH,
    frozenset(_ALLOW_LISTS),
    _CONTROLS,
    "Name the addresses of those who need access.",
)
def open_allow_list(resource: Resource, view: View) -> Iterator[Finding]:
    """The firewalls of services that have one of their own."""
    holder, keys = _ALLOW_LISTS[resource.kind]
    for path, entry in select(resource.properties, holder):
        if is_unknown(entry):
            yield indeterminate(path, "its addresses can't be known yet")
            continue
        found = [(key, each) for key in keys for _, each in select(entry, key)]
        if not found:
            yield violation(path, "without addresses the world may come in; name them")
        for key, each in found:
            if is_unknown(each):
                yield indeterminate(f"{path}.{key}", "its addresses can't be known yet")
            elif are_open(items(each)):
                yield violation(f"{path}.{key}", f"{text(each)} is the world; name who may")


@rule(
    "zero-trust-aws-cloudfront-origin",
    "CloudFront signs its requests to buckets",
    Severity.MEDIUM,
    aws("cloudfront/distribution"),
    ("iso27001:A.8.3", "nist-800-207:6"),
    "Set originAccessControlId on the origin, and let the bucket's policy admit that "
    "distribution alone.",
)
def cloudfront_origin(resource: Resource, view: View) -> Iterator[Finding]:
    """Without it the bucket itself would have to be public."""
    for path, origin in select(resource.properties, "origins"):
        if is_unknown(origin):
            yield indeterminate(path, "the origin can't be known yet")
            continue
        named = {
            key: next(select(origin, key), ("", None))[1]
            for key in (
                "domainName", "originAccessControlId", "s3OriginConfig.originAccessIdentity",
                "customOriginConfig", "vpcOriginConfig",
            )
        }  # fmt: skip
        domain = named.pop("domainName")
        if any(each is not None and each != "" for each in named.values()):
            continue
        known = not is_unknown(domain)
        bucket = ".s3" in text(domain) and text(domain).endswith((".amazonaws.com", ".cn"))
        made_of = view.referred(resource, f"{path}.domainName")
        if bucket or (
            not known
            and any(each.package == "aws" and "s3/bucket" in each.kind for each in made_of)
        ):
            yield violation(f"{path}.domainName", "the bucket is read without a signature")
        elif not known:
            yield indeterminate(f"{path}.domainName", "whether it is a bucket can't be known yet")


RULES: tuple[Rule, ...] = (
    public_data_store,
    public_service,
    public_http_api,
    beanstalk_public,
    open_allow_list,
    cloudfront_origin,
)
