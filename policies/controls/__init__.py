"""Laws, standards and benchmarks, and what rules can and can't do for them.

>>> from falaj.policies.controls import control
>>> control("iso27001:A.8.24").title
'Use of cryptography'
"""

from __future__ import annotations

from falaj.policies.controls.catalogue import (
    Confidence,
    Control,
    Framework,
    by_control,
    control,
    controls,
    frameworks,
    not_covered,
    rules_by_control,
)

__all__ = [
    "Confidence",
    "Control",
    "Framework",
    "by_control",
    "control",
    "controls",
    "frameworks",
    "not_covered",
    "rules_by_control",
]
