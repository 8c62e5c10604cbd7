"""Tenants: whose a pod is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from falaj.components.catalogue.clusters import SERVING_ENDING, TENANT_LABEL, TRAINING_ENDING
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Rule,
    Severity,
    Stack,
    is_unknown,
    rule,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.kubernetes import ANY_OBJECT, all_manifests, join, namespace_key
from falaj.policies.reading.pods import Pod, each_pod
from falaj.wire.documents import is_mapping


@rule(
    "kubernetes-tenant-label",
    "Pods are of the tenant that their namespace is of",
    Severity.LOW,
    ANY_OBJECT,
    ("iso27001:A.5.9", "iso27001:A.8.9"),
    f"Remove the label {TENANT_LABEL} of the pod, or set it to its namespace's.",
)
@each_pod()
def tenant_label(pod: Pod, context: Context) -> Iterator[Finding]:
    """Costs and metrics go by the label, so that another one is another's to pay."""
    given = _of(pod.metadata.get("labels"))
    at = join(pod.metadata_at, f'labels["{TENANT_LABEL}"]')
    if is_unknown(given):
        yield pod.manifest.indeterminate(at, f"whose the pod is {given.reason}")
        return
    tenant, namespace = text(given), pod.manifest.namespace
    if not tenant or is_unknown(namespace):
        return
    if context.stack is None:
        yield pod.manifest.indeterminate(
            at, "whose its namespace is, is seen in the whole stack only"
        )
        return
    owner = _owner(pod, context.stack)
    if owner:
        wrong = owner != tenant
    else:
        wrong = text(namespace).endswith((TRAINING_ENDING, SERVING_ENDING)) and not text(
            namespace
        ).startswith(f"{tenant}-")
    if wrong:
        yield pod.manifest.violation(
            at, f"the pod is labelled {tenant!r}, and its namespace {text(namespace)} is "
            f"{repr(owner) + 's' if owner else 'of another tenant'}"
        )  # fmt: skip


def _owner(pod: Pod, stack: Stack) -> str:
    """The tenant of the pod's namespace, where the stack declares that."""
    return _owners(stack).get(namespace_key(pod.manifest, stack) or "", "")


@remembered(8)
def _owners(stack: Stack) -> Mapping[str, str]:
    """Tenants of the namespaces that the stack declares."""
    found: dict[str, str] = {}
    for each in all_manifests(stack):
        key = namespace_key(each, stack) if each.kind == "Namespace" else None
        if key is not None:
            found.setdefault(key, text(_of(each.get("metadata.labels"))))
    return found


def _of(labels: Any) -> Any:
    """The tenant that labels name, ABSENT, or why they can't be seen."""
    if is_unknown(labels):
        return labels
    return labels.get(TENANT_LABEL, ABSENT) if is_mapping(labels) else ABSENT


RULES: tuple[Rule, ...] = (tenant_label,)
