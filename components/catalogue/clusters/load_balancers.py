"""What makes the load balancer of a service internal, cloud by cloud.

https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/annotations/
https://cloud-provider-azure.sigs.k8s.io/topics/loadbalancer/
"""

from typing import Final

SCHEMES: Final = ("service.beta.kubernetes.io/aws-load-balancer-scheme",)
AWS_SWITCH: Final = "service.beta.kubernetes.io/aws-load-balancer-internal"
AZURE_SWITCH: Final = "service.beta.kubernetes.io/azure-load-balancer-internal"
SWITCHES: Final = (
    AWS_SWITCH,
    AZURE_SWITCH,
    "service.beta.kubernetes.io/openstack-internal-load-balancer",
    "service.beta.kubernetes.io/oci-load-balancer-internal",
)
KINDS: Final = {
    "networking.gke.io/load-balancer-type": "internal",
    "cloud.google.com/load-balancer-type": "internal",
    "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type": "private",
    "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type": "intranet",
}
#: What hands a service to AWS' own controllers, whose balancers are internal unless said otherwise
#: (https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/nlb/,
#: https://docs.aws.amazon.com/eks/latest/userguide/auto-configure-nlb.html).
AWS_TYPE: Final = "service.beta.kubernetes.io/aws-load-balancer-type"
INTERNAL_TYPES: Final = frozenset({"external", "nlb-ip"})
INTERNAL_CLASSES: Final = frozenset({"service.k8s.aws/nlb", "eks.amazonaws.com/nlb"})
#: Where balancers of one's own machines read their address.
ADDRESSES: Final = (
    "metallb.universe.tf/loadBalancerIPs", "metallb.io/loadBalancerIPs",
    "kube-vip.io/loadbalancerIPs", "lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips",
)  # fmt: skip
#: Annotations of ingresses and gateways that name a balancer's scheme.
GATEWAY_SCHEMES: Final = (
    "alb.ingress.kubernetes.io/scheme",
    "service.beta.kubernetes.io/aws-load-balancer-scheme",
)
