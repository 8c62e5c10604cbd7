"""Azure: ways in that aren't encrypted are closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2")

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
    _CONTROLS,
    "Turn encryption on where the finding points: HTTPS only, FTPS or no FTP at all, no port "
    "without TLS.",
)  # fmt: skip

_API: Final = azure("apimanagement:Api", "apimanagement:WorkspaceApi")
_GATEWAY: Final = azure("apimanagement:ApiManagementService")
_HOSTS: Final = azure("apimanagement:GatewayHostnameConfiguration")
#: Parts of the names of API Management's switches for what is weak:
#: https://learn.microsoft.com/azure/api-management/api-management-howto-manage-protocols-ciphers
_WEAK: Final = ("tls10", "tls11", "ssl30", "tripledes168")


@rule(
    "encryption-azure-api-protocols",
    "APIs are offered over HTTPS alone, without outdated protocols and ciphers",
    Severity.HIGH,
    _API | _GATEWAY | _HOSTS,
    _CONTROLS,
    "List `https` (and `wss`) alone in the API's protocols; leave SSL 3.0, TLS 1.0, TLS 1.1 and "
    "3DES off in the service's custom properties and its gateways' host names.",
)
def _api(resource: Resource, view: View) -> Iterator[Finding]:
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
    elif isinstance(properties, Mapping):
        for name, value in properties.items():
            if str(name).lower().endswith(_WEAK):
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
    _CONTROLS,
    "Set `require_secure_transport` to ON; `ssl_min_protocol_version` (PostgreSQL) or "
    "`tls_version` (MySQL) must not name anything older than TLS 1.2.",
)
def _parameters(resource: Resource, view: View) -> Iterator[Finding]:
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
    _CONTROLS,
    "Allow SMB 3.1.1 with AES-256-GCM alone; turn on SMB encryption of NetApp volumes, and use "
    "NFS 4.1, for restricted data with Kerberos, instead of NFS 3.",
)
def _files(resource: Resource, view: View) -> Iterator[Finding]:
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
    if view.data_class(resource).strip().lower() not in {"public", "internal", "confidential"}:
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
    _CONTROLS,
    "Let the address begin with https://: what is sent names images, resources and people, and "
    "often carries a token.",
)
def _hooks(resource: Resource, view: View) -> Iterator[Finding]:
    """What a resource of the stack says of its own address, on Azure, is HTTPS."""
    for path, value in select(resource.properties, _HOOKS[resource.kind]):
        if isinstance(value, Unknown):
            if not view.referred(resource, path):
                yield indeterminate(path, f"{path} {value.reason}; it must begin with https://")
        elif text(value).strip().lower().startswith("http://"):
            yield violation(path, "the address begins with http://, in plain text")


RULES: tuple[Rule, ...] = (_HTTPS_ONLY, _api, _parameters, _files, _hooks)
