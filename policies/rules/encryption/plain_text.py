"""Traffic that services would carry without encryption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

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
    format_path,
    get,
    indeterminate,
    is_true,
    items,
    leaves,
    number,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import aws, azure
from falaj.policies.rules.encryption.aws_readers import EMR, document
from falaj.wire.documents import is_mapping

# What takes callers in on AWS, by every name that it had in the SDK.

_MODULES: Final = ("lb", "alb", "elasticloadbalancingv2", "applicationloadbalancing")
LISTENERS: Final = frozenset(f"aws:{each}/listener:Listener" for each in _MODULES)
LISTENER_RULES: Final = frozenset(f"aws:{each}/listenerRule:ListenerRule" for each in _MODULES)
TARGET_GROUPS: Final = frozenset(f"aws:{each}/targetGroup:TargetGroup" for each in _MODULES)
#: Classic load balancers.
CLASSIC: Final = frozenset((
    "aws:elb/loadBalancer:LoadBalancer",
    "aws:elasticloadbalancing/loadBalancer:LoadBalancer",
))  # fmt: skip
DISTRIBUTIONS: Final = frozenset((
    "aws:cloudfront/distribution:Distribution",
    "aws:cloudfront/multitenantDistribution:MultitenantDistribution",
))  # fmt: skip
#: Where distributions describe servers of one's own that they fetch from; types differ in it.
ORIGINS: Final = ("origins.customOriginConfig", "origins.customOriginConfigs")


# Traffic that AWS services would carry without encryption, and what turns that off.
#
# Services that speak TLS only (KMS, DynamoDB, Kinesis, Lambda, ECR and most others) have nothing
# to set, so they aren't here. TCP listeners pass on what they are given, and aren't judged.

AWS_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32",
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


def _domain(resource: Resource, _: Context) -> Iterator[Finding]:
    """Without the block the service takes HTTP as well; in it, the provider's default is HTTPS.

    https://docs.aws.amazon.com/opensearch-service/latest/developerguide/infrastructure-security.html
    """
    if get(resource.properties, "domainEndpointOptions") is ABSENT:
        why = "enforceHttps isn't given, and by default HTTP is taken as well"
        yield violation("domainEndpointOptions.enforceHttps", why)


def _training(resource: Resource, _: Context) -> Iterator[Finding]:
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


def _emr(resource: Resource, _: Context) -> Iterator[Finding]:
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


def _listener(resource: Resource, _: Context) -> Iterator[Finding]:
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
    clause = "protocol is HTTP" if scalar(protocol) else "protocol isn't given, which is HTTP"
    if False in led or not led:
        yield violation("protocol", f"{clause}, and the listener doesn't only redirect to HTTPS")
    elif None in led:
        yield indeterminate(
            "defaultActions", f"{clause}, and nobody sees whether it only redirects"
        )


def _listener_rule(resource: Resource, context: Context) -> Iterator[Finding]:
    """A rule of a plain listener may not lead past its redirection."""
    led = [leads_to_https(each) for each in items(get(resource.properties, "actions"))]
    if all(led):
        return
    if context.stack is None:
        yield indeterminate("actions", "nobody knows yet whether the listener speaks HTTP")
    elif any(
        each.kind in LISTENERS and scalar(get(each.properties, "protocol")) == "http"
        for each in context.referred(resource, "listenerArn")
    ):
        if False in led:
            yield violation("actions", "a rule of an HTTP listener doesn't only redirect to HTTPS")
        else:
            yield indeterminate("actions", "a rule of an HTTP listener whose actions are hidden")


Special = Callable[[Resource, Context], Iterator[Finding]]
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
    AWS_CONTROLS,
    "Turn encryption in transit on in the property that the finding names. Let an HTTP listener "
    "do nothing but redirect to HTTPS, or leave it out.",
)
def plain_text(resource: Resource, context: Context) -> Iterator[Finding]:
    """What clients and machines say to each other is encrypted."""
    yield from _REQUIRED(resource, context)
    if special := _SPECIAL.get(resource.kind):
        yield from special(resource, context)


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


def _address(resource: Resource, context: Context) -> Iterator[Finding]:
    """An API's backend is fetched at an address whose scheme says whether TLS is spoken."""
    path, kind = _ADDRESSES[resource.kind]
    if scalar(get(resource.properties, kind)) not in _FETCHES:
        return
    value = get(resource.properties, path)
    if isinstance(value, Unknown):
        made_from = context.referred(resource, path)
        if not made_from or any(each.kind not in _BY_ARN for each in made_from):
            yield indeterminate(path, f"{path} {value.reason}; it must begin with https://")
    elif scalar(value).startswith("http://"):
        yield violation(path, "the backend's address begins with http://, in plain text")


