"""AWS services that can be put on the internet by a setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.cidr import are_open
from falaj.policies.rules.zero_trust._demands import (
    Setting,
    ask,
    aws,
    check_of,
    false,
    given,
    none_of,
    not_true,
    one_of,
    token,
    true,
)

_CONTROLS: Final = ("iso27001:A.8.20", "iso27001:A.8.3", "uae-ia:T4.5.3", "nist-800-207:2")
_PRIVATE: Final = "it may be reached from private networks only"


def _switch(path: str = "publiclyAccessible", absent: str = "") -> tuple[Setting, ...]:
    return (Setting(path, false if absent else not_true, _PRIVATE, absent),)


_DATA_STORES: Final[Mapping[str, tuple[Setting, ...]]] = {
    **{
        token(each): _switch()
        for each in (
            "rds/instance", "rds/clusterInstance", "rds/cluster", "rds/shardGroup",
            "neptune/clusterInstance", "docdb/clusterInstance", "redshift/cluster",
            "redshiftserverless/workgroup", "dms/replicationInstance", "mq/broker",
            "lightsail/database", "timestreaminfluxdb/dbInstance", "timestreaminfluxdb/dbCluster",
            "m2/environment",
        )
    },
    token("dms/instanceProfile"): _switch(absent="without this setting it is public"),
    token("neptunegraph/graph"): _switch("publicConnectivity"),
    token("msk/cluster"): (
        Setting(
            "brokerNodeGroupInfo.connectivityInfo.publicAccess.type", one_of("DISABLED"), _PRIVATE
        ),
    ),
    # Without a network of one's own a domain's endpoint is on the internet:
    # https://docs.aws.amazon.com/opensearch-service/latest/developerguide/vpc.html
    **{
        token(each): (
            Setting(
                "vpcOptions", given, _PRIVATE, "a domain without vpcOptions is on the internet"
            ),
        )
        for each in ("opensearch/domain", "elasticsearch/domain")
    },
}  # fmt: skip

public_data_store: Final = Rule(
    id="zero-trust-aws-public-data-store",
    pack="zero_trust",
    title="Databases, brokers and search domains are private",
    severity=Severity.CRITICAL,
    types=frozenset(_DATA_STORES),
    controls=("cis-aws:3.2.3", *_CONTROLS),
    remediation="Switch public access off and place it in private subnets of a VPC.",
    check=check_of(_DATA_STORES),
)


_SERVICES: Final[Mapping[str, tuple[Setting, ...]]] = {
    token("sagemaker/notebookInstance"): (
        Setting("directInternetAccess", one_of("Disabled"), "it has to be Disabled",
                "notebooks are on the internet by default"),
        Setting("subnetId", given, "it has to be in a private subnet", "it is in no VPC"),
    ),
    token("sagemaker/domain"): (
        Setting("appNetworkAccessType", one_of("VpcOnly"), "it has to be VpcOnly",
                "apps reach the internet directly by default"),
    ),
    token("transfer/server"): (
        Setting("endpointType", none_of("PUBLIC"), _PRIVATE, "servers are public by default"),
    ),
    token("apprunner/service"): (
        Setting("networkConfiguration.ingressConfiguration.isPubliclyAccessible", false, _PRIVATE,
                "services are public by default"),
    ),
    token("codebuild/project"): (
        Setting("projectVisibility", none_of("PUBLIC_READ"), "builds have to be private"),
    ),
    token("grafana/workspace"): (
        Setting("networkAccessControl", given, _PRIVATE, "workspaces are public by default"),
    ),
    token("mwaa/environment"): (
        Setting("webserverAccessMode", none_of("PUBLIC_ONLY"), _PRIVATE),
    ),
    token("emr/blockPublicAccessConfiguration"): (
        Setting("blockPublicSecurityGroupRules", true,
                "clusters with public security groups have to be blocked"),
    ),
    token("apigateway/restApi"): (
        Setting("endpointConfiguration.types", one_of("PRIVATE"), "it has to be PRIVATE",
                "APIs are EDGE by default, which is on the internet"),
    ),
    token("apigateway/domainName"): (
        Setting("endpointConfiguration.types", one_of("PRIVATE"), "it has to be PRIVATE",
                "domains are EDGE by default, which is on the internet"),
    ),
}  # fmt: skip


public_service: Final = Rule(
    id="zero-trust-aws-public-service",
    pack="zero_trust",
    title="Services are reached from private networks",
    severity=Severity.HIGH,
    types=frozenset(_SERVICES),
    controls=_CONTROLS,
    remediation="Choose the service's private mode: a VPC's subnets, a VPC endpoint, or the "
    "setting that the finding names.",
    check=check_of(_SERVICES),
)


@rule(
    "zero-trust-aws-public-http-api",
    "HTTP and WebSocket APIs aren't on the internet",
    Severity.MEDIUM,
    aws("apigatewayv2/api"),
    _CONTROLS,
    "Use a REST API of type PRIVATE, or an internal load balancer. Where it stays, set "
    "disableExecuteApiEndpoint and offer it under a domain that demands client certificates.",
)
def public_http_api(resource: Resource, view: View) -> Iterator[Finding]:
    """These APIs have no private form; only their default address can be switched off."""
    yield from ask(
        resource.properties,
        Setting(
            "disableExecuteApiEndpoint", true, "its default address has to be off",
            "HTTP and WebSocket APIs are on the internet by default",
        ),
    )  # fmt: skip


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
    token("lightsail/instancePublicPorts"): ("portInfos", ("cidrs", "ipv6Cidrs")),
    token("workspaces/ipGroup"): ("rules", ("source",)),
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
