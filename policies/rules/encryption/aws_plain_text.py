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
    Resource,
    Severity,
    View,
    get,
    indeterminate,
    is_true,
    items,
    number,
    rule,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.aws_configured_stores import EMR, document
from falaj.policies.rules.encryption.aws_listeners import (
    CLASSIC,
    DISTRIBUTIONS,
    LISTENER_RULES,
    LISTENERS,
    ORIGINS,
    TARGET_GROUPS,
)
from falaj.policies.rules.encryption.switches import Switch, word

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

SWITCHES: Final = (
    # The groups of a global datastore take on its settings.
    Switch(_GROUP, "transitEncryptionEnabled", good=("true",), default="false",
           only=("globalReplicationGroupId", ("",))),
    Switch(_GROUP, "transitEncryptionMode", good=("required",)),
    Switch("aws:elasticache/cluster:Cluster", "transitEncryptionEnabled", good=("true",),
           default="false", only=("replicationGroupId", ("",))),
    Switch("aws:memorydb/cluster:Cluster", "tlsEnabled", bad=("false",)),
    Switch("aws:msk/cluster:Cluster", "encryptionInfo.encryptionInTransit.clientBroker",
           good=("tls",)),
    Switch("aws:msk/cluster:Cluster", "encryptionInfo.encryptionInTransit.inCluster",
           bad=("false",)),
    Switch("aws:mskconnect/connector:Connector",
           "kafkaClusterEncryptionInTransit.encryptionType", good=("tls",), default="PLAINTEXT"),
    *(Switch(each, "enforceHttps", bad=("false",), parts="domainEndpointOptions")
      for each in _DOMAINS),
    *(Switch(each, "nodeToNodeEncryption.enabled", good=("true",), default="false")
      for each in _DOMAINS),
    Switch("aws:rds/proxy:Proxy", "requireTls", good=("true",), default="false"),
    Switch("aws:glue/connection:Connection", "connectionProperties.JDBC_ENFORCE_SSL",
           good=("true",), default="false", only=("connectionType", ("", "jdbc"))),
    Switch("aws:dax/cluster:Cluster", "clusterEndpointEncryptionType", good=("tls",),
           default="NONE"),
    Switch("aws:appsync/apiCache:ApiCache", "transitEncryptionEnabled", good=("true",),
           default="false"),
    Switch("aws:dms/endpoint:Endpoint", "sslMode", good=("require", "verify-ca", "verify-full"),
           default="none", only=("engineName", _DMS_ENGINES)),
    Switch("aws:dms/endpoint:Endpoint", "kafkaSettings.securityProtocol", bad=("plaintext",)),
    Switch("aws:dms/endpoint:Endpoint", "redisSettings.sslSecurityProtocol", bad=("plaintext",)),
    Switch("aws:transfer/server:Server", "protocols", bad=("ftp",)),
    Switch("aws:sns/topicSubscription:TopicSubscription", "protocol", bad=("http",)),
    Switch("aws:ses/configurationSet:ConfigurationSet", "deliveryOptions.tlsPolicy",
           good=("require",), default="Optional"),
    Switch("aws:sesv2/configurationSet:ConfigurationSet", "deliveryOptions.tlsPolicy",
           good=("require",), default="OPTIONAL"),
    Switch("aws:ses/receiptRule:ReceiptRule", "tlsPolicy", good=("require",), default="Optional"),
    Switch("aws:datasync/efsLocation:EfsLocation", "inTransitEncryption", good=("tls1_2",),
           default="NONE"),
    Switch("aws:datasync/locationObjectStorage:LocationObjectStorage", "serverProtocol",
           bad=("http",)),
    Switch("aws:quicksight/dataSource:DataSource", "sslProperties.disableSsl", bad=("true",)),
    Switch("aws:ecs/taskDefinition:TaskDefinition", "transitEncryption", good=("enabled",),
           default="DISABLED", parts="volumes.efsVolumeConfiguration"),
    Switch("aws:codebuild/project:Project", "source.insecureSsl", bad=("true",)),
    Switch("aws:codebuild/project:Project", "insecureSsl", bad=("true",),
           parts="secondarySources"),
    Switch("aws:apigateway/integration:Integration", "tlsConfig.insecureSkipVerification",
           bad=("true",)),
    Switch("aws:vpclattice/listener:Listener", "protocol", bad=("http",)),
    Switch("aws:appmesh/virtualGateway:VirtualGateway", "tls.mode", good=("strict",),
           default="DISABLED", parts="spec.listeners"),
    *(Switch(each, "lbProtocol", bad=("http",), parts="listeners") for each in CLASSIC),
    *(
        Switch(each, "viewerProtocolPolicy", bad=("allow-all",), parts=parts)
        for each in DISTRIBUTIONS
        for parts in ("defaultCacheBehavior", "orderedCacheBehaviors", "cacheBehaviors")
    ),
    Switch("aws:sagemaker/dataQualityJobDefinition:DataQualityJobDefinition",
           "networkConfig.enableInterContainerTrafficEncryption", good=("true",),
           default="false"),
    Switch("aws:sagemaker/monitoringSchedule:MonitoringSchedule",
           "networkConfig.enableInterContainerTrafficEncryption", good=("true",),
           default="false", parts="monitoringScheduleConfig.monitoringJobDefinition"),
)  # fmt: skip
_MEANS: Final = "traffic may go in plain text"


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
    if word(kind) != "redirect":
        return word(kind) == "fixed-response"
    return None if isinstance(protocol, Unknown) else word(protocol) == "https"


