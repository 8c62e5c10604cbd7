"""What a server says of drift: its document, read without trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from falaj.stacks.documents import mapping, sequence
from falaj.stacks.page.form import NOTHING, figure

STATES: Final = ("collecting", "ok", "drifted", "no reference")
_OF_FEATURES: Final = (
    "psi", "psi_limit", "ks", "ks_limit", "missing", "missing_reference", "unseen", "over",
)  # fmt: skip
_OF_LABELS: Final = (
    "state", "received", "matched", "coverage", "accuracy", "log_loss", "reference_log_loss",
    "calibration", "median_delay_seconds",
)  # fmt: skip
_OF_WINDOWS: Final = ("rows", "seconds", "filled", "judged")


@dataclass(frozen=True)
class Drift:
    """What the server says of drift, as far as it says it.

    Attributes:
        state: one of `STATES`; ``unknown`` for others.
        since: since when it is so.
        window: what a window of rows is, as pairs of what and how much.
        features: one for each, those that drifted first: name, kind, state and figures.
        labels: what became of answers whose truth came later, as pairs of what and how much.
    """

    state: str
    since: str
    window: tuple[tuple[str, str], ...]
    features: tuple[Mapping[str, str], ...]
    labels: tuple[tuple[str, str], ...]


def drift_of(document: object) -> Drift | None:
    """Read the server's document; None where it is none."""
    found = mapping(document)
    if "state" not in found:
        return None
    features = [
        {
            "name": str(each.get("name", "")),
            "kind": str(each.get("kind", "")),
            "state": _state(each.get("state")),
            **{key: _said(each.get(key)) for key in _OF_FEATURES},
        }
        for each in map(mapping, sequence(found.get("features")))
    ]
    features.sort(key=lambda each: each["state"] != "drifted")
    return Drift(
        _state(found["state"]), str(found.get("since") or ""),
        _pairs(mapping(found.get("window")), _OF_WINDOWS), tuple(features),
        _pairs(mapping(found.get("labels")), _OF_LABELS),
    )  # fmt: skip


def _pairs(values: Mapping[str, object], keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((key.replace("_", " "), _said(values[key])) for key in keys if key in values)


def _said(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return figure(value) if isinstance(value, int | float) else str(value)


def _state(value: object) -> str:
    return value if isinstance(value, str) and value in STATES else "unknown"