@rule(
    "encryption-aws-backend-plain-text",
    "Load balancers and APIs on AWS talk to their targets by TLS",
    Severity.MEDIUM,
    frozenset[str]().union(*BACKENDS, _ADDRESSES),
    AWS_CONTROLS,
    "Let the targets serve HTTPS (a certificate of their own will do: load balancers don't check "
    "it), and set the protocol of the target group or origin to HTTPS, or the scheme of an API's "
    "backend to https://.",
)
def backend_plain_text(resource: Resource, context: Context) -> Iterator[Finding]:
    """Traffic is encrypted up to the machine that serves it, inside of the network as well."""
    yield from _BACKENDS(resource, context)
    if resource.kind in _ADDRESSES:
        yield from _address(resource, context)


# Azure: ways in that aren't encrypted are closed.

AZURE_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2")

_HTTPS_ONLY: Final = requirement_rule(
    "encryption-azure-plain-text",
    "Services accept encrypted connections only",
    Severity.HIGH,
    {
        azure("storage:StorageAccount"): (
            Requirement("enableHttpsTrafficOnly", ("true",), "true"),
            # NFS 3 has no encryption of its own:
            # https://learn.microsoft.com/azure/storage/blobs/network-file-system-protocol-support
            Requirement("enableNfsV3", ("false",), "false"),
        ),
        azure("web:WebApp", "web:WebAppSlot"): (
            Requirement("httpsOnly", ("true",), "false"),
            Requirement(
                "siteConfig.ftpsState", ("disabled", "ftpsonly"), "allallowed",
                "of versions of the API that don't set it",
            ),
        ),
        azure("web:WebAppAuthSettingsV2", "web:WebAppAuthSettingsV2Slot"): (
            Requirement("httpSettings.requireHttps", ("true",), "true"),
        ),
        azure("redis:Redis"): (Requirement("enableNonSslPort", ("false",), "false"),),
        azure("redisenterprise:Database"): (
            Requirement("clientProtocol", ("encrypted",), "encrypted"),
        ),
        azure("app:ContainerApp"): (
            Requirement("configuration.ingress.allowInsecure", ("false",), "false"),
        ),
        azure("app:ManagedEnvironment"): (
            Requirement(
                "insecure", ("false",), "false",
                each="openTelemetryConfiguration.destinationsConfiguration.otlpConfigurations",
            ),
        ),
        azure("app:ContainerAppsAuthConfig"): (
            Requirement("httpSettings.requireHttps", ("true",), "true"),
        ),
        azure("cdn:Endpoint"): (Requirement("isHttpAllowed", ("false",), "true"),),
        azure("dbformysql:SingleServer", "dbforpostgresql:SingleServer", "dbformariadb:Server"): (
            Requirement("properties.sslEnforcement", ("enabled",), "disabled"),
        ),
        # Version 2 of the SDK has the single servers under the names of today's.
        azure("dbformysql:Server", "dbforpostgresql:Server"): (
            Requirement("properties.sslEnforcement", ("enabled",), "enabled"),
        ),
        azure("hdinsight:Cluster"): (
            Requirement(
                "properties.encryptionInTransitProperties.isEncryptionInTransitEnabled",
                ("true",), "false",
            ),
        ),
        azure("appplatform:App"): (Requirement("properties.httpsOnly", ("true",), "false"),),
        azure("appplatform:Gateway", "appplatform:ApiPortal"): (
            Requirement("properties.httpsOnly", ("true",), "false"),
        ),
        azure("machinelearningservices:MachineLearningDatastore"): (
            Requirement("enforceSSL", ("true",), "true"),
        ),
        azure("iotoperations:Broker"): (
            Requirement("properties.advanced.encryptInternalTraffic", ("enabled",), "enabled"),
        ),
        azure("databoxedge:StorageAccountCredential"): (Requirement("sslStatus", ("enabled",)),),
        azure("aad:DomainService"): (
            Requirement("domainSecuritySettings.tlsV1", ("disabled",), "enabled"),
            Requirement("domainSecuritySettings.ntlmV1", ("disabled",), "enabled"),
        ),
        azure("network:VirtualWan"): (Requirement("disableVpnEncryption", ("false",), "false"),),
    },
    AZURE_CONTROLS,
    "Turn encryption on where the finding points: HTTPS only, FTPS or no FTP at all, no port "
    "without TLS.",
)  # fmt: skip

