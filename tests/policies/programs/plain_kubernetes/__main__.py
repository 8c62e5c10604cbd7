"""A server in plain pulumi-kubernetes; `mistakes: true` makes it as people often do."""

import pulumi
import pulumi_kubernetes as k8s

mistakes = pulumi.Config().get_bool("mistakes") or False
DIGEST = "sha256:" + "0f" * 32
IMAGE = f"111122223333.dkr.ecr.me-central-1.amazonaws.com/shop/server@{DIGEST}"
labels = {"app": "server"}
namespace = k8s.core.v1.Namespace(
    "shop",
    metadata={
        "name": "shop",
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
)
k8s.networking.v1.NetworkPolicy(
    "deny",
    metadata={"name": "default-deny", "namespace": "shop"},
    spec={"pod_selector": {}, "policy_types": ["Ingress", "Egress"]},
)
account = k8s.core.v1.ServiceAccount(
    "server",
    metadata={"name": "server", "namespace": "shop"},
    automount_service_account_token=False,
)
pod = {
    "service_account_name": "server",
    "automount_service_account_token": False,
    "node_selector": {
        "topology.kubernetes.io/region": "eu-west-1" if mistakes else "me-central-1",
    },
    "security_context": {
        "run_as_non_root": True,
        "run_as_user": 10001,
        "seccomp_profile": {"type": "RuntimeDefault"},
    },
    "containers": [
        {
            "name": "server",
            "image": "nginx:latest" if mistakes else IMAGE,
            "security_context": {
                "allow_privilege_escalation": False,
                "read_only_root_filesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            },
        }
    ],
}
if mistakes:
    pod["host_network"] = True
k8s.apps.v1.Deployment(
    "server",
    metadata={"name": "server", "namespace": "shop", "labels": labels},
    spec={
        "replicas": 2,
        "selector": {"match_labels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    },
    opts=pulumi.ResourceOptions(depends_on=[namespace, account]),
)
k8s.core.v1.Service(
    "server",
    metadata={"name": "server", "namespace": "shop"},
    spec={
        "type": "LoadBalancer" if mistakes else "ClusterIP",
        "selector": labels,
        "ports": [{"port": 443, "target_port": 8443}],
    },
)
