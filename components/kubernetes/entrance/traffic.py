"""What comes in through a gateway: by TLS 1.3, with a token, from where, and how often."""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import TENANT_LABEL
from falaj.components.kubernetes.entrance.proxies import ENVOY, GATEWAY
from falaj.components.kubernetes.entrance.specification import GatewaySpec
from falaj.components.kubernetes.tenancy.namespaces import DUTY_LABEL

#: Where logins return to; Envoy answers it itself.
_CALLBACK: Final = "/oauth2/callback"
_LOGOUT: Final = "/logout"
#: Envoy Gateway moves ports below 1024 up by 10,000, for proxies aren't root.
_PORT: Final = 10443


def listeners(spec: GatewaySpec) -> list[Manifest]:
    """The certificate, and a gateway that serving namespaces of the tenants attach routes to.

    There is no listener for plain HTTP, not even one that redirects.
    """
    kind, issuer = spec.issuer
    secret = f"{spec.name}-certificate"
    certificate: Manifest = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(spec.placed, spec.name, spec.name, spec.namespace),
        "spec": {
            "secretName": secret,
            "dnsNames": list(spec.hosts),
            "issuerRef": {"group": "cert-manager.io", "kind": kind, "name": issuer},
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
            "duration": "2160h",
            "renewBefore": "720h",
        },
    }
    whose = {
        "matchLabels": {DUTY_LABEL: "serving"},
        "matchExpressions": [
            {"key": TENANT_LABEL, "operator": "In", "values": list(spec.tenants)}
        ],
    }
    gateway: Manifest = {
        "apiVersion": GATEWAY,
        "kind": "Gateway",
        "metadata": metadata(spec.placed, spec.name, spec.name, spec.namespace),
        "spec": {
            "gatewayClassName": spec.name,
            "listeners": [
                {
                    "name": f"https-{index}",
                    "hostname": host,
                    "port": 443,
                    "protocol": "HTTPS",
                    "tls": {"mode": "Terminate", "certificateRefs": [{"name": secret}]},
                    "allowedRoutes": {"namespaces": {"from": "Selector", "selector": whose}},
                }
                for index, host in enumerate(spec.hosts)
            ],
        },
    }
    return [certificate, gateway]


def policies(spec: GatewaySpec) -> list[Manifest]:
    """What holds for all routes of the gateway."""

    def policy(kind: str, body: dict[str, Any]) -> Manifest:
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": spec.name}
        return {
            "apiVersion": ENVOY,
            "kind": kind,
            "metadata": metadata(spec.placed, spec.name, spec.name, spec.namespace),
            "spec": {"targetRefs": [target], **body},
        }

    return [
        policy("ClientTrafficPolicy", _clients(spec)),
        policy("SecurityPolicy", _security(spec)),
        policy("BackendTrafficPolicy", _limits(spec)),
    ]


def network_policies(spec: GatewaySpec) -> list[Manifest]:
    """Who reaches the proxies: clients of the allowed ranges; and what these reach for logins.

    The platform denies everything else in the namespace, and lets the proxies out to serving pods.
    """
    proxies = {
        "matchLabels": {
            "gateway.envoyproxy.io/owning-gateway-name": spec.name,
            "gateway.envoyproxy.io/owning-gateway-namespace": spec.namespace,
        }
    }
    clients = [{"ipBlock": {"cidr": each}} for each in spec.allowed_cidrs]
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(spec.placed, spec.name, f"{spec.name}-clients", spec.namespace),
            "spec": {
                "podSelector": proxies,
                "policyTypes": ["Ingress"],
                "ingress": [{"from": clients, "ports": [{"port": _PORT, "protocol": "TCP"}]}],
            },
        },
        *_to_issuers(spec, proxies),
    ]


def _to_issuers(spec: GatewaySpec, proxies: dict[str, Any]) -> list[Manifest]:
    if not spec.issuer_cidrs:
        return []
    to = [{"ipBlock": {"cidr": each}} for each in spec.issuer_cidrs]
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(spec.placed, spec.name, f"{spec.name}-issuers", spec.namespace),
            "spec": {
                "podSelector": proxies,
                "policyTypes": ["Egress"],
                "egress": [{"to": to, "ports": [{"port": 443, "protocol": "TCP"}]}],
            },
        }
    ]


def grants(spec: GatewaySpec) -> list[Manifest]:
    """Routes of a namespace to services of another; without one the gateway refuses them."""
    return [
        {
            "apiVersion": GATEWAY,
            "kind": "ReferenceGrant",
            "metadata": metadata(spec.placed, spec.name, f"from-{routes}", services),
            "spec": {
                "from": [
                    {
                        "group": "gateway.networking.k8s.io",
                        "kind": "HTTPRoute",
                        "namespace": routes,
                    }
                ],
                "to": [{"group": "", "kind": "Service", "name": each} for each in names],
            },
        }
        for routes, services, names in spec.grants
    ]


