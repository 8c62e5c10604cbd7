"""The oldest TLS that AWS services take, against the newest that each can insist on.

Services whose oldest TLS can't be set take TLS 1.2 and 1.3 by now, and aren't here
(https://aws.amazon.com/blogs/security/tls-1-2-required-for-aws-endpoints/).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Severity,
    View,
    get,
    indeterminate,
    is_list,
    is_true,
    items,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.aws_listeners import DISTRIBUTIONS, LISTENERS, ORIGINS
from falaj.policies.rules.encryption.keys import where

_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32",
                    "nist-800-207:2")  # fmt: skip
#: Minor version of TLS 1 that a name stands for, or None where nobody knows the name.
Grade = Callable[[str], float | None]
#: Below every version: SSL.
_SSL: Final = -1


def _balancer(name: str) -> float | None:
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
    said: str
    """A clause about what is given."""
    version: float | Unknown | None
    """The minor version of TLS 1; None where nobody knows the name."""
    highest: float


@dataclass(frozen=True)
class Minimum:
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
                said = f"{self._name} isn't given, and the default is {default}"
                yield Taken(path, said, self.grade(default), highest(block))
            return
        listed = enumerate(items(value)) if is_list(value) else ((None, value),)
        for index, each in listed:
            here = path if index is None else f"{at}{'.' if at else ''}{self.path}[{index}]"
            if isinstance(each, Unknown):
                yield Taken(here, self._name, each, highest(block))
            else:
                name = text(each) or scalar(each)
                said = f"{self._name} is {name or 'no plain text'}"
                yield Taken(here, said, self.grade(name), highest(block))


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
MINIMA: Final = (
    Minimum(
        LISTENERS, "sslPolicy", _balancer, "ELBSecurityPolicy-2016-08",
        "ELBSecurityPolicy-TLS13-1-3-2021-06", only=("protocol", ("https", "tls")),
    ),
    Minimum(
        DISTRIBUTIONS, "viewerCertificate.minimumProtocolVersion", _viewer, "TLSv1",
        "TLSv1.3_2025", only=(_DEFAULT_CERTIFICATE, ("", "false")),
    ),
    # CloudFront's own certificate goes with TLSv1, whatever else is given.
    Minimum(
        DISTRIBUTIONS, _DEFAULT_CERTIFICATE, lambda name: 0 if name == "true" else 3, "",
        "a certificate of your own with TLSv1.3_2025",
    ),
    *(
        Minimum(
            DISTRIBUTIONS, "originSslProtocols", _viewer, "", "TLSv1.2", parts=parts,
            highest=lambda _: 2,
        )
        for parts in ORIGINS
    ),
    Minimum(
        frozenset({"aws:apigateway/domainName:DomainName"}), "securityPolicy", _api, "TLS_1_2",
        "SecurityPolicy_TLS13_1_3_2025_09", highest=_of_domain,
    ),
    Minimum(
        frozenset({"aws:apigateway/restApi:RestApi"}), "securityPolicy", _api, _of_api,
        "SecurityPolicy_TLS13_1_3_2025_09",
    ),
    Minimum(
        frozenset({"aws:apigatewayv2/domainName:DomainName"}),
        "domainNameConfiguration.securityPolicy", _api, "TLS_1_2", "TLS_1_2",
        highest=lambda _: 2,
    ),
    Minimum(
        frozenset({"aws:opensearch/domain:Domain", "aws:elasticsearch/domain:Domain"}),
        "domainEndpointOptions.tlsSecurityPolicy", _search, "Policy-Min-TLS-1-0-2019-07",
        "Policy-Min-TLS-1-2-PFS-2023-10",
    ),
    Minimum(
        frozenset({"aws:iot/domainConfiguration:DomainConfiguration"}),
        "tlsConfig.securityPolicy", _things, "IoTSecurityPolicy_TLS13_1_2_2022_10",
        "IoTSecurityPolicy_TLS13_1_3_2022_10",
    ),
    Minimum(
        frozenset({"aws:transfer/server:Server"}), "securityPolicyName", _transfer,
        "TransferSecurityPolicy-2018-11", "TransferSecurityPolicy-2025-03",
    ),
)  # fmt: skip
_TYPES: Final = frozenset(kind for each in MINIMA for kind in each.types)


def _judged(
    resource: Resource,
) -> Iterator[tuple[Minimum, Taken]]:
    for each in MINIMA:
        if resource.kind in each.types:
            yield from ((each, taken) for taken in each.read(resource))


@rule(
    "encryption-aws-tls-old",
    "Services on AWS take no TLS older than 1.2",
    Severity.HIGH,
    _TYPES,
    _CONTROLS,
    "Set the property that the finding names to the value that it names last.",
)
def tls_old(resource: Resource, view: View) -> Iterator[Finding]:
    """SSL, TLS 1.0 and 1.1 are broken or withdrawn (https://www.rfc-editor.org/rfc/rfc8996)."""
    for each, taken in _judged(resource):
        if isinstance(taken.version, Unknown):
            why = f"{taken.said} {taken.version.reason}; it must be {each.newest}"
            yield indeterminate(taken.path, why)
        elif taken.version is not None and taken.version < 2:
            why = f"{taken.said}, which takes TLS older than 1.2; use {each.newest}"
            yield violation(taken.path, why)


@rule(
    "encryption-aws-tls-1-3",
    "Services on AWS insist on the newest TLS that they offer",
    Severity.MEDIUM,
    _TYPES,
    _CONTROLS,
    "Set the property that the finding names to the value that it names last; where callers can't "
    "speak TLS 1.3 yet, waive the rule for that resource until they can.",
)
def tls_newest(resource: Resource, view: View) -> Iterator[Finding]:
    """TLS 1.3 where the service can insist on it, else the highest that it can.

    What is older than 1.2 is left to `tls_old`: one cause, one finding.
    """
    for each, taken in _judged(resource):
        if isinstance(taken.version, Unknown):
            why = f"{taken.said} {taken.version.reason}; it must be {each.newest}"
            yield indeterminate(taken.path, why)
        elif taken.version is None:
            why = f"{taken.said}, a name that isn't known here; use {each.newest}"
            yield violation(taken.path, why)
        elif 2 <= taken.version < taken.highest:
            why = f"{taken.said}, and the service can insist on newer; use {each.newest}"
            yield violation(taken.path, why)


RULES: Final = (tls_old, tls_newest)
