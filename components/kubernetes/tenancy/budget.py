"""Alerts when a tenant's namespaces cost more than their budget.

What containers are given, times what their nodes cost in an hour, as OpenCost exports both:
https://opencost.io/docs/integrations/opencost-exporter/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster

_HOURS: Final = 730
"""Of a month, as clouds reckon: 365 * 24 / 12."""
_GIB: Final = 1024**3
#: Share of the budget at which somebody is told, and how loudly.
_LEVELS: Final = ((0.8, "warning"), (1.0, "critical"))


def alerts(
    placed: InCluster, component: str, namespaces: Sequence[str], monthly_usd: float, where: str
) -> Manifest:
    """A rule for Prometheus: what runs now, kept up for a month, against the budget."""
    chosen = f'namespace=~"{"|".join(namespaces)}"'
    parts = (
        f"container_gpu_allocation{{{chosen}}} * on(node) group_left() node_gpu_hourly_cost",
        f"container_cpu_allocation{{{chosen}}} * on(node) group_left() node_cpu_hourly_cost",
        f"container_memory_allocation_bytes{{{chosen}}} / {_GIB} "
        "* on(node) group_left() node_ram_hourly_cost",
    )
    cost = " + ".join(f"(sum({part}) or vector(0))" for part in parts)
    rules: list[dict[str, Any]] = [
        {
            "alert": "TenantOverBudget" if share == 1 else "TenantNearBudget",
            "expr": f"({cost}) * {_HOURS} > {monthly_usd * share:g}",
            "for": "1h",
            "labels": {
                "severity": severity,
                "tenant": placed.tenant,
                "cost_center": placed.cost_center,
            },
            "annotations": {
                "summary": f"{placed.tenant} runs at more than {share:.0%} of its budget",
                "description": "At this rate the month costs {{ $value | humanize }} US dollars; "
                f"the budget is {monthly_usd:g}.",
            },
        }
        for share, severity in _LEVELS
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(placed, component, f"{placed.tenant}-budget", where),
        "spec": {"groups": [{"name": f"{placed.tenant}-budget", "rules": rules}]},
    }
