"""A server's document on drift, as the page shows it."""

from __future__ import annotations

import pytest

from falaj.stacks.page.drift import drift_of, unwatched
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


@pytest.mark.parametrize(
    ("state", "is_language", "said"),
    [
        ("no reference", True, "of a language model"),
        ("collecting", True, "of a language model"),
        ("no reference", False, "of this version"),
    ],
)
def test_why_drift_isnt_watched(state: str, is_language: bool, said: str) -> None:
    found = drift_of({"state": state})
    assert found is not None
    assert said in unwatched(found, is_language=is_language)


@pytest.mark.parametrize(
    ("state", "is_language"), [("ok", True), ("collecting", False), ("drifted", True)]
)
def test_drift_that_is_watched_has_no_excuse(state: str, is_language: bool) -> None:
    found = drift_of({"state": state})
    assert found is not None
    assert unwatched(found, is_language=is_language) == ""
