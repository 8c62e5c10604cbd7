"""What labels say of both versions of an experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from falaj.workloads.inference.drift.labels import Labels
from falaj.workloads.inference.drift.reference import Answers
from falaj.workloads.inference.experiment.arms import CANDIDATE, LIVE


class ArmLabels:
    """Joins labels with whichever version answered, and counts them by arm.

    Args:
        live: of the version that serves; what came before isn't counted.
        candidate: of the other one, with the same memory.
    """

    def __init__(self, live: Labels, candidate: Labels) -> None:
        self.live = live
        self.candidate = candidate
        self._before = _tally(live)

    def join(
        self, entries: Sequence[tuple[str, Sequence[Any]]], by: Answers | None = None
    ) -> dict[str, int]:
        """Join labels with what was answered.

        Args:
            entries: of `falaj.workloads.inference.drift.labels.parse`.
            by: what they were parsed by. Default: the answers of the version that serves.

        Returns:
            How many came to what.
        """
        ours: list[tuple[str, Sequence[Any]]] = []
        theirs: list[tuple[str, Sequence[Any]]] = []
        for entry in entries:
            is_theirs = self.candidate.knows(bytes.fromhex(entry[0]))
            (theirs if is_theirs else ours).append(entry)
        found = self.live.join(ours, by)
        more = self.candidate.join(theirs, by or self.live.answers)
        return {name: count + more[name] for name, count in found.items()}

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return by arm how many rows have labels, and how wrong their answers were."""
        since = [a - b for a, b in zip(_tally(self.live), self._before, strict=True)]
        return {LIVE: self._of(since), CANDIDATE: self._of(_tally(self.candidate))}

    def _of(self, tally: Sequence[float]) -> dict[str, Any]:
        scored, wrong, squares = tally
        found: dict[str, Any] = {"labelled": int(scored)}
        answers = self.live.answers
        if answers is not None and answers.probabilities is not None:
            return found | {"wrong": int(wrong)}
        rmse = math.sqrt(max(0.0, squares) / scored) if scored else None
        return found | {"rmse": rmse if rmse is None or math.isfinite(rmse) else None}


def _tally(labels: Labels) -> tuple[float, float, float]:
    return labels.seen, labels.wrong, labels.squares
