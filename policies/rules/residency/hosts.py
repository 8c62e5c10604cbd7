"""Hosts outside of the country that anything is configured to send data to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    EVERY,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    rule,
    violation,
)
from falaj.policies.reading.hosts import foreign_service, host_of, is_listed, may_talk_to
from falaj.policies.reading.place import format_places
from falaj.policies.reading.walk import Leaf, decoded, is_document, walk
from falaj.policies.rules.residency.everywhere import CONTROLS

_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.12")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.:-]{0,40}://[^\s\"'<>|;,]+", re.IGNORECASE)
#: Keys whose whole text is a host or URL that is talked to.
_TALKS: Final = re.compile(
    r"(?i)(host|endpoint|url|uri|site|server|dsn|address|broker|target|exporter|collector)s?$"
)
#: Keys under which telemetry is sent, whatever the host.
_TELEMETRY: Final = re.compile(
    r"(?i)otel_exporter|otlp|webhook|sentry_dsn|remote_?write|telemetry|tracing_(url|endpoint)|"
    r"collector_(url|endpoint|host)|zipkin|jaeger_endpoint|fluent\w*_host|syslog"
)
#: Protocols that only carry data; what has a page at https:// may be but a link.
_CARRIES: Final = re.compile(
    r"(?i)(postgres(ql)?|mysql|mariadb|mssql|sqlserver|oracle|mongodb(\+srv)?|rediss?|amqps?|kafka|"
    r"nats|mqtts?|ftps?|sftp|smtps?|rtmps?|srt|rtp|udp|ldaps?|jdbc:.*|tcp|tls|grpcs?|syslog)://"
)
#: Schemes that mean a service by themselves.
_SERVICES: Final = {
    "gs": "Google Cloud Storage", "gcs": "Google Cloud Storage", "oss": "Alibaba's object storage",
}  # fmt: skip
#: Hosts of the clouds that say no region: named rules place what is behind them.
_SAYS_NOTHING: Final = (".windows.net", ".azure.com", ".azure.net", ".amazonaws.com", ".aws")
#: Types that name hosts to answer for, to filter or to block, and types with rules of their own.
_ONLY_NAMES: Final = (
    "aws:route53/", "aws:networkfirewall/", "aws:wafv2/", "kubernetes:", "aws:iam/", "azuread:",
)  # fmt: skip


def _texts(resource: Resource) -> Iterator[tuple[Leaf, str]]:
    if not resource.kind.startswith(_ONLY_NAMES):
        for leaf in walk(resource):
            if isinstance(leaf.value, str) and not is_document(leaf.value):
                yield leaf, decoded(leaf)


@rule(
    "residency-foreign-service",
    "Nothing is configured to send data to a service abroad",
    Severity.HIGH,
    EVERY,
    _CONTROLS,
    "Send telemetry, prompts and files to a service that runs in an allowed region; Falaj's "
    "stacks bring collectors of their own. A host that is known to be in the country goes into "
    "the setting allowedHosts.",
)
def service(resource: Resource, context: Context) -> Iterator[Finding]:
    """Hosts of known services for telemetry, models, data and messages."""
    for leaf, said in _texts(resource):
        hosts = [host_of(each) for each in _URL.findall(said)] if "://" in said else []
        if _TALKS.search(leaf.key):
            hosts.append(host_of(said))
        for host in dict.fromkeys(hosts):
            if (found := foreign_service(host)) and not is_listed(host, context.settings):
                yield violation(
                    format_path(leaf.path), f"{host} is {found}, abroad; {format_places(context)}"
                )


@rule(
    "residency-off-list-host",
    "Databases, queues and telemetry are at hosts that may have data",
    Severity.HIGH,
    EVERY,
    _CONTROLS,
    "Use a host of an allowed region or of one's own network, or add the host to the setting "
    "allowedHosts once it is sure that it is in the country.",
)
def off_list(resource: Resource, context: Context) -> Iterator[Finding]:
    """URLs of protocols that carry data, and every host under a key of telemetry."""
    for leaf, said in _texts(resource):
        path = format_path(leaf.path)
        urls = _URL.findall(said) if "://" in said else []
        hosts = [host_of(each) for each in urls if _CARRIES.match(each)]
        if _TELEMETRY.search(leaf.key):
            hosts.append(host_of(said))
        for host in dict.fromkeys(hosts):
            if (
                host
                and not foreign_service(host)
                and not host.endswith(_SAYS_NOTHING)
                and not may_talk_to(host, context.settings)
            ):
                yield violation(path, f"data goes to {host}, which no setting allows")
        for scheme in dict.fromkeys(each.partition(":")[0].lower() for each in urls):
            if found := _SERVICES.get(scheme):
                yield violation(path, f"data goes to {found}; {format_places(context)}")


RULES: tuple[Rule, ...] = (service, off_list)
