"""The oldest TLS that services accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_list,
    is_true,
    is_unknown,
    items,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.plain_text import (
    AWS_CONTROLS,
    AZURE_CONTROLS,
    CLASSIC,
    DISTRIBUTIONS,
    LISTENERS,
    ORIGINS,
)
from falaj.policies.rules.encryption.stores import where
from falaj.wire.documents import is_mapping

# The oldest TLS that AWS services take, against the newest that each can insist on.
#
# Services whose oldest TLS can't be set take TLS 1.2 and 1.3 by now, and aren't here
# (https://aws.amazon.com/blogs/security/tls-1-2-required-for-aws-endpoints/).

#: Minor version of TLS 1 that a name stands for, or None where nobody knows the name.
Grade = Callable[[str], float | None]
#: Below every version: SSL.
_SSL: Final = -1


def _aws_balancer(name: str) -> float | None:
    """https://docs.aws.amazon.com/elasticloadbalancing/latest/application/describe-ssl-policies.html"""
    if found := re.match(r"ELBSecurityPolicy-TLS13-1-([0-3])-", name):
        return int(found[1])
    if found := re.match(r"ELBSecurityPolicy-(?:TLS|FS)-1-([0-2])-", name):
        return int(found[1])
    return 0 if name.startswith("ELBSecurityPolicy-") else None


def _viewer(name: str) -> float | None:
    """https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/secure-connections-supported-viewer-protocols-ciphers.html"""
    if name.upper().startswith("SSL"):
        return _SSL
    found = re.fullmatch(r"TLSv1(?:\.([0-3]))?(?:_\d{4})?", name)
    return int(found[1] or 0) if found else None


def _api(name: str) -> float | None:
    """https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-security-policies-list.html"""
    found = re.match(r"(?:SecurityPolicy_TLS1[23]_1|TLS_1)_([0-3])(?:_|$)", name)
    return int(found[1]) if found else None


def _search(name: str) -> float | None:
    """None insists on TLS 1.3; the newest ones offer it, which counts as much here.

    https://docs.aws.amazon.com/opensearch-service/latest/APIReference/API_DomainEndpointOptions.html
    """
    if re.match(r"Policy-Min-TLS-1-2-(PFS|RFC9151)", name):
        return 3
    found = re.match(r"Policy-Min-TLS-1-([0-3])-", name)
    return int(found[1]) if found else None


def _things(name: str) -> float | None:
    """https://docs.aws.amazon.com/iot/latest/developerguide/transport-security.html"""
    found = re.match(r"IoTSecurityPolicy_TLS1[23]_1_([0-3])_", name)
    return int(found[1]) if found else None


def _transfer(name: str) -> float | None:
    """SSH's ciphers and TLS 1.2 alike age with the policy's year; TLS 1.3 can't be asked for.

    https://docs.aws.amazon.com/transfer/latest/userguide/security-policies.html
    """
    year = re.search(r"-(20\d\d)-", name)
    if not name.startswith("TransferSecurityPolicy-") or year is None:
        return None
    return 3 if int(year[1]) >= 2024 else 2


@dataclass(frozen=True)
class Taken:
    """The oldest TLS that a setting lets in."""

    path: str
    clause: str
    """A clause about what is given."""
    version: float | Unknown | None
    """The minor version of TLS 1; None where nobody knows the name."""
    highest: float


