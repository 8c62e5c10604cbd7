"""Reports on drift as a server gives them."""

from __future__ import annotations

from typing import Any


def row(name: str, state: str = "ok", **figures: Any) -> dict[str, Any]:
    """A row of a feature or output."""
    return {
        "name": name, "kind": "number", "state": state, "psi": 0.4, "psi_limit": 0.1, "ks": 0.2,
        "ks_limit": 0.05, "missing": 0.0, "missing_reference": 0.0, "unseen": None, "over": 2,
        **figures,
    }  # fmt: skip


def report(state: str = "ok", version: int = 1, **parts: Any) -> dict[str, Any]:
    """A whole report of the model ``shop``."""
    drifted = state == "drifted"
    return {
        "model": "shop",
        "version": str(version),
        "state": state,
        "since": 1_000.0 if drifted else None,
        "window": {"rows": 1000, "seconds": 3600, "filled": 412, "judged": 12},
        "features": [row("age", state), row("city")],
        "outputs": row("outputs"),
        "latency": {"state": "ok", "mean_seconds": 0.001},
        "labels": {
            "state": "collecting", "received": 0, "matched": 0, "coverage": 0.0,
            "accuracy": None, "log_loss": None, "reference_log_loss": None,
            "calibration": None, "median_delay_seconds": None,
        },
        **parts,
    }  # fmt: skip


def labels(scored: int, accuracy: float, state: str = "ok") -> dict[str, Any]:
    """Labels that came back."""
    wrong = round(scored * (1 - accuracy))
    return {"state": state, "matched": scored, "scored": scored, "wrong": wrong}
