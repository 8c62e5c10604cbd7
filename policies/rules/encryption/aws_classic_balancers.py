"""Classic load balancers on AWS: which TLS they take is said by policies beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    Finding,
    Resource,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    items,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.rules.encryption.aws_listeners import CLASSIC

#: Policies of TLS, with the properties that name their balancer and their attributes.
_POLICIES: Final = {
    "aws:elb/sslNegotiationPolicy:SslNegotiationPolicy": ("loadBalancer", "attributes"),
    "aws:elb/loadBalancerPolicy:LoadBalancerPolicy": ("loadBalancerName", "policyAttributes"),
}
_TLS_POLICY: Final = "sslnegotiationpolicytype"
_OLD_PROTOCOL: Final = re.compile(r"protocol-(sslv[23]|tlsv1(\.[01])?)")
_NEWEST: Final = "ELBSecurityPolicy-TLS-1-2-2017-01"


def _is_tls_policy(resource: Resource) -> bool:
    kind = get(resource.properties, "policyTypeName")
    return "policyTypeName" not in resource.properties or is_unknown(kind) or (
        scalar(kind) == _TLS_POLICY
    )  # fmt: skip


def _attribute(path: str, name: Any, value: Any) -> Iterator[Finding]:
    if is_unknown(name) or is_unknown(value):
        yield indeterminate(path, "an attribute can't be seen, so nobody knows the oldest TLS")
    elif scalar(name) == "reference-security-policy" and text(value) != _NEWEST:
        why = f"the policy is {text(value) or 'not given'}, which takes TLS older than 1.2"
        yield violation(path, f"{why}; use {_NEWEST}")
    elif _OLD_PROTOCOL.fullmatch(scalar(name)) and scalar(value) == "true":
        yield violation(path, f"{text(name)} is on; TLS 1.2 is the oldest that may be taken")


def _policy(resource: Resource) -> Iterator[Finding]:
    _, attributes = _POLICIES[resource.kind]
    if not _is_tls_policy(resource):
        return
    given = get(resource.properties, attributes)
    if is_unknown(given):
        yield indeterminate(attributes, "attributes can't be seen, so nobody knows the oldest TLS")
        return
    for index, each in enumerate(items(given)):
        name, value = get(each, "name"), get(each, "value")
        yield from _attribute(f"{attributes}[{index}].value", name, value)


def _balancer(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a policy of its own, a listener has ELBSecurityPolicy-2016-08, from TLS 1.0 on."""
    for index, each in enumerate(items(get(resource.properties, "listeners"))):
        protocol = get(each, "lbProtocol")
        if not is_unknown(protocol) and scalar(protocol) not in {"https", "ssl"}:
            continue
        path = f"listeners[{index}]"
        if view.stack is None:
            yield indeterminate(path, "a policy beside the load balancer may say its oldest TLS")
        elif not any(
            _is_tls_policy(beside)
            for kind, (refers, _) in _POLICIES.items()
            for beside in view.stack.referring(resource, kind, refers)
        ):
            why = "no policy is given, and by default TLS 1.0 is taken"
            yield violation(path, f"{why}; use {_NEWEST}")


@rule(
    "encryption-aws-classic-balancer-tls",
    "Classic load balancers on AWS take no TLS older than 1.2",
    Severity.HIGH,
    CLASSIC | set(_POLICIES),
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32", "nist-800-207:2"),
    "Give the listener a LoadBalancerPolicy with Reference-Security-Policy "
    f"{_NEWEST}; better, use an application load balancer, which can insist on TLS 1.3.",
)
def classic_balancer(resource: Resource, view: View) -> Iterator[Finding]:
    """TLS 1.2 is the highest that they offer.

    https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-security-policy-table.html
    """
    if resource.kind in _POLICIES:
        yield from _policy(resource)
    else:
        yield from _balancer(resource, view)


RULES: Final = (classic_balancer,)
