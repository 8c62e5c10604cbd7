"""Rules of pods that are demands on single fields, each declared once.

A declaration is read by two: the policy packs judge objects by it before they are deployed
(`policies/rules/kubernetes/pod_security.py`), and `Residency` renders those with an `admission`
to the CEL of a ValidatingAdmissionPolicy (`components/kubernetes/admission/workloads.py`). A new
rule of this form is an entry of `POD_RULES`, and its cases beside the pack's rules.

The values are those of the Pod Security Standards where they say something:
https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from dataclasses import dataclass
from typing import Final, Literal

from falaj.components.catalogue.clusters import BASELINE_CAPABILITIES

Value = str | int | bool
Operator = Literal["In", "NotIn", "DoesNotExist"]
"""As in label selectors: ``DoesNotExist`` has no values."""
Scope = Literal["pod", "containers", "pod and containers"]
SeverityName = Literal["critical", "high", "medium", "low"]
"""How much harm a violation does, worst first."""


@dataclass(frozen=True)
class Field:
    """A field and what it may be. Where it is absent it is fine, unless it is required."""

    path: str
    """Keys with dots; ``[]`` behind a list whose every item is looked at (one at most)."""
    operator: Operator
    values: tuple[Value, ...]
    reason: str
    """What is wrong, in words. ``{value}`` is the field's, ``{container}`` the container's name
    (not for fields of pods)."""
    scope: Scope = "containers"
    is_required: bool = False
    """Whether absence is wrong, too: Kubernetes' default is another value."""
    detail: str = ""
    """Key below the field whose text is its value in words; empty for the field itself."""
    unless: str = ""
    """A switch of the pod: where it is true, the field isn't looked at."""

    @property
    def key(self) -> str:
        """The last key of its path."""
        return self.path.removesuffix("[]").rpartition(".")[2]

    @property
    def allowed(self) -> str:
        """What it may be, in words."""
        if self.operator == "NotIn":
            values = "false" if self.values == (True,) else f"not {_listed(self.values)}"
        else:
            values = _listed(self.values) or "none"
        return f"{self.key}: {values}"


def _listed(values: tuple[Value, ...]) -> str:
    """Values in words, without those that say nothing."""
    words = (str(each).lower() if isinstance(each, bool) else str(each) for each in values)
    return ", ".join(each for each in words if each)


@dataclass(frozen=True)
class PodRule:
    """One rule: what it is called, and the fields that it makes demands on."""

    id: str
    title: str
    """What is demanded, one line without a full stop."""
    severity: SeverityName
    controls: tuple[str, ...]
    """References into ``policies/controls/controls.yaml``."""
    remediation: str
    """What to change, in whole sentences: the hint of the pack and of the API server."""
    fields: tuple[Field, ...]
    standard: Literal["baseline", "restricted"]
    """Pods that must meet less aren't judged by the packs: system namespaces meet the baseline,
    DaemonSets there nothing (`clusters.SYSTEM_NAMESPACES`)."""
    admission: Literal["", "host-access", "names", "pinning"] = ""
    """The policy of admission that refuses it in the cluster as well (a policy renders those that
    name it by `refused`, in `components/kubernetes/admission/`); empty where the Pod Security
    Standard that its namespace enforces does, or nobody."""
    linux_only: bool = False
    """Whether pods that say that they run on Windows have no such field."""

    @property
    def allowed(self) -> str:
        """What its fields may be, in words."""
        return "; ".join(dict.fromkeys(each.allowed for each in self.fields))


CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
"""Where a pod has its containers."""
ENFORCE_LABEL: Final = "pod-security.kubernetes.io/enforce"
"""Label of a namespace: the Pod Security Standard that its pods have to meet.
https://kubernetes.io/docs/concepts/security/pod-security-admission/"""

# Controls that demands on pods serve, by what they protect.

