"""What clusters are judged by: their own admission and the policy packs read the same facts.

A demand on a pod's fields stands in `falaj.components.catalogue.pod_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Labels by which nodes say where they are.
#
# https://kubernetes.io/docs/reference/labels-annotations-taints/

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_KEYS: Final = frozenset({REGION_LABEL, "failure-domain.beta.kubernetes.io/region"})
ZONE_KEYS: Final = frozenset({
    ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone", "topology.disk.csi.azure.com/zone",
    "topology.k8s.aws/zone-id", "topology.gke.io/zone",
})  # fmt: skip


#: Label of each node: its own name there.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
#: Label of each namespace: its name.
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
#: What the names of a tenant's two namespaces end in, after the tenant's.
TRAINING_ENDING: Final = "-training"
SERVING_ENDING: Final = "-serving"
#: Namespaces of Prometheus and of the gateways' proxies, unless another one is named.
MONITORING: Final = "monitoring"
GATEWAYS: Final = "envoy-gateway-system"
#: External Secrets' `ClusterSecretStore` and cert-manager's `ClusterIssuer`, likewise.
SECRET_STORE: Final = "falaj"  # noqa: S105 - a name
CERTIFICATE_ISSUER: Final = "falaj"
#: Of schedules that name no time zone.
USUAL_TIME_ZONE: Final = "Asia/Dubai"

#: Label by which namespaces, pods and nodes say whose they are.
TENANT_LABEL: Final = "falaj.io/tenant"

# What keeps pods apart from their nodes, and from one another.
#
# https://kubernetes.io/docs/concepts/security/pod-security-standards/

#: Add-on, namespace and account of the controller that repairs nodes.
NODE_REPAIR: Final = "node-repair"
#: Labels and annotations on nodes that are that controller's and administrators' alone.
REPAIR_DOMAIN: Final = "repair.falaj.io"
#: Folder of a registry with packages of models, which no rule of a registry cleans up: a version
#: that is served may be an old one, and its keys are pushed apart from it.
MODEL_REPOSITORIES: Final = "models"
#: Namespace and account of the pods that keep images on nodes.
IMAGE_PREFETCH: Final = "image-prefetch"
#: Their class of priority, and the most that one of them may take: they are on nodes with GPUs
#: without asking for one.
PREFETCH_PRIORITY: Final = "falaj-image-prefetch"
PREFETCH_LIMITS: Final[Mapping[str, str]] = {"cpu": "100m", "memory": "64Mi"}
#: First version of Kubernetes that mounts images by default: https://kep.k8s.io/4639
IMAGE_VOLUMES_SINCE: Final = "1.35"
#: Taint of cordoned nodes, which the controller of DaemonSets has its pods tolerate.
CORDONED: Final = "node.kubernetes.io/unschedulable"
#: Namespaces of agents that need their nodes: drivers, networks, storage, runtime security.
#: Their DaemonSets may do what they must; everything else in them meets the baseline.
SYSTEM_NAMESPACES: Final = frozenset({
    "kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator",
    "network-operator", "nvidia-network-operator", "nvidia-dra-driver-gpu",
    "node-feature-discovery", "nvsentinel", "istio-system", "cilium", "calico-system",
    "tigera-operator", "rook-ceph", "falco", "tetragon", "aws-observability",
    "amazon-cloudwatch", "gatekeeper-system", "aks-istio-system", "efa-device-plugin",
    "istio-nodes", "monitoring-nodes",
})  # fmt: skip


@dataclass(frozen=True)
class PodAccount:
    """A service account of the platform that the cloud gives a role of its own."""

    namespace: str
    name: str


CLUSTER_AUTOSCALER: Final = PodAccount("cluster-autoscaler", "cluster-autoscaler")
LOAD_BALANCER_CONTROLLER: Final = PodAccount(
    "aws-load-balancer-controller", "aws-load-balancer-controller"
)
#: The platform's other add-ons: operators, which need rights and tokens but not their nodes.
PLATFORM_NAMESPACES: Final = frozenset({
    "kueue-system", "jobset-system", "kubeflow-system", "kserve", "keda", "cert-manager",
    GATEWAYS, "external-secrets", "opencost", "istio-system", MONITORING,
    "velero", "falaj-system", NODE_REPAIR, IMAGE_PREFETCH, CLUSTER_AUTOSCALER.namespace,
    LOAD_BALANCER_CONTROLLER.namespace,
})  # fmt: skip
BASELINE_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
#: Resources that stand for a part of a GPU without memory of its own; MIG's have theirs.
SHARED_GPU: Final = (
    r"nvidia\.com/[\w.-]*\.shared|nvidia\.com/(?:gpumem|gpucores|vgpu)[\w.-]*|"
    r"aliyun\.com/gpu-mem|volcano\.sh/(?:gpu-memory|vgpu)[\w.-]*|"
    r"run\.ai/gpu[\w.-]*|tencent\.com/vcuda[\w.-]*"
)
#: Taint of nodes that were taken out because a GPU is broken, by a person, as the alerts say to,
#: or by the controller that repairs nodes.
GPU_ERROR_TAINT: Final = "falaj.io/gpu-error"
#: Taints of nodes that are kept for the control plane and for the cluster's own agents, or that
#: nothing new may come to; the last is of Falaj's own pools.
SYSTEM_TAINTS: Final = frozenset({
    "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
    "CriticalAddonsOnly", CORDONED, GPU_ERROR_TAINT, "falaj.io/system",
})  # fmt: skip
#: What NVIDIA's device plugin calls a GPU, and one that it shares by time-slicing:
#: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html
GPU: Final = "nvidia.com/gpu"
TIME_SLICE: Final = "nvidia.com/gpu.shared"
#: Taint of nodes with GPUs, and of AKS's spot nodes, which it sets by itself:
#: https://learn.microsoft.com/en-us/azure/aks/spot-node-pool
GPU_TAINT: Final = GPU
AKS_SPOT_TAINT: Final = "kubernetes.azure.com/scalesetpriority"
#: Application id of AKS's API servers in every tenant:
#: https://azure.github.io/kubelogin/concepts/aks.html
AKS_SERVER: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
#: ConfigMap of a team's own with which AKS's and k3s' CoreDNS is set.
COREDNS_CUSTOM: Final = "coredns-custom"


# Addresses and names that only one's own networks know, and domains that anybody may have.

PRIVATE_RANGES: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
"""https://www.rfc-editor.org/rfc/rfc1918#section-3"""
SHARED_RANGE: Final = "100.64.0.0/10"
"""Between a carrier and its customers (https://www.rfc-editor.org/rfc/rfc6598#section-7)."""
OWN_RANGES: Final = (
    *PRIVATE_RANGES, SHARED_RANGE, "127.0.0.0/8", "169.254.0.0/16", "fc00::/7", "fe80::/10",
    "::1/128",
)  # fmt: skip
#: Names that only a private network knows (RFC 6762, RFC 8375, and Kubernetes' own).
PRIVATE_SUFFIXES: Final = (
    ".internal", ".local", ".localhost", ".lan", ".home.arpa", ".svc", ".cluster.local", ".test",
    ".intranet", ".corp", ".private",
)  # fmt: skip


