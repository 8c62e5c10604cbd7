"""A program of plain Kubernetes, with no component of ours: it passes; each mistake is found."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.policies.model import Stack
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules, rules_of
from tests.policies.cases import resource_of

PROGRAM: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "plain_kubernetes.yaml").read_text(encoding="utf-8")
)
POD = "Deployment.spec.template.spec"
CONTAINER = f"{POD}.containers.0"
#: A rule, where the program is changed (the last part of a type, then keys), and to what.
MISTAKES: list[tuple[str, str, Any]] = [
    ("kubernetes-namespace-pod-security", "Namespace.metadata.labels", {}),
    ("kubernetes-default-deny", "NetworkPolicy.spec.policyTypes", ["Egress"]),
    ("kubernetes-open-egress", "NetworkPolicy.spec.egress", [{}]),
    ("kubernetes-open-ingress", "NetworkPolicy.spec.ingress", [{}]),
    ("kubernetes-token-mount", "ServiceAccount.automountServiceAccountToken", True),
    ("kubernetes-placement-pinned", f"{POD}.nodeSelector", {}),
    ("kubernetes-placement-abroad", f"{POD}.nodeSelector",
     {"topology.kubernetes.io/zone": "eu-west-1a"}),
    ("kubernetes-host-namespaces", f"{POD}.hostPID", True),
    ("kubernetes-run-as-non-root", f"{POD}.securityContext.runAsNonRoot", None),
    ("kubernetes-run-as-user", f"{CONTAINER}.securityContext.runAsUser", 0),
    ("kubernetes-seccomp", f"{POD}.securityContext.seccompProfile", None),
    ("kubernetes-seccomp-unconfined", f"{CONTAINER}.securityContext.seccompProfile",
     {"type": "Unconfined"}),
    ("kubernetes-privilege-escalation", f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
     None),
    ("kubernetes-read-only-root", f"{CONTAINER}.securityContext.readOnlyRootFilesystem", False),
    ("kubernetes-capabilities-restricted", f"{CONTAINER}.securityContext.capabilities", None),
    ("kubernetes-capabilities-baseline", f"{CONTAINER}.securityContext.capabilities.add",
     ["SYS_ADMIN"]),
    ("kubernetes-privileged-container", f"{CONTAINER}.securityContext.privileged", True),
    ("kubernetes-resource-limits", f"{CONTAINER}.resources", {}),
    ("kubernetes-host-port", f"{CONTAINER}.ports.0.hostPort", 8080),
    ("kubernetes-probe-host", f"{CONTAINER}.readinessProbe.httpGet.host", "169.254.169.254"),
    ("kubernetes-image-digest", f"{CONTAINER}.image",
     "123456789012.dkr.ecr.me-central-1.amazonaws.com/team/api:1"),
    ("kubernetes-image-registry", f"{POD}.initContainers", [{"name": "a", "image": "busybox"}]),
    ("kubernetes-foreign-service", f"{CONTAINER}.env.0.value", "https://api.honeycomb.io"),
    ("kubernetes-egress-host", f"{CONTAINER}.env.0.value", "https://collector.example.com"),
    ("kubernetes-region-setting", f"{CONTAINER}.env.1.value", "eu-west-1"),
    ("kubernetes-secret-in-plain", f"{CONTAINER}.env.2",
     {"name": "DB_PASSWORD", "value": "hunter2"}),
    ("kubernetes-host-path", f"{POD}.volumes.0", {"name": "a", "hostPath": {"path": "/"}}),
    ("kubernetes-volume-types", f"{POD}.volumes.0", {"name": "a", "nfs": {"server": "10.0.0.1"}}),
    ("kubernetes-public-load-balancer", "Service.metadata.annotations", {}),
    ("kubernetes-node-port", "Service.spec.type", "NodePort"),
    ("kubernetes-gateway-tls", "Ingress.spec.tls", []),
    ("kubernetes-public-gateway", "Ingress.metadata.annotations",
     {"alb.ingress.kubernetes.io/scheme": "internet-facing"}),
    ("kubernetes-storage-class-key", "StorageClass.parameters.encrypted", "false"),
    ("kubernetes-rbac-wildcard", "Role.rules.0.verbs", ["*"]),
    ("kubernetes-rbac-cluster-admin", "RoleBinding.roleRef.name", "cluster-admin"),
    ("kubernetes-rbac-subjects", "RoleBinding.subjects.0.name", "system:authenticated"),
    ("kubernetes-placement-abroad", "NodePool.spec.template.spec.requirements.0.values",
     ["us-east-1a"]),
    ("kubernetes-manifest-source", "Chart.chart", "oci://ghcr.io/nvidia/gpu-operator"),
]  # fmt: skip


def stack(program: list[dict[str, Any]]) -> Stack:
    return Stack(tuple(resource_of(each) for each in program), name="plain")


def test_the_program_meets_every_rule_of_every_pack() -> None:
    judged = Judge(all_rules()).evaluate_stack(stack(PROGRAM))
    assert [
        (each.rule.id, str(each.resource), each.findings) for each in judged if each.findings
    ] == []


@pytest.mark.parametrize(("rule", "where", "value"), MISTAKES)
def test_a_mistake_is_found(rule: str, where: str, value: Any) -> None:
    kind, *keys = where.split(".")
    program = copy.deepcopy(PROGRAM)
    holder: Any = next(each for each in program if each["type"].endswith(f":{kind}"))["properties"]
    for key in keys[:-1]:
        holder = holder[int(key)] if isinstance(holder, list) else holder[key]
    if isinstance(holder, list):
        holder[int(keys[-1])] = value
    else:
        holder[keys[-1]] = value
    judged = Judge(rules_of("kubernetes")).evaluate_stack(stack(program))
    assert rule in {each.rule.id for each in judged if each.findings}