@dataclass(frozen=True)
class AwsMinimum:
    """A setting that names the oldest TLS that is taken.

    Attributes:
        types: in their one spelling.
        path: of the setting, in each of its `parts`, else in the properties.
        grade: what its values stand for.
        default: what holds where it isn't given; a text, or a function of the properties, empty
            where then nothing is there that takes TLS.
        parts: path of the blocks that each have the setting.
        only: a path and the values, in lower case, of which it must have one.
        highest: minor version of the newest TLS that can be insisted on; a function where the
            properties tell.
        newest: how a value that does so is called.
    """

    types: frozenset[str]
    path: str
    grade: Grade
    default: str | Callable[[Any], str]
    newest: str
    parts: str = ""
    only: tuple[str, tuple[str, ...]] = ("", ())
    highest: Callable[[Any], float] = lambda _: 3

    @property
    def _name(self) -> str:
        return self.path.rpartition(".")[2]

    def read(self, resource: Resource) -> Iterator[Taken]:
        """Path, a clause about what is given, its minor version, and the highest possible."""
        if not self.parts:
            yield from self._read(resource.properties, "")
            return
        for path, block in select(resource.properties, self.parts):
            if isinstance(block, Unknown):
                yield Taken(path, path, block, 3)
            else:
                yield from self._read(block, path)

    def _read(self, block: Any, at: str) -> Iterator[Taken]:
        if self.only[0]:
            kind = get(block, self.only[0])
            if not isinstance(kind, Unknown) and scalar(kind) not in self.only[1]:
                return
        value, path, highest = get(block, self.path), where(block, self.path, at), self.highest
        if value is ABSENT:
            default = self.default if isinstance(self.default, str) else self.default(block)
            if default:
                message = f"{self._name} isn't given, and the default is {default}"
                yield Taken(path, message, self.grade(default), highest(block))
            return
        listed = enumerate(items(value)) if is_list(value) else ((None, value),)
        for index, each in listed:
            here = path if index is None else f"{at}{'.' if at else ''}{self.path}[{index}]"
            if isinstance(each, Unknown):
                yield Taken(here, self._name, each, highest(block))
            else:
                name = text(each) or scalar(each)
                message = f"{self._name} is {name or 'no plain text'}"
                yield Taken(here, message, self.grade(name), highest(block))


def _of_api(properties: Any) -> str:
    """Without a policy, private APIs take TLS 1.2, others 1.0, at their own address if it's on."""
    if is_true(get(properties, "disableExecuteApiEndpoint")):
        return ""
    kinds = {scalar(each) for each in items(get(properties, "endpointConfiguration.types"))}
    return "TLS_1_2" if "private" in kinds else "TLS_1_0"


def _of_domain(properties: Any) -> float:
    """With mutual TLS, no policy that insists on TLS 1.3 can be had."""
    return 3 if get(properties, "mutualTlsAuthentication") is ABSENT else 2


_DEFAULT_CERTIFICATE: Final = "viewerCertificate.cloudfrontDefaultCertificate"
AWS_MINIMA: Final = (
    AwsMinimum(
        LISTENERS, "sslPolicy", _aws_balancer, "ELBSecurityPolicy-2016-08",
        "ELBSecurityPolicy-TLS13-1-3-2021-06", only=("protocol", ("https", "tls")),
    ),
    AwsMinimum(
        DISTRIBUTIONS, "viewerCertificate.minimumProtocolVersion", _viewer, "TLSv1",
        "TLSv1.3_2025", only=(_DEFAULT_CERTIFICATE, ("", "false")),
    ),
    # CloudFront's own certificate goes with TLSv1, whatever else is given.
    AwsMinimum(
        DISTRIBUTIONS, _DEFAULT_CERTIFICATE, lambda name: 0 if name == "true" else 3, "",
        "a certificate of your own with TLSv1.3_2025",
    ),
    *(
        AwsMinimum(
            DISTRIBUTIONS, "originSslProtocols", _viewer, "", "TLSv1.2", parts=parts,
            highest=lambda _: 2,
        )
        for parts in ORIGINS
    ),
    AwsMinimum(
        frozenset({"aws:apigateway/domainName:DomainName"}), "securityPolicy", _api, "TLS_1_2",
        "SecurityPolicy_TLS13_1_3_2025_09", highest=_of_domain,
    ),
    AwsMinimum(
        frozenset({"aws:apigateway/restApi:RestApi"}), "securityPolicy", _api, _of_api,
        "SecurityPolicy_TLS13_1_3_2025_09",
    ),
    AwsMinimum(
        frozenset({"aws:apigatewayv2/domainName:DomainName"}),
        "domainNameConfiguration.securityPolicy", _api, "TLS_1_2", "TLS_1_2",
        highest=lambda _: 2,
    ),
    AwsMinimum(
        frozenset({"aws:opensearch/domain:Domain", "aws:elasticsearch/domain:Domain"}),
        "domainEndpointOptions.tlsSecurityPolicy", _search, "Policy-Min-TLS-1-0-2019-07",
        "Policy-Min-TLS-1-2-PFS-2023-10",
    ),
    AwsMinimum(
        frozenset({"aws:iot/domainConfiguration:DomainConfiguration"}),
        "tlsConfig.securityPolicy", _things, "IoTSecurityPolicy_TLS13_1_2_2022_10",
        "IoTSecurityPolicy_TLS13_1_3_2022_10",
    ),
    AwsMinimum(
        frozenset({"aws:transfer/server:Server"}), "securityPolicyName", _transfer,
        "TransferSecurityPolicy-2018-11", "TransferSecurityPolicy-2025-03",
    ),
)  # fmt: skip
_TYPES: Final = frozenset(kind for each in AWS_MINIMA for kind in each.types)


