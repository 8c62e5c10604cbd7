"""The evidence report: one HTML file, by control, with what was judged and what was not."""

from __future__ import annotations

from falaj.policies.reports.evidence.page import evidence

__all__ = ["evidence"]