def _clients(spec: GatewaySpec) -> dict[str, Any]:
    tls: dict[str, Any] = {
        "minVersion": "1.3",
        "maxVersion": "1.3",
        "alpnProtocols": ["h2", "http/1.1"],
    }
    if spec.client_ca_secret:
        tls["clientValidation"] = {
            "optional": False,
            "caCertificateRefs": [{"kind": "Secret", "group": "", "name": spec.client_ca_secret}],
        }
    return {
        "tls": tls,
        "headers": {"enableEnvoyHeaders": False, "withUnderscoresAction": "RejectRequest"},
        "path": {
            "disableMergeSlashes": False,
            "escapedSlashesAction": "UnescapeAndRedirect",
        },
        # Half-open and slow clients hold no connection for ever.
        "timeout": {
            "http": {
                "requestReceivedTimeout": f"{spec.request_seconds}s",
                "idleTimeout": "300s",
            }
        },
        "connection": {"connectionLimit": {"value": 10000}, "bufferLimit": "32Ki"},
    }


def _security(spec: GatewaySpec) -> dict[str, Any]:
    principal: dict[str, Any] = {"clientCIDRs": list(spec.allowed_cidrs)}
    with_claims = [(name, one) for name, one in spec.tokens.items() if one.get("claims")]
    without = len(with_claims) < len(spec.tokens) or not spec.tokens
    rules = [_allow(f"claims-{name}", {**principal, "jwt": _claims(name, one)})
             for name, one in with_claims]  # fmt: skip
    if without and not with_claims:
        rules.append(_allow("clients", principal))
    elif without:
        # An issuer without claims of its own lets in whoever has its tokens.
        rules += [
            _allow(
                f"issuer-{name}",
                {**principal, "jwt": {"provider": name, "claims": [_issued_by(one)]}},
            )
            for name, one in spec.tokens.items()
            if not one.get("claims")
        ]
    found: dict[str, Any] = {"authorization": {"defaultAction": "Deny", "rules": rules}}
    if spec.tokens:
        found["jwt"] = {"providers": [_provider(name, one) for name, one in spec.tokens.items()]}
    if spec.login:
        found["oidc"] = {
            "provider": {"issuer": spec.login["issuer"]},
            "clientID": spec.login["client_id"],
            "clientSecret": {"name": spec.login["client_secret"]},
            "redirectURL": f"https://{spec.hosts[0]}{_CALLBACK}",
            "logoutPath": _LOGOUT,
            # Whoever brings a token isn't sent to the login.
            **({"passThroughAuthHeader": True} if spec.tokens else {}),
        }
    return found


def _allow(name: str, principal: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "action": "Allow", "principal": principal}


def _claims(name: str, tokens: Any) -> dict[str, Any]:
    return {
        "provider": name,
        "claims": [
            {"name": claim, "valueType": "StringArray" if claim == "groups" else "String",
             "values": list(values)}
            for claim, values in tokens["claims"].items()
        ],
    }  # fmt: skip


def _issued_by(tokens: Any) -> dict[str, Any]:
    return {"name": "iss", "valueType": "String", "values": [tokens["issuer"]]}


def _provider(name: str, tokens: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "issuer": tokens["issuer"],
        "audiences": list(tokens["audiences"]),
    }
    if tokens.get("jwks_uri"):
        found["remoteJWKS"] = {"uri": tokens["jwks_uri"]}
    else:
        found["localJWKS"] = {"type": "Inline", "inline": tokens["jwks"]}
    if tokens.get("headers"):
        found["claimToHeaders"] = [
            {"header": header, "claim": claim} for header, claim in tokens["headers"].items()
        ]
    return found


def _limits(spec: GatewaySpec) -> dict[str, Any]:
    rules: list[dict[str, Any]] = []
    for requests, unit, source in spec.rates:
        rule: dict[str, Any] = {"limit": {"requests": requests, "unit": unit}}
        if source:
            chosen = {"sourceCIDR": {"type": "Distinct", "value": source}}
            rule["clientSelectors"] = [chosen]
        rules.append(rule)
    return {
        # Each proxy counts for itself: one count for all would need Redis.
        "rateLimit": {"type": "Local", "local": {"rules": rules}},
        "requestBuffer": {"limit": spec.largest_request},
        "timeout": {"http": {"requestTimeout": f"{spec.request_seconds}s"}},
    }