def _aws_judged(
    resource: Resource,
) -> Iterator[tuple[AwsMinimum, Taken]]:
    for each in AWS_MINIMA:
        if resource.kind in each.types:
            yield from ((each, taken) for taken in each.read(resource))


@rule(
    "encryption-aws-tls-old",
    "Services on AWS take no TLS older than 1.2",
    Severity.HIGH,
    _TYPES,
    AWS_CONTROLS,
    "Set the property that the finding names to the value that it names last.",
)
def tls_old(resource: Resource, context: Context) -> Iterator[Finding]:
    """SSL, TLS 1.0 and 1.1 are broken or withdrawn (https://www.rfc-editor.org/rfc/rfc8996)."""
    for each, taken in _aws_judged(resource):
        if isinstance(taken.version, Unknown):
            why = f"{taken.clause} {taken.version.reason}; it must be {each.newest}"
            yield indeterminate(taken.path, why)
        elif taken.version is not None and taken.version < 2:
            why = f"{taken.clause}, which takes TLS older than 1.2; use {each.newest}"
            yield violation(taken.path, why)


@rule(
    "encryption-aws-tls-1-3",
    "Services on AWS insist on the newest TLS that they offer",
    Severity.MEDIUM,
    _TYPES,
    AWS_CONTROLS,
    "Set the property that the finding names to the value that it names last; where callers can't "
    "speak TLS 1.3 yet, waive the rule for that resource until they can.",
)
def tls_newest(resource: Resource, context: Context) -> Iterator[Finding]:
    """TLS 1.3 where the service can insist on it, else the highest that it can.

    What is older than 1.2 is left to `tls_old`: one cause, one finding.
    """
    for each, taken in _aws_judged(resource):
        if isinstance(taken.version, Unknown):
            why = f"{taken.clause} {taken.version.reason}; it must be {each.newest}"
            yield indeterminate(taken.path, why)
        elif taken.version is None:
            why = f"{taken.clause}, a name that isn't known here; use {each.newest}"
            yield violation(taken.path, why)
        elif 2 <= taken.version < taken.highest:
            why = f"{taken.clause}, and the service can insist on newer; use {each.newest}"
            yield violation(taken.path, why)


# Azure: the oldest TLS that services accept, against the newest that each can insist on.
#
# Where Azure's own least version is 1.2 by now, absence is 1.2; TLS 1.0 and 1.1 ended for most
# services between October 2024 and August 2025
# (https://learn.microsoft.com/azure/security/fundamentals/tls-support-ending). Values are those of
# azure-native 3.29's enumerations.

_VERSION: Final = re.compile(r"(?:tls)?v?[ _]?1[._]?([0-3])?", re.IGNORECASE)


@dataclass(frozen=True)
class AzureMinimum:
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


