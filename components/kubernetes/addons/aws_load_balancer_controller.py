"""AWS Load Balancer Controller: private NLBs for Services of the class ``service.k8s.aws/nlb``.

Values: https://github.com/kubernetes-sigs/aws-load-balancer-controller/blob/v3.5.0/helm/aws-load-balancer-controller/values.yaml
Without a way out of the network: its docs/deploy/installation.md, "isolated cluster".
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.catalogue.clusters import LOAD_BALANCER_CONTROLLER
from falaj.components.kubernetes._pods import USER, unprivileged, unprivileged_pod
from falaj.components.kubernetes.addons.addon import (
    ISSUER,
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
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS

_NAMESPACE: Final = LOAD_BALANCER_CONTROLLER.namespace
_RELEASE: Final = "aws-load-balancer-controller"
_METRICS: Final = 8080


class AwsLoadBalancerControllerOptions(TypedDict):
    """``aws-load-balancer-controller`` has no options: Services say what they need."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    placed = spec.placed
    return {
        _RELEASE: {
            "image": {"repository": spec.repository(_RELEASE), "tag": spec.tag(_RELEASE)},
            "replicaCount": 2,
            "podDisruptionBudget": {"maxUnavailable": 1},
            "clusterName": spec.cluster_name,
            # Pods can't ask the machine's metadata for these.
            "region": placed.region,
            "vpcId": spec.network_id,
            "serviceAccount": {"create": True, "name": LOAD_BALANCER_CONTROLLER.name},
            # None of these has an endpoint in a network without a way out.
            "enableShield": False,
            "enableWaf": False,
            "enableWafv2": False,
            # Balancers of Services alone, inside of the network; gateways are Envoy's.
            "defaultTargetType": "ip",
            "defaultLoadBalancerScheme": "internal",
            "createIngressClassResource": False,
            "ingressClassParams": {"create": False},
            "webhookConfig": {"disableIngressValidation": True},
            # Of namespaces that ask for it by a label, and only these.
            "podMutatorWebhookConfig": {"failurePolicy": "Fail"},
            "controllerConfig": {
                "featureGates": {
                    "ALBGatewayAPI": False,
                    "NLBGatewayAPI": False,
                    "LBCapacityReservation": False,
                }
            },
            # Services name the class themselves; else no Service could be made without this.
            "enableServiceMutatorWebhook": False,
            "defaultTags": {
                "falaj:tenant": placed.tenant,
                "falaj:cost-center": placed.cost_center,
                "falaj:data-class": placed.data_class,
            },
            # A certificate that the chart makes itself is another at each rendering.
            "enableCertManager": True,
            "certManager": {
                "duration": "2160h",
                "renewBefore": "720h",
                "issuerRef": {
                    "group": "cert-manager.io",
                    "kind": "ClusterIssuer",
                    "name": ISSUER,
                },
            },
            "clusterSecretsPermissions": {"allowAllSecrets": False},
            "webhookBindPort": CONTROLLER_WEBHOOKS,
            "metricsBindAddr": f":{_METRICS}",
            "nodeSelector": spec.node_selector,
            "priorityClassName": PRIORITY_CLASS,
            "resources": resources("50m", "256Mi"),
            "podSecurityContext": unprivileged_pod(fsGroup=USER),
            "securityContext": {"runAsNonRoot": True, **unprivileged()},
        }
    }


AWS_LOAD_BALANCER_CONTROLLER: Final = Addon(
    name="aws-load-balancer-controller",
    summary="private load balancers of EKS, for Services that ask for one",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("aws-load-balancer-controller", _RELEASE, _NAMESPACE),),
    options=AwsLoadBalancerControllerOptions,
    images=lambda spec: ("aws-load-balancer-controller",),
    values=_values,
    traffic=lambda spec: {
        _NAMESPACE: Traffic(webhooks=(CONTROLLER_WEBHOOKS,), scrapes=(_METRICS,), endpoints=True)
    },
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/instance": _RELEASE}, _METRICS),),
    # Its webhooks' certificate.
    needs=("cert-manager",),
    distributions=("eks",),
    asks=("cluster_name", "network_id"),
)