_API: Final = azure("apimanagement:Api", "apimanagement:WorkspaceApi")
_GATEWAY: Final = azure("apimanagement:ApiManagementService")
_HOSTS: Final = azure("apimanagement:GatewayHostnameConfiguration")
#: Parts of the names of API Management's switches for what is weak:
#: https://learn.microsoft.com/azure/api-management/api-management-howto-manage-protocols-ciphers
_AZURE_WEAK: Final = ("tls10", "tls11", "ssl30", "tripledes168")


@rule(
    "encryption-azure-api-protocols",
    "APIs are offered over HTTPS alone, without outdated protocols and ciphers",
    Severity.HIGH,
    _API | _GATEWAY | _HOSTS,
    AZURE_CONTROLS,
    "List `https` (and `wss`) alone in the API's protocols; leave SSL 3.0, TLS 1.0, TLS 1.1 and "
    "3DES off in the service's custom properties and its gateways' host names.",
)
def _api(resource: Resource, context: Context) -> Iterator[Finding]:
    if resource.kind in _GATEWAY:
        yield from _switches(resource.get("customProperties"))
    elif resource.kind in _HOSTS:
        for path in ("tls10Enabled", "tls11Enabled"):
            yield from _off(path, resource.get(path))
    else:
        for path, value in select(resource.properties, "protocols"):
            if isinstance(value, Unknown):
                yield indeterminate(path, f"{path} {value.reason}")
            elif text(value).lower() in {"http", "ws"}:
                yield violation(path, f"the API is offered over {text(value)}, in plain text")


def _switches(properties: Any) -> Iterator[Finding]:
    if isinstance(properties, Unknown):
        yield indeterminate("customProperties", f"customProperties {properties.reason}")
    elif is_mapping(properties):
        for name, value in properties.items():
            if str(name).lower().endswith(_AZURE_WEAK):
                yield from _off(f'customProperties["{name}"]', value)


def _off(path: str, value: Any) -> Iterator[Finding]:
    if isinstance(value, Unknown):
        yield indeterminate(path, f"{path} {value.reason}")
    elif is_true(value):
        yield violation(path, f"{path} is true, which lets an outdated protocol or cipher in")


_MYSQL: Final = azure("dbformysql:Configuration", "dbformysql:SingleServerConfiguration")
_POSTGRESQL: Final = azure(
    "dbforpostgresql:Configuration", "dbforpostgresql:SingleServerConfiguration"
)


@rule(
    "encryption-azure-database-transport",
    "Parameters of database servers demand TLS 1.2 or newer",
    Severity.HIGH,
    _MYSQL | _POSTGRESQL,
    AZURE_CONTROLS,
    "Set `require_secure_transport` to ON; `ssl_min_protocol_version` (PostgreSQL) or "
    "`tls_version` (MySQL) must not name anything older than TLS 1.2.",
)
def _parameters(resource: Resource, context: Context) -> Iterator[Finding]:
    name, value = resource.get("configurationName"), resource.get("value")
    named = text(name).lower() or resource.name.lower()
    for parameter, is_weak in _PARAMETERS.items():
        if isinstance(name, Unknown):
            if is_weak(value):
                yield indeterminate("configurationName", f"configurationName {name.reason}")
        elif named != parameter:
            continue
        elif isinstance(value, Unknown):
            yield indeterminate("value", f"the value of {parameter} {value.reason}")
        elif is_weak(value):
            yield violation("value", f"{parameter} is {text(value) or 'off'}")