AZURE_MINIMA: Final = (
    # A default of TLS 1.0 and that 1.3 can't be insisted on: the SDK's own text, and
    # https://learn.microsoft.com/azure/storage/common/transport-layer-security-configure-minimum-version
    AzureMinimum(
        ("storage:StorageAccount",), "minimumTlsVersion", 0,
        note="storage accounts speak TLS 1.3, but can't insist on it",
    ),
    AzureMinimum(("sql:Server",), "minimalTlsVersion", 2, 3),
    AzureMinimum(("sql:ManagedInstance",), "minimalTlsVersion", 2),
    AzureMinimum(("servicebus:Namespace",), "minimumTlsVersion", 2, 3),
    AzureMinimum(("eventhub:Namespace",), "minimumTlsVersion", 2),
    AzureMinimum(
        (
            "eventgrid:Topic", "eventgrid:Domain", "eventgrid:Namespace",
            "eventgrid:PartnerNamespace",
        ),
        "minimumTlsVersionAllowed", 2,
    ),
    *(
        AzureMinimum(
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
    AzureMinimum(("cosmosdb:DatabaseAccount",), "minimalTlsVersion", 2),
    AzureMinimum(("redis:Redis",), "minimumTlsVersion", 0),
    AzureMinimum(("redisenterprise:RedisEnterprise",), "minimumTlsVersion", 2),
    AzureMinimum(("web:WebApp", "web:WebAppSlot"), "siteConfig.minTlsVersion", 2, 3),
    AzureMinimum(("web:WebApp", "web:WebAppSlot"), "siteConfig.scmMinTlsVersion", 2, 3),
    AzureMinimum(("cdn:AFDCustomDomain",), "tlsSettings.minimumTlsVersion", 2, 3),
    AzureMinimum(("cdn:CustomDomain",), "customHttpsParameters.minimumTlsVersion", 2),
    AzureMinimum(("iothub:IotHubResource",), "properties.minTlsVersion", 2),
    AzureMinimum(("hdinsight:Cluster",), "properties.minSupportedTlsVersion", 2),
    # The retired single servers; version 2 of the SDK has them under the names of today's too.
    AzureMinimum(
        ("dbformysql:Server", "dbforpostgresql:Server"), "properties.minimalTlsVersion", 2,
    ),
    AzureMinimum(
        (
            "dbformysql:SingleServer", "dbforpostgresql:SingleServer", "dbformariadb:Server",
        ),
        "properties.minimalTlsVersion", -1,
    ),
)  # fmt: skip
_BY_TYPE: Final[dict[str, tuple[AzureMinimum, ...]]] = {
    token: tuple(each for each in AZURE_MINIMA if token in azure(*each.names))
    for minimum in AZURE_MINIMA
    for token in azure(*minimum.names)
}


def minor(value: object) -> int | None:
    """The minor version of a TLS 1.x in any of Azure's spellings; None for what isn't one.

    ``TLS1_2``, ``1.2``, ``TLS12``, ``Tls12`` and ``TLSv1_2`` are all 2; ``Tls`` is 0.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    given = str(value).strip()
    if given.lower() == "tls":
        return 0
    found = _VERSION.fullmatch(given)
    return int(found[1] or 0) if found else None


def _azure_judged(resource: Resource, each: AzureMinimum) -> tuple[Any, int | None, str]:
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
    (*AZURE_CONTROLS, "cis-azure:9.3.6"),
    "Set the least version of TLS to the newest that the service can insist on, 1.2 or 1.3.",
)
def _old(resource: Resource, context: Context) -> Iterator[Finding]:
    for each in _BY_TYPE.get(resource.kind, ()):
        value, version, given = _azure_judged(resource, each)
        if is_unknown(value):
            yield indeterminate(each.path, f"{each.path} {value.reason}")
        elif version is None or version < 2:
            more = f" ({each.note})" if each.note else ""
            newest = f"TLS 1.{each.highest} is the newest that the service can insist on"
            yield violation(each.path, f"{given}; {newest}{more}")


_PARAMETERS: Final = azure("dbforpostgresql:Configuration", "dbformysql:Configuration")
_NAMED: Final = ("ssl_min_protocol_version", "tls_version")
_AZURE_NEWEST: Final = {
    token: tuple(each for each in minima if each.highest > 2)
    for token, minima in _BY_TYPE.items()
    if any(each.highest > 2 for each in minima)
}


@rule(
    "encryption-azure-tls-1-3",
    "TLS 1.3 is demanded where the service can insist on it",
    Severity.MEDIUM,
    frozenset(_AZURE_NEWEST) | _PARAMETERS,
    AZURE_CONTROLS,
    "Set the least version of TLS to 1.3; where clients can't speak it yet, waive the rule with a "
    "date.",
)
def _newest(resource: Resource, context: Context) -> Iterator[Finding]:
    if resource.kind in _PARAMETERS:
        yield from _parameter(resource)
    for each in _AZURE_NEWEST.get(resource.kind, ()):
        value, version, given = _azure_judged(resource, each)
        if is_unknown(value):
            yield indeterminate(each.path, f"{each.path} {value.reason}")
        elif version == 2:
            yield violation(each.path, f"{given}; the service can insist on TLS 1.3")


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


# Classic load balancers on AWS: which TLS they take is said by policies beside them.

#: Policies of TLS, with the properties that name their balancer and their attributes.
_CLASSIC_POLICIES: Final = {
    "aws:elb/sslNegotiationPolicy:SslNegotiationPolicy": ("loadBalancer", "attributes"),
    "aws:elb/loadBalancerPolicy:LoadBalancerPolicy": ("loadBalancerName", "policyAttributes"),
}
_TLS_POLICY: Final = "sslnegotiationpolicytype"
_OLD_PROTOCOL: Final = re.compile(r"protocol-(sslv[23]|tlsv1(\.[01])?)")
_CLASSIC_NEWEST: Final = "ELBSecurityPolicy-TLS-1-2-2017-01"


def _is_tls_policy(resource: Resource) -> bool:
    kind = get(resource.properties, "policyTypeName")
    return "policyTypeName" not in resource.properties or is_unknown(kind) or (
        scalar(kind) == _TLS_POLICY
    )  # fmt: skip


def _attribute(path: str, name: Any, value: Any) -> Iterator[Finding]:
    if is_unknown(name) or is_unknown(value):
        yield indeterminate(path, "an attribute can't be seen, so nobody knows the oldest TLS")
    elif scalar(name) == "reference-security-policy" and text(value) != _CLASSIC_NEWEST:
        why = f"the policy is {text(value) or 'not given'}, which takes TLS older than 1.2"
        yield violation(path, f"{why}; use {_CLASSIC_NEWEST}")
    elif _OLD_PROTOCOL.fullmatch(scalar(name)) and scalar(value) == "true":
        yield violation(path, f"{text(name)} is on; TLS 1.2 is the oldest that may be taken")


def _policy(resource: Resource) -> Iterator[Finding]:
    _, attributes = _CLASSIC_POLICIES[resource.kind]
    if not _is_tls_policy(resource):
        return
    given = get(resource.properties, attributes)
    if is_unknown(given):
        yield indeterminate(attributes, "attributes can't be seen, so nobody knows the oldest TLS")
        return
    for index, each in enumerate(items(given)):
        name, value = get(each, "name"), get(each, "value")
        yield from _attribute(f"{attributes}[{index}].value", name, value)


def _classic_balancer(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a policy of its own, a listener has ELBSecurityPolicy-2016-08, from TLS 1.0 on."""
    for index, each in enumerate(items(get(resource.properties, "listeners"))):
        protocol = get(each, "lbProtocol")
        if not is_unknown(protocol) and scalar(protocol) not in {"https", "ssl"}:
            continue
        path = f"listeners[{index}]"
        if context.stack is None:
            yield indeterminate(path, "a policy beside the load balancer may say its oldest TLS")
        elif not any(
            _is_tls_policy(beside)
            for kind, (refers, _) in _CLASSIC_POLICIES.items()
            for beside in context.stack.referring(resource, kind, refers)
        ):
            why = "no policy is given, and by default TLS 1.0 is taken"
            yield violation(path, f"{why}; use {_CLASSIC_NEWEST}")


@rule(
    "encryption-aws-classic-balancer-tls",
    "Classic load balancers on AWS take no TLS older than 1.2",
    Severity.HIGH,
    CLASSIC | set(_CLASSIC_POLICIES),
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32", "nist-800-207:2"),
    "Give the listener a LoadBalancerPolicy with Reference-Security-Policy "
    f"{_CLASSIC_NEWEST}; better, use an application load balancer, which can insist on TLS 1.3.",
)
def classic_balancer(resource: Resource, context: Context) -> Iterator[Finding]:
    """TLS 1.2 is the highest that they offer.

    https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-security-policy-table.html
    """
    if resource.kind in _CLASSIC_POLICIES:
        yield from _policy(resource)
    else:
        yield from _classic_balancer(resource, context)


# Azure: what gateways and the edge speak with clients and with what is behind them.

_GATEWAYS: Final = azure("network:ApplicationGateway")
_ROUTES: Final = azure("cdn:Route")
_FRONT_DOORS: Final = azure("frontdoor:FrontDoor")
_BACKENDS: Final = azure("apimanagement:Backend", "apimanagement:WorkspaceBackend")
#: Least minor version of TLS 1.x by predefined policy; 3 where 1.3 is spoken as well
#: (https://learn.microsoft.com/azure/application-gateway/application-gateway-ssl-policy-overview).
_GATEWAYS_POLICIES: Final = {
    "appgwsslpolicy20150501": 0,
    "appgwsslpolicy20170401": 1,
    "appgwsslpolicy20170401s": 2,
    "appgwsslpolicy20220101": 3,
    "appgwsslpolicy20220101s": 3,
}
#: Versions of the API from which absence means the policy of 2022, as the same page says.
_SINCE: Final = "20230201"
_API: Final = re.compile(r"(?::network/|_network_)v(\d{8})")


def _level(policy: Any) -> int | Unknown | None:
    """Least minor version that a policy accepts, 3 where it speaks 1.3; None where it doesn't
    say."""
    values = {
        key: get(policy, key)
        for key in ("policyType", "policyName", "minProtocolVersion", "disabledSslProtocols")
    }
    for each in values.values():
        if isinstance(each, Unknown):
            return each
    kind = text(values["policyType"]).lower()
    if kind == "predefined" or (not kind and text(values["policyName"])):
        return _GATEWAYS_POLICIES.get(text(values["policyName"]).lower(), 0)
    least = minor(values["minProtocolVersion"])
    if least is None:
        disabled = {minor(each) for each in items(values["disabledSslProtocols"])}
        if kind != "customv2" and not disabled:
            return None
        least = next((each for each in (0, 1, 2) if each not in disabled), 2)
    return 3 if kind == "customv2" and least >= 2 else least


def _policies(resource: Resource) -> Iterator[tuple[str, int | Unknown]]:
    """The gateway's policies with their levels: its own, and those of its profiles."""
    if resource.get("sslPolicy") is ABSENT or (level := _level(resource.get("sslPolicy"))) is None:
        version = _API.search(resource.type)
        level = 3 if version is None or version[1] >= _SINCE else 0
    yield "sslPolicy", level
    for path, profile in entries(resource.get("sslProfiles"), "sslProfiles"):
        own = _level(get(profile, "sslPolicy"))
        if own is not None:
            yield f"{path}.sslPolicy", own


@rule(
    "encryption-azure-gateway-tls",
    "Application gateways accept nothing older than TLS 1.2",
    Severity.HIGH,
    _GATEWAYS,
    (*AZURE_CONTROLS, "cis-azure:7.12"),
    "Choose the predefined policy AppGwSslPolicy20220101S, or a policy of type CustomV2 with a "
    "`minProtocolVersion` of TLSv1_2 or TLSv1_3.",
)
def _gateway_old(resource: Resource, context: Context) -> Iterator[Finding]:
    for path, level in _policies(resource):
        if isinstance(level, Unknown):
            yield indeterminate(path, f"{path} {level.reason}")
        elif level < 2:
            yield violation(path, f"{path} accepts TLS 1.{level}; TLS 1.2 is the least allowed")


@rule(
    "encryption-azure-gateway-tls-1-3",
    "Application gateways speak TLS 1.3",
    Severity.MEDIUM,
    _GATEWAYS,
    AZURE_CONTROLS,
    "Choose the predefined policy AppGwSslPolicy20220101S, or a policy of type CustomV2.",
)
def _gateway_new(resource: Resource, context: Context) -> Iterator[Finding]:
    for path, level in _policies(resource):
        if isinstance(level, Unknown):
            yield indeterminate(path, f"{path} {level.reason}")
        elif level == 2:
            yield violation(path, f"{path} ends at TLS 1.2; policies of 2022 speak TLS 1.3")


@rule(
    "encryption-azure-http-listeners",
    "Listeners and routes take HTTPS, or lead to it",
    Severity.HIGH,
    _GATEWAYS | _ROUTES | _FRONT_DOORS,
    AZURE_CONTROLS,
    "Give the listener the protocol Https with a certificate, or let its rule redirect to such a "
    "listener; on a route turn `httpsRedirect` on, or support Https alone.",
)
def _listeners(resource: Resource, context: Context) -> Iterator[Finding]:
    if resource.kind in _GATEWAYS:
        yield from _gateway_listeners(resource)
    elif resource.kind in _ROUTES:
        yield from _route(resource)
    else:
        yield from _front_door(resource)


def _front_door(resource: Resource) -> Iterator[Finding]:
    for path, each in entries(resource.get("routingRules"), "routingRules"):
        redirects = "redirect" in text(get(each, "routeConfiguration.odataType")).lower()
        for at, protocol in select(each, "acceptedProtocols"):
            where = f"{path}.{at}" if at else path
            if isinstance(protocol, Unknown) and not redirects:
                yield indeterminate(where, f"{where} {protocol.reason}")
            elif text(protocol).lower() == "http" and not redirects:
                yield violation(where, "HTTP is taken and not redirected to HTTPS")


def _route(resource: Resource) -> Iterator[Finding]:
    redirect = resource.get("httpsRedirect")
    given = list(select(resource.properties, "supportedProtocols"))
    if text(redirect).lower() == "enabled":
        return
    for path, value in given:
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
        elif text(value).lower() == "http":
            if isinstance(redirect, Unknown):
                yield indeterminate("httpsRedirect", f"httpsRedirect {redirect.reason}")
            else:
                yield violation(path, "HTTP is taken and not redirected to HTTPS")
    if not given:
        why = "supportedProtocols isn't given, so HTTP is taken, and httpsRedirect isn't Enabled"
        yield violation("supportedProtocols", why)


def _last(value: Any) -> str:
    """The name at the end of an id, in small letters."""
    return text(value).lower().rpartition("/")[2]


def _named(resource: Resource, path: str, name: str) -> Any:
    return next(
        (
            each
            for _, each in entries(resource.get(path), path)
            if is_mapping(each) and text(each.get("name")).lower() == name
        ),
        ABSENT,
    )


def _gateway_listeners(resource: Resource) -> Iterator[Finding]:
    for path, listener in entries(resource.get("httpListeners"), "httpListeners"):
        protocol = get(listener, "protocol")
        if isinstance(protocol, Unknown):
            yield indeterminate(f"{path}.protocol", f"{path}.protocol {protocol.reason}")
        elif text(protocol).lower() == "http":
            yield from _plain_listener(resource, listener, path)


def _plain_listener(resource: Resource, listener: Any, path: str) -> Iterator[Finding]:
    name = text(get(listener, "name")).lower()
    rules = items(resource.get("requestRoutingRules"))
    hidden = any(isinstance(get(each, "httpListener.id"), Unknown) for each in rules)
    of_it = [each for each in rules if name and _last(get(each, "httpListener.id")) == name]
    if of_it and all(_redirects(resource, each) for each in of_it):
        return
    if not of_it and hidden:
        why = "whose rules can't be seen, so nobody knows whether they redirect to HTTPS"
        yield indeterminate(f"{path}.protocol", f"{path} takes HTTP, {why}")
        return
    yield violation(f"{path}.protocol", "HTTP is taken and not redirected to HTTPS")


def _redirects(resource: Resource, routing: Any) -> bool:
    """Whether a rule sends everything to HTTPS."""
    if (chosen := get(routing, "redirectConfiguration.id")) is not ABSENT:
        return _leads_to_https(resource, chosen)
    mapped = _named(resource, "urlPathMaps", _last(get(routing, "urlPathMap.id")))
    if mapped is ABSENT:
        return False
    ways = [
        get(mapped, "defaultRedirectConfiguration.id"),
        *(get(each, "redirectConfiguration.id") for each in items(get(mapped, "pathRules"))),
    ]
    return all(each is not ABSENT and _leads_to_https(resource, each) for each in ways)


def _leads_to_https(resource: Resource, redirect: Any) -> bool:
    found = _named(resource, "redirectConfigurations", _last(redirect))
    if text(get(found, "targetUrl")).lower().startswith("http://"):
        return False
    target = _named(resource, "httpListeners", _last(get(found, "targetListener.id")))
    return text(get(target, "protocol")).lower() != "http"


@rule(
    "encryption-azure-backend-plain-text",
    "Gateways and the edge talk to what is behind them over TLS",
    Severity.MEDIUM,
    _GATEWAYS | _ROUTES | _FRONT_DOORS | _BACKENDS,
    AZURE_CONTROLS,
    "Use Https towards backends and origins, with a certificate that the gateway trusts.",
)
def _behind(resource: Resource, context: Context) -> Iterator[Finding]:
    plain = {"http", "httponly"}
    for path in (
        "backendHttpSettingsCollection.protocol",
        "forwardingProtocol",
        "routingRules.routeConfiguration.forwardingProtocol",
    ):
        for at, value in select(resource.properties, path):
            if isinstance(value, Unknown):
                yield indeterminate(at, f"{at} {value.reason}")
            elif text(value).lower() in plain:
                yield violation(at, f"{at} is {text(value)}, in plain text; Https is allowed")
    if resource.kind in _BACKENDS:
        url = resource.get("url")
        if isinstance(url, Unknown):
            yield indeterminate("url", f"url {url.reason}")
        elif text(url).lower().startswith("http://"):
            yield violation("url", "the backend is reached over HTTP, in plain text")


RULES: tuple[Rule, ...] = (
    tls_old,
    tls_newest,
    _old,
    _newest,
    classic_balancer,
    _gateway_old,
    _gateway_new,
    _listeners,
    _behind,
)