# What makes the load balancer of a service internal, cloud by cloud.
#
# https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/annotations/
# https://cloud-provider-azure.sigs.k8s.io/topics/loadbalancer/

LOAD_BALANCER_SCHEMES: Final = ("service.beta.kubernetes.io/aws-load-balancer-scheme",)
AWS_SWITCH: Final = "service.beta.kubernetes.io/aws-load-balancer-internal"
AZURE_SWITCH: Final = "service.beta.kubernetes.io/azure-load-balancer-internal"
LOAD_BALANCER_SWITCHES: Final = (
    AWS_SWITCH,
    AZURE_SWITCH,
    "service.beta.kubernetes.io/openstack-internal-load-balancer",
    "service.beta.kubernetes.io/oci-load-balancer-internal",
)
LOAD_BALANCER_KINDS: Final = {
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
LOAD_BALANCER_ADDRESSES: Final = (
    "metallb.universe.tf/loadBalancerIPs", "metallb.io/loadBalancerIPs",
    "kube-vip.io/loadbalancerIPs", "lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips",
)  # fmt: skip
#: Annotations of ingresses and gateways that name a balancer's scheme.
GATEWAY_SCHEMES: Final = (
    "alb.ingress.kubernetes.io/scheme",
    "service.beta.kubernetes.io/aws-load-balancer-scheme",
)


# Rights by which one becomes somebody else, and names that stand for everybody.
#
# https://kubernetes.io/docs/concepts/security/rbac-good-practices/

#: Verbs on resources by which one becomes somebody else, or more than one is.
ESCALATIONS: Final[tuple[tuple[frozenset[str], frozenset[str], str], ...]] = tuple(
    (frozenset(resources), frozenset(verbs), what)
    for resources, verbs, what in (
        (("roles", "clusterroles"), ("escalate", "bind"), "grant more than one has"),
        (("users", "groups", "serviceaccounts", "uids", "userextras"), ("impersonate",),
         "act as others"),
        (("serviceaccounts/token",), ("create",), "make tokens of others"),
        (("nodes/proxy",), ("get", "create", "update", "patch", "delete"),
         "run commands on every node, past admission and audit"),
        (("pods/exec", "pods/attach", "pods/portforward"), ("create", "get"),
         "get into pods of others"),
        (("pods/ephemeralcontainers",), ("update", "patch"), "add containers to pods of others"),
        (("certificatesigningrequests/approval",), ("update", "patch"), "approve identities"),
        (("signers",), ("approve", "sign"), "sign identities"),
        (("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
         ("create", "update", "patch"), "see and change every object that others write"),
        (("validatingadmissionpolicies", "validatingadmissionpolicybindings",
          "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
         ("create", "update", "patch", "delete", "deletecollection"),
         "change what the cluster itself refuses"),
    )
)  # fmt: skip
BY_NAME_ONLY: Final = "pods/portforward"
"""What a rule of a Role may allow of pods that it names: their ports, as of a workspace. Commands
in them are nobody's."""
#: Verbs that read.
READ_VERBS: Final = frozenset({"get", "list", "watch", "*"})

EVERYBODY_NAMES: Final = {
    "system:anonymous": "everybody, without a name",
    "system:unauthenticated": "everybody, without a name",
    "system:authenticated": "everybody who has an account",
    "system:serviceaccounts": "every program of the cluster",
    "system:masters": "whoever no policy holds back",
}
#: Roles that Kubernetes itself gives to everybody.
PUBLIC_ROLES: Final = frozenset({
    "system:discovery", "system:basic-user", "system:public-info-viewer",
    "system:service-account-issuer-discovery",
})  # fmt: skip


# What a storage class must say for its volumes to be encrypted with a key of one's own.
#
# https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
# https://github.com/kubernetes-sigs/azuredisk-csi-driver/blob/master/docs/driver-parameters.md
# https://github.com/kubernetes-sigs/aws-fsx-csi-driver


@dataclass(frozen=True)
class StorageDriver:
    """What a driver's storage class must say for its volumes to have a key of one's own."""

    key: str
    """Parameter that names the key, in small letters."""
    switch: str = ""
    """Parameter that must be true for the key to be used; empty where none is."""
    instead: tuple[str, ...] = ()
    """Parameters that name something that exists, whose own key counts."""


_EBS: Final = StorageDriver("kmskeyid", "encrypted")
_AZURE_DISK: Final = StorageDriver("diskencryptionsetid")
_AZURE_FILES: Final = StorageDriver("", instead=("storageaccount",))
#: Drivers of the clouds; all others keep their volumes on one's own machines, whose disks are
#: encrypted where they are made.
STORAGE_DRIVERS: Final[Mapping[str, StorageDriver]] = {
    "ebs.csi.aws.com": _EBS,
    "ebs.csi.eks.amazonaws.com": _EBS,
    "kubernetes.io/aws-ebs": _EBS,
    "disk.csi.azure.com": _AZURE_DISK,
    "kubernetes.io/azure-disk": _AZURE_DISK,
    "file.csi.azure.com": _AZURE_FILES,
    "kubernetes.io/azure-file": _AZURE_FILES,
    "blob.csi.azure.com": _AZURE_FILES,
    "efs.csi.aws.com": StorageDriver("", instead=("filesystemid",)),
    "fsx.csi.aws.com": StorageDriver("kmskeyid"),
    "fsx.openzfs.csi.aws.com": StorageDriver("kmskeyid", instead=("parentvolumeid",)),
    "pd.csi.storage.gke.io": StorageDriver("disk-encryption-kms-key"),
}
#: The managed add-on of EKS that installs each driver of AWS's own:
#: https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html
EKS_STORAGE_ADDONS: Final[Mapping[str, str]] = {
    "ebs.csi.aws.com": "aws-ebs-csi-driver",
    "efs.csi.aws.com": "aws-efs-csi-driver",
    "fsx.csi.aws.com": "aws-fsx-csi-driver",
}
EKS_SNAPSHOT_ADDON: Final = "snapshot-controller"
"""The managed add-on of EKS that defines classes of snapshots and makes snapshots."""
EKS_ADDONS: Final = (
    "vpc-cni",
    "kube-proxy",
    "coredns",
    "eks-pod-identity-agent",
    "eks-node-monitoring-agent",
    EKS_SNAPSHOT_ADDON,
    *EKS_STORAGE_ADDONS.values(),
)
"""The managed add-ons of a cluster."""
#: Names of keys that the provider owns.
PROVIDER_KEYS: Final = ("alias/aws/",)
#: Parameters, in small letters, that name a place, and those that name a kind of copies.
PLACE_PARAMETERS: Final = frozenset(
    {"location", "region", "zone", "availabilityzone", "zones", "az"}
)
REPLICATION_PARAMETERS: Final = frozenset({"skuname", "storageaccounttype", "sku"})
#: Azure's kinds of copies that go to another region.
GEO_REPLICATION: Final = frozenset({"GRS", "RAGRS", "GZRS", "RAGZRS"})
