"""What KEDA's scalers may ask: the packs and the cluster's own admission read the same facts.

KEDA asks with its own identity and from its own namespace, so that whoever writes a ScaledObject
reads, by the number of replicas and the metrics API, whatever KEDA reaches.
https://keda.sh/docs/latest/scalers/
"""

from __future__ import annotations

from typing import Final

SCALERS: Final = frozenset({"prometheus", "cpu", "memory", "cron", "kubernetes-workload"})
"""Types of triggers that ask Prometheus, or only about the namespace's own pods; all others call
an address, or a cloud with KEDA's own rights."""
PROMETHEUS_KEYS: Final = frozenset({
    "serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "metricName",
})  # fmt: skip
"""What a trigger of Prometheus may say. ``queryParameters`` would be another query, and
``customHeaders`` another tenant of the server."""
FOREIGN_AUTHENTICATION: Final = "ClusterTriggerAuthentication"
"""Credentials of the whole cluster; a ``TriggerAuthentication`` is of its own namespace."""

# Queries of PromQL whose every selector names one namespace, as a regular expression that RE2 and
# Python's `re` read alike (https://prometheus.io/docs/prometheus/latest/querying/basics/). What it
# doesn't know is refused: metrics without a selector, strings and selectors without a metric.

_IDENTIFIER: Final = "[a-zA-Z_][a-zA-Z0-9_]*"
_MATCHER: Final = rf'{_IDENTIFIER}\s*(?:=~|!~|!=|=)\s*"[^"\\\n]*"'
_OWN: Final = r'namespace\s*=\s*"NAMESPACE"'
_SELECTOR: Final = (
    rf"[a-zA-Z_:][a-zA-Z0-9_:]*\s*\{{\s*(?:{_MATCHER}\s*,\s*)*{_OWN}\s*"
    rf"(?:,\s*{_MATCHER}\s*)*,?\s*\}}"
)
_LABELS: Final = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([a-zA-Z0-9_,\s]*\)"
_WORDS: Final = r"\b(?:and|or|unless|bool|offset|group_left|group_right)\b"
_CALL: Final = r"\b[a-z][a-z0-9_]*(?:\s+(?:by|without)\s*\([a-zA-Z0-9_,\s]*\))?\s*\("
_NUMBER: Final = r"\b[0-9][0-9a-zA-Z_.]*"
_SIGNS: Final = r"[-+*/%^<>=!()\[\],:@\s]"
_QUERY: Final = f"(?:{_SELECTOR}|{_LABELS}|{_WORDS}|{_CALL}|{_NUMBER}|{_SIGNS})"


def own_query(namespace: str) -> str:
    """Matches one part of a query about a namespace: a query is made of one part or more.

    Its name is a DNS label, so that nothing in it is escaped.
    """
    return _QUERY.replace("NAMESPACE", namespace)