HOST_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:2")
KERNEL_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:2")
USER_CONTROLS: Final = ("iso27001:A.8.2", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2")
_NODES: Final = "affinity.nodeAffinity"
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_SELINUX_TYPES: Final = (
    "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t",
)  # fmt: skip
APPARMOR_PROFILE: Final = Field(
    "securityContext.appArmorProfile.type", "In", _PROFILES,
    "the AppArmor profile is {value}", "pod and containers",
)  # fmt: skip
"""The field that succeeded the annotations of the rule ``kubernetes-apparmor``."""

POD_RULES: Final = (
    PodRule(
        "kubernetes-inline-csi",
        "Volumes of CSI drivers are claimed, not described in the pod",
        "high",
        ("iso27001:A.8.12", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:2"),
        "Claim it of a storage class (persistentVolumeClaim, or ephemeral), which says where it "
        "is: a node mounts what a pod describes past every network policy.",
        (
            Field(
                "volumes[].csi", "DoesNotExist", (), "the pod describes a volume of {value}",
                "pod", detail="driver",
            ),
        ),
        "restricted",
        "host-access",
    ),
    PodRule(
        "kubernetes-host-namespaces",
        "Pods don't share their node's network, processes or memory",
        "high",
        HOST_CONTROLS,
        "Remove hostNetwork, hostPID and hostIPC from the pod, or set them to false. Agents that "
        "need them belong into a namespace of the system's own.",
        tuple(
            Field(key, "NotIn", (True,), f"the pod shares its node's {what}", "pod")
            for key, what in (
                ("hostNetwork", "network"), ("hostPID", "processes"), ("hostIPC", "memory"),
            )
        ),
        "baseline",
        "host-access",
    ),
    PodRule(
        "kubernetes-privileged-container",
        "Containers aren't privileged",
        "high",
        HOST_CONTROLS,
        "Remove securityContext.privileged, or set it to false. GPUs need no privileges: ask for "
        "them as resources.",
        (
            Field(
                "securityContext.privileged", "NotIn", (True,),
                "container '{container}' is privileged, which is root on its node",
            ),
        ),
        "baseline",
        "host-access",
    ),
    PodRule(
        "kubernetes-host-process",
        "Windows containers don't run as processes of their node",
        "high",
        HOST_CONTROLS,
        "Remove windowsOptions.hostProcess, or set it to false.",
        (
            Field(
                "securityContext.windowsOptions.hostProcess", "NotIn", (True,),
                "containers run as processes of the Windows node", "pod and containers",
            ),
        ),
        "baseline",
    ),
    PodRule(
        "kubernetes-host-path",
        "Pods mount no files of their node",
        "high",
        HOST_CONTROLS,
        "Use a persistent volume claim, an emptyDir, or a projected volume in place of hostPath.",
        (
            Field(
                "volumes[].hostPath", "DoesNotExist", (), "the pod mounts {value} of its node",
                "pod", detail="path",
            ),
        ),
        "baseline",
        "host-access",
    ),
    PodRule(
        "kubernetes-host-port",
        "Containers open no ports of their node",
        "medium",
        HOST_CONTROLS,
        "Remove hostPort and reach the pod through a Service.",
        (
            # Kubernetes copies containerPort to hostPort on the host's network, which is a finding
            # of its own.
            Field(
                "ports[].hostPort", "In", (0,),
                "container '{container}' opens port {value} of its node", unless="hostNetwork",
            ),
        ),
        "baseline",
        "host-access",
    ),
    # The kubelet isn't made to call somebody else (Kubernetes 1.34 and later forbid it).
    PodRule(
        "kubernetes-probe-host",
        "Probes and lifecycle hooks call no other host than the pod",
        "medium",
        HOST_CONTROLS,
        "Remove the host of the probe or hook: it then calls the pod itself. To send a Host "
        "header, use httpHeaders.",
        tuple(
            Field(
                f"{handler}.{kind}.host", "In", ("",),
                f"{handler} of container '{{container}}' makes the node call {{value}}",
            )
            for handler in (
                "livenessProbe", "readinessProbe", "startupProbe",
                "lifecycle.postStart", "lifecycle.preStop",
            )
            for kind in ("httpGet", "tcpSocket")
        ),
        "baseline",
    ),
    PodRule(
        "kubernetes-proc-mount",
        "Containers see /proc masked",
        "medium",
        HOST_CONTROLS,
        "Remove procMount, or set it to Default.",
        (
            Field(
                "securityContext.procMount", "In", ("", "Default"),
                "procMount of container '{container}' is {value}",
            ),
        ),
        "baseline",
        "host-access",
    ),
    PodRule(
        "kubernetes-capabilities-baseline",
        "Containers add no capability beyond what runtimes give",
        "high",
        KERNEL_CONTROLS,
        "Remove what is added in securityContext.capabilities.add.",
        (
            Field(
                "securityContext.capabilities.add[]", "In", tuple(sorted(BASELINE_CAPABILITIES)),
                "container '{container}' adds {value}",
            ),
        ),
        "baseline",
        "host-access",
    ),
    PodRule(
        "kubernetes-seccomp-unconfined",
        "No container runs without a seccomp profile by choice",
        "high",
        KERNEL_CONTROLS,
        "Set securityContext.seccompProfile.type to RuntimeDefault, or remove Unconfined.",
        (
            Field(
                "securityContext.seccompProfile.type", "In", _PROFILES,
                "the seccomp profile is {value}", "pod and containers",
            ),
        ),
        "baseline",
    ),
    PodRule(
        "kubernetes-selinux",
        "Containers keep their SELinux type",
        "medium",
        KERNEL_CONTROLS,
        "Remove seLinuxOptions.user and .role, and leave the type to the runtime or to a "
        "container type.",
        tuple(
            Field(
                f"securityContext.seLinuxOptions.{key}", "In", values,
                f"the SELinux {key} is {{value}}", "pod and containers",
            )
            for key, values in (("type", _SELINUX_TYPES), ("user", ("",)), ("role", ("",)))
        ),
        "baseline",
    ),
    PodRule(
        "kubernetes-privilege-escalation",
        "Containers can't gain privileges",
        "medium",
        USER_CONTROLS,
        "Set securityContext.allowPrivilegeEscalation to false on every container, init "
        "containers and ephemeral ones included.",
        (
            Field(
                "securityContext.allowPrivilegeEscalation", "In", (False,),
                "container '{container}' may gain privileges", is_required=True,
            ),
        ),
        "restricted",
        linux_only=True,
    ),
    PodRule(
        "kubernetes-run-as-user",
        "Containers aren't given root's user",
        "medium",
        USER_CONTROLS,
        "Set runAsUser to a number above 0, or remove it.",
        (
            Field(
                "securityContext.runAsUser", "NotIn", (0,), "runAsUser is {value}, which is root",
                "pod and containers",
            ),
        ),
        "restricted",
    ),
    PodRule(
        "kubernetes-read-only-root",
        "Containers can't write to their image",
        "low",
        ("iso27001:A.8.9", "nist-800-207:5"),
        "Set securityContext.readOnlyRootFilesystem to true and mount an emptyDir where the "
        "program writes.",
        (
            Field(
                "securityContext.readOnlyRootFilesystem", "In", (True,),
                "container '{container}' may write to its image", is_required=True,
            ),
        ),
        "restricted",
        linux_only=True,
    ),
    # Past quotas of queues, taints and what else is asked of nodes.
    PodRule(
        "kubernetes-node-name",
        "Pods are placed by the scheduler",
        "medium",
        ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2"),
        "Remove nodeName and matchFields, and select nodes by their labels.",
        (
            Field(
                "nodeName", "In", ("",), "the pod names {value}, past the scheduler", "pod",
            ),
            Field(
                f"{_NODES}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]"
                ".matchFields", "DoesNotExist", (), "the pod names a node by matchFields", "pod",
            ),
            Field(
                f"{_NODES}.preferredDuringSchedulingIgnoredDuringExecution[].preference"
                ".matchFields", "DoesNotExist", (), "the pod wishes for a node by matchFields",
                "pod",
            ),
        ),
        "restricted",
        "pinning",
    ),
    # One that nobody knows holds the quota of a pod that never starts; another places it its way.
    PodRule(
        "kubernetes-scheduler-name",
        "Pods are placed by the cluster's own scheduler",
        "medium",
        ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2"),
        "Remove schedulerName.",
        (
            Field(
                "schedulerName", "In", ("default-scheduler", ""),
                "the pod is for the scheduler {value}", "pod",
            ),
        ),
        "restricted",
        "pinning",
    ),
    # The node's resolver answers what the cluster's own may be told not to.
    PodRule(
        "kubernetes-dns-policy",
        "Pods don't ask their node's servers of names",
        "medium",
        ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3", "nist-800-207:2"),
        "Remove dnsPolicy: the cluster's own servers are asked then.",
        (
            Field(
                "dnsPolicy", "NotIn", ("Default",),
                "dnsPolicy is Default, which asks the node's servers of names", "pod",
            ),
        ),
        "restricted",
        "names",
    ),
)  # fmt: skip
