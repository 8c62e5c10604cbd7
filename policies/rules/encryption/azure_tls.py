"""Azure: the oldest TLS that services accept, against the newest that each can insist on.

Where Azure's own least version is 1.2 by now, absence is 1.2; TLS 1.0 and 1.1 ended for most
services between October 2024 and August 2025
(https://learn.microsoft.com/azure/security/fundamentals/tls-support-ending). Values are those of
azure-native 3.29's enumerations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.types import azure

_VERSION: Final = re.compile(r"(?:tls)?v?[ _]?1[._]?([0-3])?", re.IGNORECASE)
_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2")


@dataclass(frozen=True)
class Minimum:
    """A setting that names the oldest TLS that is accepted.

    Attributes:
        names: types, as ``module:Type``.
        path: of the setting.
        default: minor version that holds where nothing is given; below zero where any version,
            or none at all, is accepted.
        highest: minor version of the newest TLS that the service can insist on.
        note: a clause where the highest needs a reason.
    """

    names: tuple[str, ...]
    path: str
    default: int
    highest: int = 2
    note: str = ""


MINIMA: Final = (
    # A default of TLS 1.0 and that 1.3 can't be insisted on: the SDK's own text, and
    # https://learn.microsoft.com/azure/storage/common/transport-layer-security-configure-minimum-version
    Minimum(
        ("storage:StorageAccount",), "minimumTlsVersion", 0,
        note="storage accounts speak TLS 1.3, but can't insist on it",
    ),
    Minimum(("sql:Server",), "minimalTlsVersion", 2, 3),
    Minimum(("sql:ManagedInstance",), "minimalTlsVersion", 2),
    Minimum(("servicebus:Namespace",), "minimumTlsVersion", 2, 3),
    Minimum(("eventhub:Namespace",), "minimumTlsVersion", 2),
    Minimum(
        (
            "eventgrid:Topic", "eventgrid:Domain", "eventgrid:Namespace",
            "eventgrid:PartnerNamespace",
        ),
        "minimumTlsVersionAllowed", 2,
    ),
    *(
        Minimum(
            (
                "eventgrid:EventSubscription", "eventgrid:DomainEventSubscription",
                "eventgrid:DomainTopicEventSubscription", "eventgrid:TopicEventSubscription",
                "eventgrid:SystemTopicEventSubscription",
                "eventgrid:PartnerTopicEventSubscription",
            ),
            f"{holder}.minimumTlsVersionAllowed", 2,
        )
        for holder in ("destination", "deliveryWithResourceIdentity.destination")
    ),
    Minimum(("cosmosdb:DatabaseAccount",), "minimalTlsVersion", 2),
    Minimum(("redis:Redis",), "minimumTlsVersion", 0),
    Minimum(("redisenterprise:RedisEnterprise",), "minimumTlsVersion", 2),
    Minimum(("web:WebApp", "web:WebAppSlot"), "siteConfig.minTlsVersion", 2, 3),
    Minimum(("web:WebApp", "web:WebAppSlot"), "siteConfig.scmMinTlsVersion", 2, 3),
    Minimum(("cdn:AFDCustomDomain",), "tlsSettings.minimumTlsVersion", 2, 3),
    Minimum(("cdn:CustomDomain",), "customHttpsParameters.minimumTlsVersion", 2),
    Minimum(("iothub:IotHubResource",), "properties.minTlsVersion", 2),
    Minimum(("hdinsight:Cluster",), "properties.minSupportedTlsVersion", 2),
    # The retired single servers; version 2 of the SDK has them under the names of today's too.
    Minimum(("dbformysql:Server", "dbforpostgresql:Server"), "properties.minimalTlsVersion", 2),
    Minimum(
        (
            "dbformysql:SingleServer", "dbforpostgresql:SingleServer", "dbformariadb:Server",
        ),
        "properties.minimalTlsVersion", -1,
    ),
)  # fmt: skip
_BY_TYPE: Final[dict[str, tuple[Minimum, ...]]] = {
    token: tuple(each for each in MINIMA if token in azure(*each.names))
    for minimum in MINIMA
    for token in azure(*minimum.names)
}


def minor(value: object) -> int | None:
    """The minor version of a TLS 1.x in any of Azure's spellings; None for what isn't one.

    ``TLS1_2``, ``1.2``, ``TLS12``, ``Tls12`` and ``TLSv1_2`` are all 2; ``Tls`` is 0.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    said = str(value).strip()
    if said.lower() == "tls":
        return 0
    found = _VERSION.fullmatch(said)
    return int(found[1] or 0) if found else None