def _is_off(value: object) -> bool:
    return text(value).lower() in {"off", "0", "false"} or value is False


def _is_old(value: object) -> bool:
    listed = [each.strip().lower() for each in text(value).split(",")]
    return any(each in {"tlsv1", "tlsv1.0", "tlsv1.1", "sslv3"} for each in listed)


_PARAMETERS: Final = {
    "require_secure_transport": _is_off,
    "ssl_min_protocol_version": _is_old,
    "tls_version": _is_old,
}

_FILES: Final = azure("storage:FileServiceProperties")
_VOLUMES: Final = azure("netapp:CapacityPoolVolume", "netapp:Volume")


@rule(
    "encryption-azure-file-transport",
    "Shares are mounted with encryption",
    Severity.HIGH,
    _FILES | _VOLUMES,
    AZURE_CONTROLS,
    "Allow SMB 3.1.1 with AES-256-GCM alone; turn on SMB encryption of NetApp volumes, and use "
    "NFS 4.1, for restricted data with Kerberos, instead of NFS 3.",
)
def _files(resource: Resource, context: Context) -> Iterator[Finding]:
    """Kerberos is asked of restricted data only: it needs a domain that all clients join."""
    if resource.kind in _FILES:
        yield from _smb(resource)
        return
    listed: set[str] = set()
    for path, each in select(resource.properties, "protocolTypes"):
        if isinstance(each, Unknown):
            yield indeterminate(path, f"{path} {each.reason}")
            return
        listed.add(text(each).lower())
    if "nfsv3" in listed or not listed:
        why = "NFS 3 has no encryption" if listed else "protocolTypes isn't given, so it is NFS 3"
        yield violation("protocolTypes", f"{why}; NFS 4.1 or SMB 3 is allowed")
    for path, each in select(resource.properties, "exportPolicy.rules.nfsv3"):
        if is_true(each):
            yield violation(path, "clients may use NFS 3, which has no encryption")
    wanted = {"cifs": "smbEncryption"}
    if context.is_restricted(resource):
        wanted["nfsv4.1"] = "kerberosEnabled"
    for protocol, path in wanted.items():
        value = resource.get(path)
        if protocol in listed and isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
        elif protocol in listed and not is_true(value):
            yield violation(path, f"{path} isn't true, so {protocol} is in plain text")


def _smb(resource: Resource) -> Iterator[Finding]:
    smb = "protocolSettings.smb"
    for path, weak in (
        (f"{smb}.versions", ("smb2.1", "smb3.0")),
        (f"{smb}.channelEncryption", ("aes-128-ccm", "aes-128-gcm")),
        (f"{smb}.kerberosTicketEncryption", ("rc4-hmac",)),
    ):
        value = resource.get(path)
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
            continue
        listed = [each.strip().lower() for each in text(value).split(";")]
        if found := [each for each in listed if each in weak]:
            yield violation(path, f"{path} allows {', '.join(found)}")


_HOOKS: Final = {
    **dict.fromkeys(azure("containerregistry:Webhook"), "serviceUri"),
    **dict.fromkeys(azure("monitor:ActionGroup"), "webhookReceivers.serviceUri"),
}


@rule(
    "encryption-azure-webhook",
    "Services tell others what happens over HTTPS only",
    Severity.MEDIUM,
    frozenset(_HOOKS),
    AZURE_CONTROLS,
    "Let the address begin with https://: what is sent names images, resources and people, and "
    "often carries a token.",
)
def _hooks(resource: Resource, context: Context) -> Iterator[Finding]:
    """What a resource of the stack says of its own address, on Azure, is HTTPS."""
    for path, value in select(resource.properties, _HOOKS[resource.kind]):
        if isinstance(value, Unknown):
            if not context.referred(resource, path):
                yield indeterminate(path, f"{path} {value.reason}; it must begin with https://")
        elif text(value).strip().lower().startswith("http://"):
            yield violation(path, "the address begins with http://, in plain text")


