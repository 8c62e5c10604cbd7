"""Azure: what gateways and the edge speak with clients and with what is behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    items,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.azure_tls import minor

_CONTROLS: Final = ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2")
_GATEWAYS: Final = azure("network:ApplicationGateway")
_ROUTES: Final = azure("cdn:Route")
_FRONT_DOORS: Final = azure("frontdoor:FrontDoor")
_BACKENDS: Final = azure("apimanagement:Backend", "apimanagement:WorkspaceBackend")
#: Least minor version of TLS 1.x by predefined policy; 3 where 1.3 is spoken as well
#: (https://learn.microsoft.com/azure/application-gateway/application-gateway-ssl-policy-overview).
_POLICIES: Final = {
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
        return _POLICIES.get(text(values["policyName"]).lower(), 0)
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
    (*_CONTROLS, "cis-azure:7.12"),
    "Choose the predefined policy AppGwSslPolicy20220101S, or a policy of type CustomV2 with a "
    "`minProtocolVersion` of TLSv1_2 or TLSv1_3.",
)
def _gateway_old(resource: Resource, view: View) -> Iterator[Finding]:
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
    _CONTROLS,
    "Choose the predefined policy AppGwSslPolicy20220101S, or a policy of type CustomV2.",
)
def _gateway_new(resource: Resource, view: View) -> Iterator[Finding]:
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
    _CONTROLS,
    "Give the listener the protocol Https with a certificate, or let its rule redirect to such a "
    "listener; on a route turn `httpsRedirect` on, or support Https alone.",
)
def _listeners(resource: Resource, view: View) -> Iterator[Finding]:
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
            if isinstance(each, Mapping) and text(each.get("name")).lower() == name
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
    _CONTROLS,
    "Use Https towards backends and origins, with a certificate that the gateway trusts.",
)
def _behind(resource: Resource, view: View) -> Iterator[Finding]:
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


RULES: tuple[Rule, ...] = (_gateway_old, _gateway_new, _listeners, _behind)
