"""Training workloads that the tests render and judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from falaj.components.kubernetes import training_job
from falaj.components.kubernetes._objects import Manifest, type_of
from falaj.policies.model import Settings, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.policies.cases import resource_of

DIGEST = "sha256:" + "1" * 64
OTHER_DIGEST = "sha256:" + "2" * 64
REGISTRY = "registry.acme.example/falaj"
GOLDEN = Path(__file__).parent / "golden"
COMMON: dict[str, Any] = {
    "registry": REGISTRY,
    "tenant": "acme",
    "owner": "ml@acme.example",
    "data_class": "confidential",
    "cost_center": "ml",
    "images": {"falaj-training": DIGEST, "falaj-training-cpu": OTHER_DIGEST},
}
PLACES: dict[str, dict[str, Any]] = {
    "eks": {
        "distribution": "eks", "region": "me-central-1", "acknowledge_degraded": "2026-04-30",
    },
    "aks": {"distribution": "aks", "region": "uaenorth"},
    "existing": {"distribution": "existing", "region": "dxb-1"},
}  # fmt: skip
JOB: dict[str, Any] = {"checkpoints": "runs", "dataset": "digits/3fa0", "flavor": "h200"}
CPU: dict[str, Any] = {**JOB, "flavor": "cpu-x86-64"}
LAUNCHER_DIGEST = "sha256:" + "3" * 64
HOROVOD: dict[str, Any] = {
    "framework": "horovod",
    "program": ["python", "-m", "team.train"],
    "dataset": None,
    "image": f"team/horovod@{DIGEST}",
    "images": {"falaj-inference": LAUNCHER_DIGEST},
}


def arguments(place: str = "existing", **changes: Any) -> Any:
    return {**COMMON, **PLACES[place], **JOB, **changes}


def job(place: str = "existing", **changes: Any) -> list[Manifest]:
    return training_job.manifests(training_job.check("fraud", arguments(place, **changes)))


def the(kind: str, manifests: list[Manifest]) -> dict[str, Any]:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return dict(found)


def pod_of(manifests: list[Manifest], role: int = 0) -> dict[str, Any]:
    """Template of the pods of a job."""
    for each in manifests:
        if each["kind"] == "JobSet":
            return each["spec"]["replicatedJobs"][role]["template"]["spec"]["template"]
        if each["kind"] == "Job":
            return each["spec"]["template"]
    raise AssertionError("no job")


def container_of(manifests: list[Manifest], role: int = 0) -> dict[str, Any]:
    (found,) = pod_of(manifests, role)["spec"]["containers"]
    return found


def env_of(manifests: list[Manifest], role: int = 0) -> dict[str, str]:
    """Plain variables of the pods."""
    entries = container_of(manifests, role)["env"]
    return {each["name"]: each["value"] for each in entries if "value" in each}


def surroundings(namespace: str) -> list[dict[str, Any]]:
    """What the tenant's component makes, as far as rules ask for it."""
    labels = {
        f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {**labels, "pod-security.kubernetes.io/enforce-version": "v1.36"},
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "default-deny", "namespace": namespace},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
    ]


def findings(manifests: list[Manifest], namespace: str = "acme-training") -> list[str]:
    """What the rules of all packs find in a program of these objects."""
    program = [*surroundings(namespace), *manifests]
    stack = Stack(
        tuple(
            resource_of(
                {
                    "type": type_of(each),
                    "name": f"{each['kind']}-{each['metadata']['name']}".lower(),
                    "properties": each,
                }
            )
            for each in program
        ),
        name="plain",
    )
    settings = Settings(
        allowed_registries=("registry.acme.example",),
        allowed_sites=("dxb-1",),
        # The coordinator of a federation, which its sites' stacks name.
        allowed_hosts=("federation.acme.example",),
    )
    judged = Judge(all_rules(), settings).evaluate_stack(stack)
    return [f"{each.rule.id}: {each.findings}" for each in judged if each.findings]


def shown(manifests: list[Manifest]) -> str:
    return yaml.dump_all(manifests, Dumper=_NoAliases, sort_keys=False, width=99)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