# Azure: tunnels between networks use algorithms that still hold.

_CONNECTIONS: Final = azure("network:VirtualNetworkGatewayConnection")
_TYPES: Final = _CONNECTIONS | azure(
    "network:VirtualNetworkGateway",
    "network:VpnConnection",
    "network:VpnGateway",
    "network:VpnServerConfiguration",
    "network:P2sVpnServerConfiguration",
)
#: What RFC 8247 and RFC 8221 say must not or should not be used, by setting, in small letters.
_VPN_WEAK: Final = {
    "ikeEncryption": {"des", "des3"},
    "ikeIntegrity": {"md5", "sha1"},
    "ipsecEncryption": {"none", "des", "des3"},
    "ipsecIntegrity": {"md5", "sha1"},
    "dhGroup": {"none", "dhgroup1", "dhgroup2", "dhgroup24"},
    "pfsGroup": {"none", "pfs1", "pfs2", "pfs24"},
    "connectionProtocol": {"ikev1"},
    "vpnConnectionProtocolType": {"ikev1"},
    "vpnType": {"policybased"},
}


@rule(
    "encryption-azure-vpn",
    "Tunnels use IKEv2 with AES-256, SHA-256 and groups of 2048 bits or more",
    Severity.MEDIUM,
    _TYPES,
    ("iso27001:A.8.24", "iso27001:A.8.20", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Give the connection an `ipsecPolicies` entry of its own: IKEv2, AES256 or GCMAES256, SHA256 "
    "or SHA384, DHGroup14 or an elliptic curve, and the same for perfect forward secrecy.",
)
def _vpn(resource: Resource, context: Context) -> Iterator[Finding]:
    for path, value in leaves(resource.properties):
        name = next((each for each in reversed(path) if isinstance(each, str)), "")
        if name in _VPN_WEAK and isinstance(value, Unknown):
            yield indeterminate(format_path(path), f"{name} {value.reason}")
        elif text(value).lower() in _VPN_WEAK.get(name, ()):
            yield violation(
                format_path(path), f"{name} is {text(value)}, which is broken or too short"
            )
    policies = resource.get("ipsecPolicies")
    if isinstance(policies, Unknown):
        yield indeterminate("ipsecPolicies", f"ipsecPolicies {policies.reason}")
    elif (
        resource.kind in _CONNECTIONS
        and (policies is ABSENT or policies == [])
        and text(resource.get("connectionType")).lower() == "ipsec"
    ):
        # https://learn.microsoft.com/azure/vpn-gateway/vpn-gateway-about-vpn-devices#ipsec
        why = "ipsecPolicies isn't given, and Azure's own proposals include SHA1 and DHGroup2"
        yield violation("ipsecPolicies", why)


# Azure: services of several machines encrypt what these say to one another and keep.

_FABRIC: Final = azure("servicefabric:Cluster")
_ENVIRONMENTS: Final = azure("web:AppServiceEnvironment")
_LEVEL: Final = "encryptandsign"


@rule(
    "encryption-azure-cluster-transport",
    "Machines of a cluster encrypt what they say to one another",
    Severity.HIGH,
    _FABRIC | _ENVIRONMENTS,
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Service Fabric: set `ClusterProtectionLevel` in the section `Security` to EncryptAndSign. "
    "App Service environments: set `InternalEncryption` in `clusterSettings` to true.",
)
def _between(resource: Resource, context: Context) -> Iterator[Finding]:
    """Service Fabric protects nothing by default, and neither does an environment.

    https://learn.microsoft.com/azure/service-fabric/service-fabric-cluster-fabric-settings
    https://learn.microsoft.com/azure/app-service/environment/app-service-app-service-environment-custom-settings
    """
    if resource.kind in _ENVIRONMENTS:
        found = _named(resource.get("clusterSettings"), "clusterSettings", "internalencryption")
        yield from _must_be(found, "true", "clusterSettings", "InternalEncryption")
        return
    path, section = _named(resource.get("fabricSettings"), "fabricSettings", "security")
    inner = f"{path}.parameters" if path else ""
    found = _named(get(section, "parameters"), inner, "clusterprotectionlevel")
    if isinstance(section, Unknown):
        found = path, section
    yield from _must_be(found, _LEVEL, "fabricSettings", "ClusterProtectionLevel")


def _named(pairs: Any, path: str, name: str) -> tuple[str, Any]:
    """The pair of a name with its path, an Unknown where it may be among what can't be seen."""
    hidden: tuple[str, Any] = "", ABSENT
    for at, each in entries(pairs, path):
        own = get(each, "name")
        if isinstance(own, Unknown):
            hidden = at, own
        elif text(own).lower() == name:
            return at, each
    return hidden


def _must_be(found: tuple[str, Any], wanted: str, holder: str, name: str) -> Iterator[Finding]:
    path, pair = found
    value = pair if isinstance(pair, Unknown) else get(pair, "value")
    if isinstance(value, Unknown):
        yield indeterminate(path or holder, f"{name} {value.reason}")
    elif str(value).strip().lower() != wanted:
        given = f"is {text(value) or value}" if value is not ABSENT else "isn't given"
        yield violation(f"{path}.value" if path else holder, f"{name} {given}")


_POOLS: Final = azure("synapse:SqlPool")
_TDE: Final = azure("synapse:SqlPoolTransparentDataEncryption")


@rule(
    "encryption-azure-synapse-pool",
    "SQL pools of Synapse have transparent data encryption",
    Severity.HIGH,
    _POOLS,
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32"),
    "Add a `SqlPoolTransparentDataEncryption` with the status Enabled for the pool, or make its "
    "workspace with a customer-managed key, which encrypts all its pools.",
)
def _pool(resource: Resource, context: Context) -> Iterator[Finding]:
    """A dedicated pool has none by default, unless its workspace has a customer's key.

    https://learn.microsoft.com/azure/synapse-analytics/security/workspaces-encryption
    """
    if context.stack is None:
        why = "whether the pool has transparent data encryption is known with the whole stack"
        yield indeterminate("", why)
        return
    found = children(context, resource, _TDE, "sqlPoolName")
    if found or any(_has_key(each) for each in _workspaces(resource, context)):
        return
    if not _workspaces(resource, context):
        why = "its workspace isn't of this stack, so nobody knows whether it has a key"
        yield indeterminate("workspaceName", why)
        return
    yield violation("", "no transparent data encryption is given, and by default there is none")


def _workspaces(resource: Resource, context: Context) -> list[Resource]:
    if context.stack is None:
        return []
    return [
        each
        for each in context.stack.of_kind("azure-native:synapse:Workspace")
        if any(one.urn == resource.urn for one in children(context, each, _POOLS, "workspaceName"))
    ]


def _has_key(workspace: Resource) -> bool:
    value = workspace.get("encryption.cmk.key")
    return isinstance(value, Unknown) or value is not ABSENT


_NETWORKS: Final = azure("network:VirtualNetwork")


@rule(
    "encryption-azure-network",
    "Virtual networks of restricted data encrypt what their machines say",
    Severity.MEDIUM,
    _NETWORKS,
    ("iso27001:A.8.24", "iso27001:A.8.20", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Set `encryption.enabled` of the virtual network to true; it works between machines of sizes "
    "with accelerated networking. AKS refuses it where the API server stands in the network: "
    "encrypt in what runs on the nodes (TLS) there, and waive the rule with that reason.",
)
def _network(resource: Resource, context: Context) -> Iterator[Finding]:
    if not context.is_restricted(resource):
        return
    value = resource.get("encryption.enabled")
    if isinstance(value, Unknown):
        yield indeterminate("encryption.enabled", f"encryption.enabled {value.reason}")
    elif not is_true(value):
        given = "isn't given, and is off by default" if value is ABSENT else "is off"
        yield violation("encryption.enabled", f"encryption.enabled {given}")


RULES: tuple[Rule, ...] = (
    plain_text,
    backend_plain_text,
    _HTTPS_ONLY,
    _api,
    _parameters,
    _files,
    _hooks,
    _vpn,
    _between,
    _pool,
    _network,
)
