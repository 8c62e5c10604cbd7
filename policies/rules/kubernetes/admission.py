"""Extensions of the API server: in the cluster, verified, and not passed by when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    is_true,
    is_unknown,
    rule,
    select,
    text,
)
from falaj.policies.reading.kubernetes import kinds, manifests
from falaj.policies.reading.services import may_reach

_GROUP: Final = "admissionregistration.k8s.io"
_WEBHOOKS: Final = kinds(
    f"{_GROUP}:ValidatingWebhookConfiguration", f"{_GROUP}:MutatingWebhookConfiguration"
)
_URLS: Final = {
    "ValidatingWebhookConfiguration": "webhooks.clientConfig.url",
    "MutatingWebhookConfiguration": "webhooks.clientConfig.url",
    "CustomResourceDefinition": "spec.conversion.webhook.clientConfig.url",
    "AuditSink": "spec.webhook.clientConfig.url",
}


@rule(
    "kubernetes-webhook-host",
    "Webhooks of the API server are in the cluster or an allowed region",
    Severity.CRITICAL,
    _WEBHOOKS
    | kinds("apiextensions.k8s.io:CustomResourceDefinition", "auditregistration.k8s.io:AuditSink"),
    ("pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.8.12", "iso27001:A.5.14"),
    "Point clientConfig at a service of the cluster.",
)
def webhook_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Whole objects, secrets among them, are sent to webhooks."""
    for manifest in manifests(resource):
        for path, value in select(manifest.body, _URLS.get(manifest.kind, "-")):
            if is_unknown(value):
                yield manifest.indeterminate(path, f"where objects are sent {value.reason}")
            elif text(value) and not may_reach(value, context.settings):
                yield manifest.violation(
                    path, f"objects are sent to {format_value(value)}, which is neither "
                    "private, nor in "
                    "an allowed region, nor one of allowedHosts"
                )  # fmt: skip


@rule(
    "kubernetes-webhook-failure",
    "Nothing is admitted while a webhook can't be asked",
    Severity.LOW,
    _WEBHOOKS,
    ("iso27001:A.8.9", "nist-800-207:6"),
    "Set failurePolicy to Fail, and leave out the namespaces that the webhook itself needs.",
)
def webhook_failure(resource: Resource, context: Context) -> Iterator[Finding]:
    """``failurePolicy`` isn't Ignore; it is Fail by default."""
    for manifest in manifests(resource):
        if manifest.kind in _URLS and manifest.group == _GROUP:
            for path, value in select(manifest.body, "webhooks.failurePolicy"):
                if is_unknown(value):
                    yield manifest.indeterminate(path, f"what happens then {value.reason}")
                elif text(value) == "Ignore":
                    yield manifest.violation(
                        path, "whatever it would refuse passes while it is down"
                    )


@rule(
    "kubernetes-api-service-tls",
    "The API server verifies the servers that extend it",
    Severity.HIGH,
    kinds("apiregistration.k8s.io:APIService"),
    ("iso27001:A.8.24", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Set caBundle, and remove insecureSkipTLSVerify.",
)
def api_service_tls(resource: Resource, context: Context) -> Iterator[Finding]:
    """``insecureSkipTLSVerify`` isn't true."""
    path = "spec.insecureSkipTLSVerify"
    for manifest in manifests(resource):
        if manifest.kind == "APIService":
            value = manifest.get(path)
            if is_unknown(value):
                yield manifest.indeterminate(path, f"whether it is verified {value.reason}")
            elif is_true(value):
                yield manifest.violation(path, "the server isn't verified")


RULES: tuple[Rule, ...] = (webhook_host, webhook_failure, api_service_tls)