def _listener(resource: Resource, _: View) -> Iterator[Finding]:
    """A plain listener may only redirect to HTTPS.

    A gateway load balancer's has neither protocol nor port, and passes on what it is given.
    """
    protocol, port = (get(resource.properties, each) for each in ("protocol", "port"))
    if isinstance(protocol, Unknown):
        yield indeterminate("protocol", f"protocol {protocol.reason}")
        return
    if word(protocol) != "http" and not (protocol is ABSENT and port is not ABSENT):
        return
    actions = get(resource.properties, "defaultActions")
    if isinstance(actions, Unknown):
        yield indeterminate("defaultActions", f"defaultActions {actions.reason}")
        return
    led = [leads_to_https(each) for each in items(actions)]
    said = "protocol is HTTP" if word(protocol) else "protocol isn't given, which is HTTP"
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
        each.kind in LISTENERS and word(get(each.properties, "protocol")) == "http"
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
    {each.type for each in SWITCHES} | set(_SPECIAL),
    _CONTROLS,
    "Turn encryption in transit on in the property that the finding names. Let an HTTP listener "
    "do nothing but redirect to HTTPS, or leave it out.",
)
def plain_text(resource: Resource, view: View) -> Iterator[Finding]:
    """What clients and machines say to each other is encrypted."""
    for each in SWITCHES:
        if each.type == resource.kind:
            yield from each.findings(resource, _MEANS)
    if special := _SPECIAL.get(resource.kind):
        yield from special(resource, view)


BACKENDS: Final = (
    *(Switch(each, "protocol", bad=("http",)) for each in TARGET_GROUPS),
    Switch("aws:vpclattice/targetGroup:TargetGroup", "config.protocol", bad=("http",)),
    *(Switch(each, "instanceProtocol", bad=("http",), parts="listeners") for each in CLASSIC),
    *(
        Switch(each, "originProtocolPolicy", bad=("http-only",), parts=parts)
        for each in DISTRIBUTIONS
        for parts in ORIGINS
    ),
)  # fmt: skip


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
    if word(get(resource.properties, kind)) not in _FETCHES:
        return
    value = get(resource.properties, path)
    if isinstance(value, Unknown):
        made_from = view.referred(resource, path)
        if not made_from or any(each.kind not in _BY_ARN for each in made_from):
            yield indeterminate(path, f"{path} {value.reason}; it must begin with https://")
    elif word(value).startswith("http://"):
        yield violation(path, "the backend's address begins with http://, in plain text")


@rule(
    "encryption-aws-backend-plain-text",
    "Load balancers and APIs on AWS talk to their targets by TLS",
    Severity.MEDIUM,
    {each.type for each in BACKENDS} | set(_ADDRESSES),
    _CONTROLS,
    "Let the targets serve HTTPS (a certificate of their own will do: load balancers don't check "
    "it), and set the protocol of the target group or origin to HTTPS, or the scheme of an API's "
    "backend to https://.",
)
def backend_plain_text(resource: Resource, view: View) -> Iterator[Finding]:
    """Traffic is encrypted up to the machine that serves it, inside of the network as well."""
    for each in BACKENDS:
        if each.type == resource.kind:
            yield from each.findings(resource, "traffic to the targets goes in plain text")
    if resource.kind in _ADDRESSES:
        yield from _address(resource, view)


RULES: Final = (plain_text, backend_plain_text)
