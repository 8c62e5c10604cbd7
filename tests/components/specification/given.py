"""What checks of computing are given, whatever they check."""

from typing import Any

SHARED: dict[str, Any] = {
    "tenant": "acme",
    "owner": "ml@acme.example",
    "cost_center": "ai",
    "data_class": "internal",
}
PLACES: dict[str, dict[str, Any]] = {
    "aws": {"region": "me-central-1", "acknowledge_degraded": "2026-04-30"},
    "azure": {"region": "uaenorth"},
}
