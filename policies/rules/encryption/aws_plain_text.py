"""Traffic that AWS services would carry without encryption, and what turns that off.

Services that speak TLS only (KMS, DynamoDB, Kinesis, Lambda, ECR and most others) have nothing to
set, so they aren't here. TCP listeners pass on what they are given, and aren't judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Severity,
    View,
    check_of,
    get,
    indeterminate,
    is_true,
    items,
    number,
    rule,
    scalar,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.types import aws
from falaj.policies.rules.encryption.aws_configured_stores import EMR, document
from falaj.policies.rules.encryption.aws_listeners import (
    CLASSIC,
    DISTRIBUTIONS,
    LISTENER_RULES,
    LISTENERS,
    ORIGINS,
    TARGET_GROUPS,
)

_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32",
                    "nist-800-207:2")  # fmt: skip
#: Engines that DMS reaches by a database's own protocol; others are AWS APIs or files.
#: https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Security.SSL.html
_DMS_ENGINES: Final = (
    "aurora", "aurora-postgresql", "aurora-serverless", "aurora-postgresql-serverless", "azuredb",
    "azure-sql-managed-instance", "babelfish", "db2", "db2-zos", "docdb", "mariadb", "mongodb",
    "mysql", "oracle", "postgres", "redshift", "sqlserver", "sybase",
)  # fmt: skip
_DOMAINS: Final = ("aws:opensearch/domain:Domain", "aws:elasticsearch/domain:Domain")
_GROUP: Final = "aws:elasticache/replicationGroup:ReplicationGroup"

REQUIREMENTS: Final[Requirements] = {
    # The groups of a global datastore take on its settings.
    frozenset((_GROUP,)): (
        Requirement("transitEncryptionEnabled", ("true",), "false",
                    only=("globalReplicationGroupId", ("",))),
        Requirement("transitEncryptionMode", ("required",)),
    ),
    aws("elasticache/cluster"): (
        Requirement("transitEncryptionEnabled", ("true",), "false",
                    only=("replicationGroupId", ("",))),
    ),
    aws("memorydb/cluster"): (Requirement("tlsEnabled", denied=("false",)),),
    aws("msk/cluster"): (
        Requirement("encryptionInfo.encryptionInTransit.clientBroker", ("tls",)),
        Requirement("encryptionInfo.encryptionInTransit.inCluster", denied=("false",)),
    ),
    aws("mskconnect/connector"): (
        Requirement("kafkaClusterEncryptionInTransit.encryptionType", ("tls",), "PLAINTEXT"),
    ),
    frozenset(_DOMAINS): (
        Requirement("enforceHttps", denied=("false",), each="domainEndpointOptions"),
        Requirement("nodeToNodeEncryption.enabled", ("true",), "false"),
    ),
    aws("rds/proxy"): (Requirement("requireTls", ("true",), "false"),),
    aws("glue/connection"): (
        Requirement("connectionProperties.JDBC_ENFORCE_SSL", ("true",), "false",
                    only=("connectionType", ("", "jdbc"))),
    ),
    aws("dax/cluster"): (Requirement("clusterEndpointEncryptionType", ("tls",), "NONE"),),
    aws("appsync/apiCache"): (Requirement("transitEncryptionEnabled", ("true",), "false"),),
    aws("dms/endpoint"): (
        Requirement("sslMode", ("require", "verify-ca", "verify-full"), "none",
                    only=("engineName", _DMS_ENGINES)),
        Requirement("kafkaSettings.securityProtocol", denied=("plaintext",)),
        Requirement("redisSettings.sslSecurityProtocol", denied=("plaintext",)),
    ),
    aws("transfer/server"): (Requirement("protocols", denied=("ftp",)),),
    aws("sns/topicSubscription"): (Requirement("protocol", denied=("http",)),),
    aws("ses/configurationSet"): (
        Requirement("deliveryOptions.tlsPolicy", ("require",), "Optional"),
    ),
    aws("sesv2/configurationSet"): (
        Requirement("deliveryOptions.tlsPolicy", ("require",), "OPTIONAL"),
    ),
    aws("ses/receiptRule"): (Requirement("tlsPolicy", ("require",), "Optional"),),
    aws("datasync/efsLocation"): (Requirement("inTransitEncryption", ("tls1_2",), "NONE"),),
    aws("datasync/locationObjectStorage"): (Requirement("serverProtocol", denied=("http",)),),
    aws("quicksight/dataSource"): (Requirement("sslProperties.disableSsl", denied=("true",)),),
    aws("ecs/taskDefinition"): (
        Requirement("transitEncryption", ("enabled",), "DISABLED",
                    each="volumes.efsVolumeConfiguration"),
    ),
    aws("codebuild/project"): (
        Requirement("source.insecureSsl", denied=("true",)),
        Requirement("insecureSsl", denied=("true",), each="secondarySources"),
    ),
    aws("apigateway/integration"): (
        Requirement("tlsConfig.insecureSkipVerification", denied=("true",)),
    ),
    aws("vpclattice/listener"): (Requirement("protocol", denied=("http",)),),
    aws("appmesh/virtualGateway"): (
        Requirement("tls.mode", ("strict",), "DISABLED", each="spec.listeners"),
    ),
    frozenset(CLASSIC): (Requirement("lbProtocol", denied=("http",), each="listeners"),),
    frozenset(DISTRIBUTIONS): tuple(
        Requirement("viewerProtocolPolicy", denied=("allow-all",), each=behaviour)
        for behaviour in ("defaultCacheBehavior", "orderedCacheBehaviors", "cacheBehaviors")
    ),
    aws("sagemaker/dataQualityJobDefinition"): (
        Requirement("networkConfig.enableInterContainerTrafficEncryption", ("true",), "false"),
    ),
    aws("sagemaker/monitoringSchedule"): (
        Requirement("networkConfig.enableInterContainerTrafficEncryption", ("true",), "false",
                    each="monitoringScheduleConfig.monitoringJobDefinition"),
    ),
}  # fmt: skip
_REQUIRED: Final = check_of(REQUIREMENTS, consequence="traffic may go in plain text")


def _domain(resource: Resource, _: View) -> Iterator[Finding]:
    """Without the block the service takes HTTP as well; in it, the provider's default is HTTPS.

    https://docs.aws.amazon.com/opensearch-service/latest/developerguide/infrastructure-security.html
    """
    if get(resource.properties, "domainEndpointOptions") is ABSENT:
        why = "enforceHttps isn't given, and by default HTTP is taken as well"
        yield violation("domainEndpointOptions.enforceHttps", why)


def _training(resource: Resource, _: View) -> Iterator[Finding]:
    """Containers of a job on several machines talk in plain text unless told otherwise."""
    path = "enableInterContainerTrafficEncryption"
    switch = get(resource.properties, path)
    count = get(resource.properties, "resourceConfig.instanceCount")
    groups = items(get(resource.properties, "resourceConfig.instanceGroups"))
    alone = not groups and not isinstance(count, Unknown) and (number(count) or 1) <= 1
    if isinstance(switch, Unknown):
        if not alone:
            yield indeterminate(path, f"{path} {switch.reason}")
    elif not alone and not is_true(switch):
        yield violation(path, f"{path} isn't true, so the job's machines talk in plain text")


def _emr(resource: Resource, _: View) -> Iterator[Finding]:
    given = document(get(resource.properties, "configuration"))
    value = given
    if not isinstance(given, Unknown):
        value = get(given, "EncryptionConfiguration.EnableInTransitEncryption")
    if isinstance(value, Unknown):
        yield indeterminate("configuration", f"configuration {value.reason}")
    elif not is_true(value):
        why = "EnableInTransitEncryption isn't true, so the cluster's machines talk in plain text"
        yield violation("configuration", why)


def leads_to_https(action: Any) -> bool | None:
    """Whether an action sends callers on to HTTPS, or answers by itself; None if hidden."""
    kind, protocol = (get(action, each) for each in ("type", "redirect.protocol"))
    if isinstance(kind, Unknown):
        return None
    if scalar(kind) != "redirect":
        return scalar(kind) == "fixed-response"
    return None if isinstance(protocol, Unknown) else scalar(protocol) == "https"


def _listener(resource: Resource, _: View) -> Iterator[Finding]:
    """A plain listener may only redirect to HTTPS.

    A gateway load balancer's has neither protocol nor port, and passes on what it is given.
    """
    protocol, port = (get(resource.properties, each) for each in ("protocol", "port"))
    if isinstance(protocol, Unknown):
        yield indeterminate("protocol", f"protocol {protocol.reason}")
        return
    if scalar(protocol) != "http" and not (protocol is ABSENT and port is not ABSENT):
        return
    actions = get(resource.properties, "defaultActions")
    if isinstance(actions, Unknown):
        yield indeterminate("defaultActions", f"defaultActions {actions.reason}")
        return
    led = [leads_to_https(each) for each in items(actions)]
    said = "protocol is HTTP" if scalar(protocol) else "protocol isn't given, which is HTTP"
    if False in led or not led:
        yield violation("protocol", f"{said}, and the listener doesn't only redirect to HTTPS")
    elif None in led:
        yield indeterminate("defaultActions", f"{said}, and nobody sees whether it only redirects")


def _listener_rule(resource: Resource, view: View) -> Iterator[Finding]:
    """A rule of a plain listener may not lead past its redirection."""
    led = [leads_to_https(each) for each in items(get(resource.properties, "actions"))]
    if all(led):
        return
    if view.stack is None:
        yield indeterminate("actions", "nobody knows yet whether the listener speaks HTTP")
    elif any(
        each.kind in LISTENERS and scalar(get(each.properties, "protocol")) == "http"
        for each in view.referred(resource, "listenerArn")
    ):
        if False in led:
            yield violation("actions", "a rule of an HTTP listener doesn't only redirect to HTTPS")
        else:
            yield indeterminate("actions", "a rule of an HTTP listener whose actions are hidden")


Special = Callable[[Resource, View], Iterator[Finding]]
_SPECIAL: Final[dict[str, Special]] = {
    **dict.fromkeys(_DOMAINS, _domain),
    **dict.fromkeys(LISTENERS, _listener),
    **dict.fromkeys(LISTENER_RULES, _listener_rule),
    "aws:sagemaker/trainingJob:TrainingJob": _training,
    EMR: _emr,
}


@rule(
    "encryption-aws-plain-text",
    "Services on AWS take no traffic in plain text",
    Severity.HIGH,
    frozenset[str]().union(*REQUIREMENTS, _SPECIAL),
    _CONTROLS,
    "Turn encryption in transit on in the property that the finding names. Let an HTTP listener "
    "do nothing but redirect to HTTPS, or leave it out.",
)
def plain_text(resource: Resource, view: View) -> Iterator[Finding]:
    """What clients and machines say to each other is encrypted."""
    yield from _REQUIRED(resource, view)
    if special := _SPECIAL.get(resource.kind):
        yield from special(resource, view)


BACKENDS: Final[Requirements] = {
    frozenset(TARGET_GROUPS): (Requirement("protocol", denied=("http",)),),
    aws("vpclattice/targetGroup"): (Requirement("config.protocol", denied=("http",)),),
    frozenset(CLASSIC): (Requirement("instanceProtocol", denied=("http",), each="listeners"),),
    frozenset(DISTRIBUTIONS): tuple(
        Requirement("originProtocolPolicy", denied=("http-only",), each=origin)
        for origin in ORIGINS
    ),
}
_BACKENDS: Final = check_of(BACKENDS, consequence="traffic to the targets goes in plain text")


#: Addresses that APIs fetch from: the path, and that of the kind of integration. Kinds other than
#: these call services of AWS, or nothing.
_ADDRESSES: Final = {
    "aws:apigateway/integration:Integration": ("uri", "type"),
    "aws:apigatewayv2/integration:Integration": ("integrationUri", "integrationType"),
    "aws:appsync/dataSource:DataSource": ("httpConfig.endpoint", "type"),
}
_FETCHES: Final = frozenset(("http", "http_proxy"))
#: What private integrations of HTTP APIs name instead of an address.
_BY_ARN: Final = LISTENERS | {"aws:servicediscovery/service:Service"}


def _address(resource: Resource, view: View) -> Iterator[Finding]:
    """An API's backend is fetched at an address whose scheme says whether TLS is spoken."""
    path, kind = _ADDRESSES[resource.kind]
    if scalar(get(resource.properties, kind)) not in _FETCHES:
        return
    value = get(resource.properties, path)
    if isinstance(value, Unknown):
        made_from = view.referred(resource, path)
        if not made_from or any(each.kind not in _BY_ARN for each in made_from):
            yield indeterminate(path, f"{path} {value.reason}; it must begin with https://")
    elif scalar(value).startswith("http://"):
        yield violation(path, "the backend's address begins with http://, in plain text")


@rule(
    "encryption-aws-backend-plain-text",
    "Load balancers and APIs on AWS talk to their targets by TLS",
    Severity.MEDIUM,
    frozenset[str]().union(*BACKENDS, _ADDRESSES),
    _CONTROLS,
    "Let the targets serve HTTPS (a certificate of their own will do: load balancers don't check "
    "it), and set the protocol of the target group or origin to HTTPS, or the scheme of an API's "
    "backend to https://.",
)
def backend_plain_text(resource: Resource, view: View) -> Iterator[Finding]:
    """Traffic is encrypted up to the machine that serves it, inside of the network as well."""
    yield from _BACKENDS(resource, view)
    if resource.kind in _ADDRESSES:
        yield from _address(resource, view)


RULES: Final = (plain_text, backend_plain_text)
