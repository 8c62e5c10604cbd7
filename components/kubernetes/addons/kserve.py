"""KServe in its Standard mode, for users of its InferenceService: no Knative, no Istio gateway.

Values: https://github.com/kserve/kserve/blob/v0.20.0/charts/kserve-resources/values.yaml
"""

from __future__ import annotations

from typing import Final, NotRequired, TypedDict

from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS

_NAMESPACE: Final = "kserve"


class KServeOptions(TypedDict):
    """Options of ``kserve``."""

    domain: NotRequired[str]
    """Domain in which services get a name. Default: none; services are reached inside the cluster
    only."""
    gateway: NotRequired[str]
    """``namespace/name`` of the gateway that their routes attach to. Needed with ``domain``."""


def _check(options: OptionsChecker, _: object) -> None:
    found = options.checked(KServeOptions)
    domain, gateway = found["domain"], found["gateway"]
    if domain:
        options.needed("gateway", "with domain")
    if gateway and gateway.count("/") != 1:
        options.say("gateway", f"given {gateway!r}; allowed: namespace/name")
    if gateway and not domain:
        options.say("gateway", "given without domain; give both or none")


def _values(spec: PlatformSpec) -> dict[str, Values]:
    options = spec.options("kserve")

    def image(name: str) -> Values:
        return {"image": spec.repository(name), "tag": spec.tag(name)}

    return {
        "kserve-crd": {},
        "kserve": {
            "kserve": {
                "agent": image("kserve-agent"),
                "router": image("kserve-router"),
                "storage": image("kserve-storage-initializer"),
                "controller": {
                    **image("kserve-controller"),
                    "rbacProxyImage": spec.images["kube-rbac-proxy"],
                    # The chart's default is Knative.
                    "deploymentMode": "Standard",
                    "nodeSelector": spec.node_selector,
                    "resources": resources("100m", "512Mi"),
                    "gateway": {
                        "domain": options["domain"] or "cluster.local",
                        "urlScheme": "https",
                        "disableIstioVirtualHost": True,
                        "disableIngressCreation": not options["domain"],
                        "ingressGateway": {
                            "enableGatewayApi": True,
                            "createGateway": False,
                            "kserveGateway": options["gateway"] or "",
                            "className": "",
                        },
                    },
                },
                "localmodel": {"enabled": False},
            }
        },
    }


KSERVE: Final = Addon(
    name="kserve",
    summary="InferenceServices of KServe, as plain Deployments",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(
        Release("kserve-crd", "kserve-crd", _NAMESPACE),
        Release("kserve-resources", "kserve", _NAMESPACE),
    ),
    options=KServeOptions,
    check=_check,
    images=lambda spec: (
        "kserve-controller",
        "kserve-agent",
        "kserve-router",
        "kserve-storage-initializer",
        "kube-rbac-proxy",
    ),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(webhooks=(CONTROLLER_WEBHOOKS,))},
    needs=("cert-manager", "envoy-gateway"),
    follows=("keda",),
)
