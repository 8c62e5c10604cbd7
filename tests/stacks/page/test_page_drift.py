"""A server's document on drift, as the page shows it."""

from __future__ import annotations

import pytest

from falaj.stacks.page.drift import drift_of
from falaj.stacks.page.form import NOTHING


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("psi", 1.3630412, "1.36"),
        ("psi_limit", 0.14137639, "0.141"),
        ("ks", 0.0, "0"),
        ("psi", 12_345.678, "12,345.68"),
        ("psi", 0.0000123456, "1.23e-05"),
        ("missing", 0.0192308, "1.9 %"),
        ("missing_reference", 0, "0 %"),
        ("unseen", 1.0, "100 %"),
        ("unseen", 0.0004, "0.04 %"),
        ("unseen", None, NOTHING),
        ("missing", "<b>", "<b>"),
        ("missing", True, "yes"),
    ],
)
def test_figures_are_short_and_shares_are_percent(key: str, value: object, shown: str) -> None:
    found = drift_of({"state": "ok", "features": [{"name": "age", "state": "ok", key: value}]})
    assert found is not None
    assert found.features[0][key] == shown
