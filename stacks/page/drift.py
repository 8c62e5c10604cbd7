"""What a server says of drift: its document, read without trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from falaj.stacks.page.form import NOTHING, figure
from falaj.wire.documents import mapping, sequence
from falaj.workloads.watching.report import ANSWERS, STATES

NO_REFERENCE: Final = "no reference"
"""The state in which nothing is compared."""
COLLECTING: Final = "collecting"
"""The state before enough was counted."""
_OF_TEXTS: Final = (
    "Drift isn't watched of a language model: what it is asked with is a text of any length, no "
    "row of columns that could be counted in the cells of the training rows. The server counts "
    "requests, tokens and times of texts alone, which are in the metrics."
)
_OF_NOTHING: Final = (
    "Drift isn't watched of this version: its package doesn't say how the rows were spread that "
    "the model was made from. Publish one that was trained with this version of the software."
)
MOST_PAIRS: Final = 20
"""Figures of a part that are shown."""
_LARGE: Final = 100
"""From here on a figure keeps its digits."""
_OF_FEATURES: Final = (
    "psi", "psi_limit", "ks", "ks_limit", "missing", "missing_reference", "unseen",
)  # fmt: skip
_SHARES: Final = ("missing", "missing_reference", "unseen")

Pairs = tuple[tuple[str, str], ...]
"""What and how much."""


@dataclass(frozen=True)
class Drift:
    """What the server says of drift, as far as it says it.

    Attributes:
        state: one of `STATES`; ``unknown`` for others.
        since: since when it is so, ISO 8601; empty where that isn't said.
        window: what a window of rows is.
        features: one for each input and for the answers, those that drifted first: name, state
            and figures.
        latency: how the time of answers is judged.
        labels: what became of answers whose truth came later.
    """

    state: str
    since: str
    window: Pairs
    features: tuple[Mapping[str, str], ...]
    latency: Pairs
    labels: Pairs


def unwatched(found: Drift, *, is_language: bool) -> str:
    """Return why drift isn't watched; empty where it is."""
    if is_language and found.state in (NO_REFERENCE, COLLECTING):
        # Texts are never counted: it would collect for ever.
        return _OF_TEXTS
    return _OF_NOTHING if found.state == NO_REFERENCE else ""


def drift_of(document: object) -> Drift | None:
    """Read the server's document; None where it is none."""
    found = mapping(document)
    if "state" not in found:
        return None
    features = [_feature(each) for each in map(mapping, sequence(found.get("features")))]
    outputs = mapping(found.get("outputs"))
    if outputs:
        features.append(_feature({**outputs, "name": ANSWERS}))
    features.sort(key=lambda each: each["state"] != "drifted")
    return Drift(
        _state(found["state"]), _moment(found.get("since")), _pairs(found.get("window")),
        tuple(features), _pairs(found.get("latency")), _pairs(found.get("labels")),
    )  # fmt: skip


def _feature(feature: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        "name": str(feature.get("name", "")),
        "state": _state(feature.get("state")),
        **{key: _short(key, feature.get(key)) for key in _OF_FEATURES},
    }


def _short(key: str, value: object) -> str:
    """A figure of a feature: a share in percent, others by three digits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGE:
        return _formatted(value)
    if key in _SHARES:
        return f"{figure(float(f'{100 * value:.2g}'))} %"
    return figure(float(f"{value:.3g}"))


def _pairs(part: object) -> Pairs:
    """The figures of a part that are there, none of what is made of others."""
    found = [
        (key.replace("_", " "), _formatted(value))
        for key, value in mapping(part).items()
        if isinstance(value, bool | int | float | str)
    ]
    return tuple(found[:MOST_PAIRS])


def _moment(value: object) -> str:
    """ISO 8601 of what is that already, or seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            return ""
    return value if isinstance(value, str) else ""


def _formatted(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return figure(value) if isinstance(value, int | float) else str(value)


def _state(value: object) -> str:
    return value if isinstance(value, str) and value in STATES else "unknown"
