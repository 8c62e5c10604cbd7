"""The evidence report: one HTML file, by control, with what was judged and what was not."""

from __future__ import annotations

from policies.reports.evidence.page import to_html

__all__ = ["to_html"]
