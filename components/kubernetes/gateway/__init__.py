"""The way into a cluster: TLS 1.3, tokens, limits; from one's own networks only.

The proxies are internal, private, unprivileged, and log into the cluster.
https://gateway.envoyproxy.io/docs/api/extension_types/
"""

from __future__ import annotations

from typing import Any, Final

import pulumi

from falaj.components.catalogue.clusters import REGION_LABEL, TENANT_LABEL, ZONE_LABEL
from falaj.components.kubernetes._load_balancer import private_load_balancer
from falaj.components.kubernetes._objects import GATEWAY_API, Manifest, declare, metadata, token
from falaj.components.kubernetes._pods import unprivileged_alone, unprivileged_pod
from falaj.components.kubernetes.addons.addon import MESH_ANNOTATIONS, MESH_LABELS, PRIORITY_CLASS
from falaj.components.kubernetes.admission.policy import (
    NON_EMPTY,
    TENANT_OF_NAMESPACE,
    Check,
    Policy,
    Target,
    listed_pattern,
    literal,
    texts,
)
from falaj.components.kubernetes.admission.policy import manifests as admission_manifests
from falaj.components.kubernetes.gateway.arguments import (
    GatewayArgs,
    GatewayGrantArgs,
    GatewayLoginArgs,
    GatewayRateArgs,
    GatewaySpec,
    GatewayTokensArgs,
    check,
)
from falaj.components.kubernetes.tenant.namespaces import PURPOSE_LABEL
from falaj.components.specification.property_names import engine_inputs

__all__ = [
    "Gateway",
    "GatewayArgs",
    "GatewayGrantArgs",
    "GatewayLoginArgs",
    "GatewayRateArgs",
    "GatewayTokensArgs",
    "check",
    "manifests",
]


ENVOY: Final = "gateway.envoyproxy.io/v1alpha1"
#: User of Envoy's distroless image.
#: What is known of a request afterwards; neither its body, its token nor its query, which may
#: hold what was asked about whom.
_LOGGED: Final = {
    "time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%REQ_WITHOUT_QUERY(:PATH)%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "tls": "%DOWNSTREAM_TLS_VERSION%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "milliseconds": "%DURATION%",
    "upstream": "%UPSTREAM_CLUSTER%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "trace": "%TRACE_ID%",
}


def gateway_class(spec: GatewaySpec) -> list[Manifest]:
    """The class, and how proxies of it are made."""
    return [
        {
            "apiVersion": GATEWAY_API,
            "kind": "GatewayClass",
            "metadata": metadata(spec.placed, spec.name, spec.name),
            "spec": {
                "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
                "parametersRef": {
                    "group": "gateway.envoyproxy.io",
                    "kind": "EnvoyProxy",
                    "name": spec.name,
                    "namespace": spec.namespace,
                },
            },
        },
        {
            "apiVersion": ENVOY,
            "kind": "EnvoyProxy",
            "metadata": metadata(spec.placed, spec.name, spec.name, spec.namespace),
            "spec": {
                "provider": {"type": "Kubernetes", "kubernetes": _kubernetes(spec)},
                "telemetry": {
                    "accessLog": {
                        "settings": [
                            {
                                "format": {"type": "JSON", "json": dict(_LOGGED)},
                                "sinks": [{"type": "File", "file": {"path": "/dev/stdout"}}],
                            }
                        ]
                    },
                    "metrics": {"prometheus": {}},
                },
                "shutdown": {"drainTimeout": "60s"},
            },
        },
    ]


def _kubernetes(spec: GatewaySpec) -> dict[str, Any]:
    fewest, most = spec.replicas
    return {
        "envoyDeployment": {
            "pod": {
                # An identity towards serving pods; clients outside of the mesh are still let in.
                "labels": {**spec.placed.labels(spec.name), **MESH_LABELS},
                "annotations": dict(MESH_ANNOTATIONS),
                "priorityClassName": PRIORITY_CLASS,
                "nodeSelector": spec.placed.node_selector,
                "securityContext": unprivileged_pod(),
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE_LABEL,
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": spec.placed.labels(spec.name)},
                    }
                ],
                **_zones(spec),
            },
            "container": {
                "image": spec.image,
                "resources": {
                    "requests": {"cpu": "500m", "memory": "512Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "securityContext": unprivileged_alone(runAsNonRoot=True),
            },
        },
        "envoyService": _service(spec),
        "envoyHpa": {
            "minReplicas": fewest,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 60},
                    },
                }
            ],
        },
        "envoyPDB": {"minAvailable": fewest - 1},
    }


def _zones(spec: GatewaySpec) -> dict[str, Any]:
    """Only nodes of the zones that are allowed, where they are named."""
    if not spec.placed.zones:
        return {}
    terms = [
        {"key": REGION_LABEL, "operator": "In", "values": [spec.placed.region]},
        {"key": ZONE_LABEL, "operator": "In", "values": list(spec.placed.zones)},
    ]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}
    }


def _service(spec: GatewaySpec) -> dict[str, Any]:
    balancer = private_load_balancer(
        spec.placed.distribution, spec.allowed_cidrs, address=spec.address, subnet=spec.subnet
    )
    if not balancer.annotations:
        return balancer.fields
    return {**balancer.fields, "annotations": balancer.annotations}


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
    gateway: Manifest = {
        "apiVersion": GATEWAY_API,
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
                    "allowedRoutes": {
                        "namespaces": {"from": "Selector", "selector": _whose(spec, host)}
                    },
                }
                for index, host in enumerate(spec.hosts)
            ],
        },
    }
    return [certificate, gateway]


