"""What the API server must refuse, and what it must take: cases beside this module, as YAML."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from falaj.components.kubernetes._objects import key_of, type_of
from falaj.policies.model import Resource, Settings, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules

REGISTRY = "123456789012.dkr.ecr.me-central-1.amazonaws.com/falaj"
DIGEST = "sha256:" + "0123456789abcdef" * 4
RESIDENCY: dict[str, Any] = {
    "distribution": "eks", "region": "me-central-1", "acknowledge_degraded": "2026-04-30",
    "registry": REGISTRY, "tenant": "platform", "owner": "platform@acme.example",
    "data_class": "confidential", "cost_center": "ai-1",
    "allowed_registries": ["registry.falaj.example.ae:5000"],
    "allowed_hosts": ["login.example.ae"],
}  # fmt: skip
SETTINGS = Settings(
    allowed_registries=("registry.falaj.example.ae:5000",), allowed_hosts=("login.example.ae",)
)
PLAIN: dict[str, Any] = {
    "serviceAccountName": "trainer",
    "automountServiceAccountToken": False,
    "nodeSelector": {"topology.kubernetes.io/region": "me-central-1"},
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": f"{REGISTRY}/falaj-training@{DIGEST}",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ],
}
_FOLDER = Path(__file__).parent
_LABELS = {"app": "x"}


@dataclass(frozen=True)
class Case:
    """One object, and what is said of it."""

    name: str
    manifest: dict[str, Any]
    by: str = ""
    rule: str = ""
    says: str = ""

    def __str__(self) -> str:
        return self.name


def merged(base: Any, change: Any) -> Any:
    """``base`` with a change: maps by key (null removes), lists by position."""
    if isinstance(base, Mapping) and isinstance(change, Mapping):
        both = {**base, **{key: merged(base.get(key), each) for key, each in change.items()}}
        return {key: each for key, each in both.items() if each is not None}
    if isinstance(base, list) and isinstance(change, list):
        firsts = [merged(a, b) for a, b in zip(base, change, strict=False)]
        return [*firsts, *base[len(change) :], *change[len(base) :]]
    return copy.deepcopy(change)


def in_kind(kind: str, namespace: str, pod: Mapping[str, Any], labels: Mapping[str, str]) -> Any:
    """A pod, or an object of a kind that makes it."""
    about = {"name": "case", "namespace": namespace}
    template: dict[str, Any] = {"metadata": {"labels": {**_LABELS, **labels}}, "spec": dict(pod)}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": about | {"labels": dict(labels)}} | {
            "spec": dict(pod)
        }
    if kind == "PodTemplate":
        return {"apiVersion": "v1", "kind": kind, "metadata": about, "template": template}
    if kind in {"Job", "CronJob"}:
        template["spec"]["restartPolicy"] = "Never"
        spec: dict[str, Any] = {"template": template}
        if kind == "CronJob":
            spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
        return {"apiVersion": "batch/v1", "kind": kind, "metadata": about, "spec": spec}
    spec = {"template": template, "selector": {"matchLabels": _LABELS}}
    if kind == "ReplicationController":
        spec["selector"] = _LABELS
    if kind == "StatefulSet":
        spec["serviceName"] = "case"
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def _filled(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"\bREGISTRY\b", REGISTRY, value).replace("DIGEST", DIGEST)
    if isinstance(value, list):
        return [_filled(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _filled(each) for key, each in value.items()}
    return value


def _case(given: Mapping[str, Any]) -> Case:
    if "object" in given:
        manifest = _filled(given["object"])
    else:
        pod = merged(PLAIN, _filled(given["pod"]))
        manifest = in_kind(
            given.get("kind", "Pod"),
            given.get("in", "acme-training"),
            pod,
            given.get("labels", {}),
        )
    return Case(
        given["name"], manifest, given.get("by", ""), given.get("rule", ""), given.get("says", "")
    )


@cache
def cases(file: str) -> tuple[Case, ...]:
    """The cases of a file, ``forbidden/pods.yaml`` or so."""
    return tuple(map(_case, yaml.safe_load((_FOLDER / file).read_text(encoding="utf-8"))))


@cache
def judge() -> Judge:
    """All packs, with the settings that the cluster has, too."""
    return Judge(all_rules(), SETTINGS)


def found_by_packs(manifest: Mapping[str, Any], judge_of: Judge | None = None) -> set[str]:
    """The rules of all packs that an object violates, judged before it is deployed."""
    resource = Resource(type_of(manifest), key_of(manifest), dict(manifest))
    judged = (judge_of or judge()).evaluate_stack(Stack((resource,), name="case"))
    return {each.rule.id for each in judged if each.findings}
