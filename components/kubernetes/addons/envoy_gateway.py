"""Envoy Gateway and the Gateway API: the way in to what tenants serve.

Values: https://github.com/envoyproxy/gateway/blob/v1.9.0/charts/gateway-helm/values.tmpl.yaml
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.catalogue.clusters import GATEWAYS
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.addons.cert_manager import certificate
from falaj.components.kubernetes.addons.external_secrets import generated_secret
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS

NAMESPACE: Final = GATEWAYS
_CONTROLLER: Final = "gateway.envoyproxy.io/gatewayclass-controller"


class EnvoyGatewayOptions(TypedDict):
    """``envoy-gateway`` has no options: gateways are made by `Gateway`."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    return {
        "envoy-gateway": {
            "global": {
                "images": {
                    "envoyGateway": {
                        "image": spec.images["envoy-gateway"],
                        "pullPolicy": "IfNotPresent",
                    },
                    "ratelimit": {"image": spec.images["envoy-ratelimit"]},
                    "envoyProxy": {"image": spec.images["envoy"]},
                }
            },
            "crds": {"enabled": True},
            "deployment": {
                "replicas": 2,
                "priorityClassName": PRIORITY_CLASS,
                "envoyGateway": {"resources": resources("100m", "1Gi")},
                "pod": {"nodeSelector": spec.node_selector},
            },
            "podDisruptionBudget": {"minAvailable": 1},
            "config": {
                "envoyGateway": {
                    "gateway": {"controllerName": _CONTROLLER},
                    "provider": {"type": "Kubernetes"},
                    "logging": {"level": {"default": "info"}},
                }
            },
            # Its webhook is a hook of the chart, which isn't run: without it the webhook's absence
            # would keep proxies from starting.
            "topologyInjector": {"enabled": False},
        }
    }


def _certificates(spec: PlatformSpec) -> list[Manifest]:
    """What the chart's certificate hook would make: mutual TLS between gateway and proxies.

    https://gateway.envoyproxy.io/docs/tasks/security/tls-cert-manager/ (control plane)
    """
    both = ["digital signature", "key encipherment", "server auth", "client auth"]

    def one(name: str, service: str) -> Manifest:
        hosts = [service, f"{service}.{NAMESPACE}", f"{service}.{NAMESPACE}.svc",
                 f"{service}.{NAMESPACE}.svc.cluster.local"]  # fmt: skip
        return certificate(spec, name, NAMESPACE, hosts, both)

    wildcard = certificate(spec, "envoy", NAMESPACE, [f"*.{NAMESPACE}"], both)
    found = [
        one("envoy-gateway", "envoy-gateway"),
        wildcard,
        one("envoy-rate-limit", "envoy-ratelimit"),
    ]
    if spec.has("external-secrets"):
        # Signs the state of OpenID Connect logins.
        found += generated_secret(spec, "envoy-oidc-hmac", NAMESPACE, "hmac-secret")
    return found


ENVOY_GATEWAY: Final = Addon(
    name="envoy-gateway",
    summary="gateways into the cluster, by the Gateway API",
    namespaces=(Namespace(NAMESPACE),),
    releases=(Release("gateway-helm", "envoy-gateway", NAMESPACE),),
    options=EnvoyGatewayOptions,
    images=lambda spec: ("envoy-gateway", "envoy", "envoy-ratelimit"),
    values=_values,
    traffic=lambda spec: {
        NAMESPACE: Traffic(
            webhooks=(CONTROLLER_WEBHOOKS,),
            scrapes=(19001,),
            # Services that answer to the gateway; what callers reach it is each gateway's own.
            calls={"duty:serving": (8080, 8443, 15008)},
        )
    },
    scrapes=(
        Scrape(NAMESPACE, {"control-plane": "envoy-gateway"}, "metrics"),
        Scrape(
            NAMESPACE,
            {"app.kubernetes.io/component": "proxy"},
            "metrics",
            path="/stats/prometheus",
        ),
    ),
    before=_certificates,
    needs=("cert-manager",),
    # What makes its Services' balancers on EKS goes after it, with what it has left.
    follows=("external-secrets", "aws-load-balancer-controller"),
)