def _whose(spec: GatewaySpec, host: str) -> dict[str, Any]:
    """Namespaces whose routes may serve a host."""
    tenants = [tenant for tenant, hosts in spec.hosts_of.items() if host in hosts]
    return {
        "matchLabels": {PURPOSE_LABEL: "serving"},
        "matchExpressions": [{"key": TENANT_LABEL, "operator": "In", "values": tenants}],
    }


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
            "apiVersion": GATEWAY_API,
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


def admission(spec: GatewaySpec) -> list[Manifest]:
    """What the API server refuses of routes, which the gateway itself would leave unattached.

    A route that is refused tells its author why; one that isn't attached tells nobody.
    """
    # https://gateway-api.sigs.k8s.io/reference/spec/#httproutespec
    here = "request.namespace"
    parent = (
        f"object.spec.?parentRefs.orValue([]).exists(p, p.name == {literal(spec.name)} && "
        f'p.?kind.orValue("Gateway") == "Gateway" && '
        f"p.?namespace.orValue({here}) == {literal(spec.namespace)})"
    )
    whose = ", ".join(
        f"{literal(tenant)}: {literal(listed_pattern(hosts))}"
        for tenant, hosts in spec.hosts_of.items()
    )
    granted = texts(f"{routes}/{services}" for routes, services, _ in spec.grants)
    rules = "object.spec.?rules.orValue([])"
    elsewhere = f"b.?namespace.orValue({here})"
    not_granted = f"{elsewhere} != {here} && !({here} + {literal('/')} + {elsewhere} in {granted})"

    def foreign(services: str) -> str:
        return f'{services}.filter(b, {not_granted}).map(b, {elsewhere} + "/" + b.name).join(", ")'

    def mirrored(of: str) -> str:
        filters = f"{of}.?filters.orValue([]).filter(f, f.?requestMirror.hasValue())"
        return f'{filters}.map(f, {foreign("[f.requestMirror.backendRef]")}){NON_EMPTY}.join(", ")'

    services = "r.?backendRefs.orValue([])"
    led = (
        foreign(services),
        mirrored("r"),
        f'{services}.map(k, {mirrored("k")}){NON_EMPTY}.join(", ")',
    )
    hosts = Check(
        "cluster-route-host",
        "variables.hosts.filter(h, !(variables.tenant in variables.whose) || "
        "!h.lowerAscii().matches(variables.whose[variables.tenant]))",
        "the route serves hosts of another tenant",
        "; ".join(f"{tenant}: {', '.join(hosts)}" for tenant, hosts in spec.hosts_of.items()),
        "name hosts of one's own, or none",
    )
    backends = Check(
        "cluster-route-service",
        " + ".join(f"{rules}.map(r, {each}){NON_EMPTY}" for each in led),
        "the route leads to services of another namespace",
        "services of its own namespace, and what the gateway's grants name",
        "name one of these",
    )
    policy = Policy(
        f"{spec.name}-routes",
        (Target("gateway.networking.k8s.io", "v1", ("httproutes", "grpcroutes", "tlsroutes")),),
        (hosts, backends),
        {
            "hosts": "object.spec.?hostnames.orValue([])",
            "tenant": TENANT_OF_NAMESPACE,
            "whose": f"{{{whose}}}",
        },
        {"of-this-gateway": parent},
    )
    return list(
        admission_manifests((policy,), spec.placed.labels(spec.name), spec.placed.annotations())
    )


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


class Gateway(pulumi.ComponentResource):
    """The way into a cluster, by Envoy Gateway.

    ::

        gateway = Gateway("models", {
            "distribution": "eks", "region": "me-central-1", "registry": registry,
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "hosts": ["models.acme.example"], "certificate_issuer": "acme-ca",
            "own_domains": ["acme.example"], "issuer_cidrs": ["10.9.0.0/24"],
            "tokens": {"staff": {"issuer": "https://login.acme.example",
                                 "audiences": ["models"],
                                 "jwks_uri": "https://login.acme.example/keys"}},
        })

    Makes a class with its proxies behind an internal load balancer, a certificate by cert-manager,
    listeners for TLS 1.3 and nothing older, and policies for all routes: a valid token or login, a
    client of an allowed range, so many requests a second, bodies of at most so much. Routes
    come from serving namespaces of the named tenants only, and refer to services of their own
    namespace unless ``grants`` says otherwise. Logs go to the proxies' output, without bodies,
    tokens and queries.

    Limits are counted by each proxy: ``requests`` times ``most_replicas`` is the most there is.
    """

    class_name: str
    """Name of the class."""
    gateway_name: str
    """Name of the gateway, for ``parentRefs`` of routes."""
    namespace: str
    """Its namespace."""
    hosts: list[str]
    """Names that it serves."""

    def __init__(
        self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Gateway"), name, engine_inputs(args), opts)
        declare(self, name, manifests(spec))
        self.class_name = self.gateway_name = name
        self.namespace = spec.namespace
        self.hosts = list(spec.hosts)
        self.register_outputs({
            "className": name,
            "gatewayName": name,
            "namespace": self.namespace,
            "hosts": self.hosts,
        })  # fmt: skip


def manifests(spec: GatewaySpec) -> list[Manifest]:
    """The objects of a gateway."""
    return [
        *gateway_class(spec),
        *listeners(spec),
        *policies(spec),
        *network_policies(spec),
        *grants(spec),
        *admission(spec),
    ]
