"""The way into a cluster: TLS 1.3, tokens, limits; from one's own networks only."""

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.gateway.arguments import (
    GatewayArgs,
    GatewayGrantArgs,
    GatewayLoginArgs,
    GatewayRateArgs,
    GatewaySpec,
    GatewayTokensArgs,
    check,
)
from falaj.components.kubernetes.gateway.traffic import (
    gateway_class,
    grants,
    listeners,
    network_policies,
    policies,
)
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
    ]
