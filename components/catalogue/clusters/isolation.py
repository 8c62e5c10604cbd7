"""What keeps pods apart from their nodes, and from one another.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from typing import Final

#: Namespaces of agents that need their nodes: drivers, networks, storage, runtime security.
#: Their DaemonSets may do what they must; everything else in them meets the baseline.
SYSTEM: Final = frozenset({
    "kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator",
    "network-operator", "nvidia-network-operator", "nvidia-dra-driver-gpu",
    "node-feature-discovery", "nvsentinel", "istio-system", "cilium", "calico-system",
    "tigera-operator", "rook-ceph", "falco", "tetragon", "aws-observability",
    "amazon-cloudwatch", "gatekeeper-system", "aks-istio-system", "efa-device-plugin",
    "istio-nodes", "monitoring-nodes",
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
#: Taints of nodes that are kept for the control plane and for the cluster's own agents; the last
#: is of Falaj's own pools.
SYSTEM_TAINTS: Final = frozenset({
    "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
    "CriticalAddonsOnly", "node.kubernetes.io/unschedulable", "falaj.io/system",
})  # fmt: skip
#: Taint of nodes with GPUs.
GPU_TAINT: Final = "nvidia.com/gpu"
