"""Scalers: they ask about their own namespace, by means that are the platform's.

https://keda.sh/docs/latest/scalers/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.scalers import (
    FOREIGN_AUTHENTICATION,
    PROMETHEUS_KEYS,
    SCALERS,
    own_query,
)
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests
from falaj.policies.reading.services import may_reach_from_pods
from falaj.wire.documents import is_mapping

_SCALED: Final = kinds("keda.sh:ScaledObject", "keda.sh:ScaledJob")


def _triggers(resource: Resource) -> Iterator[tuple[Manifest, str, Any]]:
    """Each trigger with its object and its path."""
    for manifest in manifests(resource):
        if manifest.group == "keda.sh" and manifest.kind in {"ScaledObject", "ScaledJob"}:
            for index, each in enumerate(items(manifest.get("spec.triggers"))):
                yield manifest, f"spec.triggers[{index}]", each


@rule(
    "kubernetes-scaler-trigger",
    "Scalers call nobody but the platform's own servers of metrics",
    Severity.MEDIUM,
    _SCALED,
    ("iso27001:A.8.20", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:2"),
    f"Use a trigger of {', '.join(sorted(SCALERS))}; for prometheus say only "
    f"{', '.join(sorted(PROMETHEUS_KEYS))}. Credentials are a TriggerAuthentication of the same "
    "namespace.",
)
def scaler_trigger(resource: Resource, context: Context) -> Iterator[Finding]:
    """KEDA calls with its own identity: whoever writes the trigger would borrow it."""
    for manifest, at, each in _triggers(resource):
        kind = each if is_unknown(each) else get(each, "type")
        authentication: Any = ABSENT if is_unknown(each) else get(each, "authenticationRef.kind")
        if is_unknown(kind):
            yield manifest.indeterminate(f"{at}.type", f"what it asks {kind.reason}")
            continue
        if text(kind) not in SCALERS:
            yield manifest.violation(f"{at}.type", f"{format_value(kind)} calls others")
        if is_unknown(authentication):
            yield manifest.indeterminate(
                f"{at}.authenticationRef.kind", f"whose credentials it has {authentication.reason}"
            )
        elif text(authentication) == FOREIGN_AUTHENTICATION:
            yield manifest.violation(
                f"{at}.authenticationRef.kind", "the credentials are the whole cluster's"
            )
        metadata = get(each, "metadata")
        if text(kind) == "prometheus" and is_mapping(metadata):
            for key in sorted(str(key) for key, value in metadata.items() if value is not None):
                if key not in PROMETHEUS_KEYS:
                    yield manifest.violation(
                        f"{at}.metadata.{key}", "it changes what the server is asked, or how"
                    )


@rule(
    "kubernetes-scaler-metrics",
    "Scalers read metrics of their own namespace",
    Severity.MEDIUM,
    _SCALED,
    ("iso27001:A.8.12", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:2"),
    'Ask a server of the cluster or of your own networks, and write {namespace="<its own>"} after '
    "every metric of the query.",
)
def scaler_metrics(resource: Resource, context: Context) -> Iterator[Finding]:
    """One Prometheus has the metrics of every tenant; the number of replicas tells of them."""
    for manifest, at, each in _triggers(resource):
        if is_unknown(each) or text(get(each, "type")) != "prometheus":
            continue
        server, query = (get(each, f"metadata.{key}") for key in ("serverAddress", "query"))
        if is_unknown(server):
            yield manifest.indeterminate(f"{at}.metadata.serverAddress", f"it {server.reason}")
        elif not (manifest.is_patch and server is ABSENT):
            reached = may_reach_from_pods(server, manifest, context) if text(server) else False
            if reached is None:
                yield manifest.indeterminate(
                    f"{at}.metadata.serverAddress",
                    "whether it is a service of the cluster is seen in the whole stack only",
                )
            elif not reached:
                yield manifest.violation(
                    f"{at}.metadata.serverAddress",
                    f"{format_value(server)} is neither the cluster's, nor of one's own networks",
                )
        yield from _asked(manifest, f"{at}.metadata.query", query)


def _asked(manifest: Manifest, at: str, query: Any) -> Iterator[Finding]:
    namespace = manifest.namespace
    hidden = next((each for each in (query, namespace) if is_unknown(each)), None)
    if hidden is not None:
        yield manifest.indeterminate(
            at, f"whether it asks about its own namespace {hidden.reason}"
        )
    elif not (manifest.is_patch and query is ABSENT) and not _is_own(text(query), text(namespace)):
        yield manifest.violation(
            at, f'not every metric of the query has {{namespace="{text(namespace)}"}}'
        )


def _is_own(query: str, namespace: str) -> bool:
    # Possessive: a query that is refused costs no more than one that isn't.
    return re.fullmatch(f"(?>{own_query(re.escape(namespace))})++", query) is not None


RULES: tuple[Rule, ...] = (scaler_trigger, scaler_metrics)