def _judged(resource: Resource, each: Minimum) -> tuple[Any, int | None, str]:
    """The value, the minor version that it means, and a clause for where that comes from."""
    value = get(resource.properties, each.path)
    if value is ABSENT:
        means = f"TLS 1.{each.default}" if each.default >= 0 else "any TLS, or none,"
        return value, each.default, f"{each.path} isn't given, and by default {means} is accepted"
    return value, minor(value), f"{each.path} is {value!r}"


@rule(
    "encryption-azure-tls-old",
    "Nothing older than TLS 1.2 is accepted",
    Severity.HIGH,
    frozenset(_BY_TYPE),
    (*_CONTROLS, "cis-azure:9.3.6"),
    "Set the least version of TLS to the newest that the service can insist on, 1.2 or 1.3.",
)
def _old(resource: Resource, view: View) -> Iterator[Finding]:
    for each in _BY_TYPE.get(resource.kind, ()):
        value, version, said = _judged(resource, each)
        if is_unknown(value):
            yield indeterminate(each.path, f"{each.path} {value.reason}")
        elif version is None or version < 2:
            more = f" ({each.note})" if each.note else ""
            newest = f"TLS 1.{each.highest} is the newest that the service can insist on"
            yield violation(each.path, f"{said}; {newest}{more}")


_PARAMETERS: Final = azure("dbforpostgresql:Configuration", "dbformysql:Configuration")
_NAMED: Final = ("ssl_min_protocol_version", "tls_version")
_NEWEST: Final = {
    token: tuple(each for each in minima if each.highest > 2)
    for token, minima in _BY_TYPE.items()
    if any(each.highest > 2 for each in minima)
}


@rule(
    "encryption-azure-tls-1-3",
    "TLS 1.3 is demanded where the service can insist on it",
    Severity.MEDIUM,
    frozenset(_NEWEST) | _PARAMETERS,
    _CONTROLS,
    "Set the least version of TLS to 1.3; where clients can't speak it yet, waive the rule with a "
    "date.",
)
def _newest(resource: Resource, view: View) -> Iterator[Finding]:
    if resource.kind in _PARAMETERS:
        yield from _parameter(resource)
    for each in _NEWEST.get(resource.kind, ()):
        value, version, said = _judged(resource, each)
        if is_unknown(value):
            yield indeterminate(each.path, f"{each.path} {value.reason}")
        elif version == 2:
            yield violation(each.path, f"{said}; the service can insist on TLS 1.3")


def _parameter(resource: Resource) -> Iterator[Finding]:
    """The parameter of a database server that names its versions: one that isn't given is left
    to the server, and one that can't be seen to the rule for older versions."""
    name, value = text(resource.get("configurationName")).lower(), resource.get("value")
    listed = {minor(each) for each in text(value).split(",")}
    if name in _NAMED and isinstance(value, Unknown):
        yield indeterminate("value", f"the value of {name} {value.reason}")
    elif name == "ssl_min_protocol_version" and listed == {2}:
        yield violation("value", f"{name} is {text(value)}; the server can insist on TLS 1.3")
    elif name == "tls_version" and 2 in listed and 3 not in listed:
        yield violation("value", f"{name} is {text(value)}, without TLS 1.3")


RULES: tuple[Rule, ...] = (_old, _newest)
