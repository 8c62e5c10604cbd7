"""What a server reports of drift, read with suspicion: it is another program's answer."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeGuard, cast, get_args

from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.surrogates import bytes_of

State = Literal["collecting", "ok", "drifted", "no reference"]
STATES: Final[tuple[State, ...]] = get_args(State)
MOST_BYTES: Final = 8 << 20
"""Of a report: a row of some 300 bytes for each of 20,000 columns, and room."""
_MOST_ROWS: Final = 20_000
_LONGEST: Final = 512
ANSWERS: Final = "answers"
"""What people read for the server's row ``outputs``, of all answers together."""


class ReportError(Exception):
    """An answer that is no report; the message says what is wrong with it."""


@dataclass(frozen=True)
class Row:
    """One input or output of the model.

    Attributes:
        name: of the column.
        state: what is true of it in this window.
        figures: what it was judged by, with their limits, by name; those that were measured.
    """

    name: str
    state: str
    figures: Mapping[str, float]

    def __str__(self) -> str:
        shown = [
            f"{name} {_plain(self.figures[name])} (limit {_plain(self.figures[f'{name}_limit'])})"
            for name in ("psi", "ks")
            if name in self.figures and f"{name}_limit" in self.figures
        ]
        missing, before = (self.figures.get(key) for key in ("missing", "missing_reference"))
        if missing is not None and before is not None and missing != before:
            shown.append(f"missing {missing:.1%} (trained on {before:.1%})")
        if unseen := self.figures.get("unseen"):
            shown.append(f"never seen {unseen:.1%}")
        if (over := self.figures.get("over")) and not self._beyond:
            shown.append(f"beyond in {over:.0f} of the windows before")
        return f"{self.name}: {', '.join(shown)}" if shown else self.name

    @property
    def _beyond(self) -> bool:
        """Whether a figure of the last window is beyond its limit."""
        figures = self.figures
        return any(
            figures[name] > figures.get(f"{name}_limit", math.inf)
            for name in ("psi", "ks")
            if name in figures
        )


@dataclass(frozen=True)
class Report:
    """What the server says of the model that it serves.

    Attributes:
        model: its name.
        version: its version.
        state: of all that was judged.
        since: Unix time at which drift began, in seconds; None without drift.
        filled: rows of the window so far.
        features: rows of the inputs.
        outputs: rows of the outputs; the one of all answers is called `ANSWERS`.
        latency: state of the time that answers take.
        labels: state of the labels that came back.
        outcomes: answered rows of this version whose label came back, and wrong ones among them;
            None where there are no classes, or no labels.
    """

    model: str
    version: int
    state: State
    since: float | None
    filled: int
    features: tuple[Row, ...]
    outputs: tuple[Row, ...]
    latency: str
    labels: str
    outcomes: Outcomes | None

    def since_when(self, since: float | None) -> Report:
        """The same with another time at which drift began."""
        return replace(self, since=since)

    @property
    def drifted(self) -> tuple[str, ...]:
        """What drifted: names of columns, and what else there is."""
        names = [f"input {each.name}" for each in self.features if each.state == "drifted"]
        answers = [each.name for each in self.outputs if each.state == "drifted"]
        names += [each if each == ANSWERS else f"output {each}" for each in answers]
        names += ["latency"] if self.latency == "drifted" else []
        return (*names, *(["labels"] if self.labels == "drifted" else []))

    @property
    def inputs_drifted(self) -> bool:
        """Whether what callers send is other than what the model learned from."""
        return any(each.state == "drifted" for each in self.features)

    @property
    def why(self) -> str:
        """What drifted with its figures, in one line."""
        rows = [str(each) for each in (*self.features, *self.outputs) if each.state == "drifted"]
        rest = [each for each in self.drifted if each in ("latency", "labels")]
        return "; ".join([*rows, *rest]) or "the server doesn't say what"

    @property
    def episode(self) -> str:
        """What this drift is known by, however often it is reported: a digest."""
        return digest_of({"model": self.model, "version": self.version, "since": self.since})


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document in its shortest form with sorted keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(bytes_of(text)).hexdigest()


def read_report(data: bytes, model: str) -> Report:
    """The report in a server's answer.

    Args:
        data: the body, at most `MOST_BYTES`.
        model: whose report was asked for.

    Raises:
        ReportError: it is none, or another model's.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"it isn't JSON: {error}") from None
    document: object = found
    if not is_mapping(document):
        raise ReportError("it is no object")
    named = _text(document, "model")
    if named != model:
        raise ReportError(f"it is about the model {named!r}, not {model!r}")
    version = _text(document, "version")
    if not (version.isascii() and version.isdecimal() and 0 < len(version) < 10):
        raise ReportError(f"version: given {version!r}, which is no number")
    state = _text(document, "state")
    if state not in STATES:
        raise ReportError(f"state: given {state!r}; known: {', '.join(STATES)}")
    labels = _object(document, "labels")
    return Report(
        model=model,
        version=int(version),
        state=state,
        since=_number(document, "since"),
        filled=_count(_object(document, "window"), "filled"),
        features=_rows(document, "features"),
        outputs=tuple(
            replace(each, name=ANSWERS) if each.name == "outputs" else each
            for each in _rows(document, "outputs")
        ),
        latency=_state(_object(document, "latency")),
        labels=_state(labels),
        outcomes=_outcomes(labels),
    )


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value of a JSON document is an object."""
    return isinstance(value, dict)


def _rows(document: Mapping[str, Any], key: str) -> tuple[Row, ...]:
    rows: object = document.get(key)
    if rows is None:
        return ()
    if is_mapping(rows):
        rows = [rows]
    if not isinstance(rows, list) or len(cast("list[Any]", rows)) > _MOST_ROWS:
        raise ReportError(f"{key}: no list of at most {_MOST_ROWS:,}")
    found: list[Row] = []
    for each in cast("list[Any]", rows):
        row: object = each
        if not is_mapping(row):
            raise ReportError(f"{key}: an entry is no object")
        figures = {
            str(name): float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
        }
        found.append(Row(_text(row, "name"), _state(row), figures))
    return tuple(found)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _outcomes(labels: Mapping[str, Any]) -> Outcomes | None:
    """Labelled rows since the version began to serve; regression has no right and wrong."""
    if labels.get("wrong") is None:
        return None
    scored, wrong = _count(labels, "scored"), _count(labels, "wrong")
    if wrong > scored:
        raise ReportError(f"labels.wrong: given {wrong}, of {scored}")
    return Outcomes(scored, wrong) if scored else None


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    if found is None:
        return {}
    if not is_mapping(found):
        raise ReportError(f"{key}: no object")
    return found


def _text(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    if not isinstance(found, str) or len(found) > _LONGEST:
        raise ReportError(f"{key}: no text of at most {_LONGEST} characters")
    # Names of columns come from callers' tables: nothing that steers a terminal.
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in found)


def _state(document: Mapping[str, Any]) -> str:
    found = document.get("state")
    return found if isinstance(found, str) and found in STATES else "collecting"


def _number(document: Mapping[str, Any], key: str) -> float | None:
    found = document.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not _finite(found):
        raise ReportError(f"{key}: given {str(found)[:40]}, which is no finite number")
    return float(found)


def _count(document: Mapping[str, Any], key: str) -> int:
    found = _number(document, key)
    if found is None:
        return 0
    if found < 0 or found != int(found):
        raise ReportError(f"{key}: given {found:g}, which is no count")
    return int(found)


def _plain(value: float) -> str:
    return f"{value:.3g}"
