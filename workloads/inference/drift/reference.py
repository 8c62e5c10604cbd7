"""What a package says of the rows that its model was made from, in cells to count rows in.

A worker and the master lay out the same list of counts by it: of each feature the rows without a
value, then the rows in each cell; last the model's own answers. So counts of workers are added up
by adding lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from falaj.workloads import pictures
from falaj.workloads.documents import is_dictionary, is_sequence

MAX_FEATURES: Final = 512
"""Of more columns the first ones are watched: what is kept and told is bounded."""
MAX_CLASSES: Final = 1_000
OUTPUTS: Final = "outputs"

_MOST: Final = 1e300
"""Of a number in a manifest; those of 32 bits end far below."""
_PARTS_OF_MANIFEST: Final = ("inputs", "outputs", "classes", "statistics")


@dataclass(frozen=True)
class Feature:
    """A column, or a number that says how a picture looks, or the model's answers.

    Attributes:
        name: the column's; of a picture with the number's behind it.
        kind: ``number``, ``category`` or ``text``.
        source: the model's input.
        part: of a picture the number's place in `pictures.names`; None of columns.
        edges: of numbers and texts, whose lengths are counted: ascending, one fewer than cells.
        categories: of categories: one fewer than cells, the last one is of all others.
        counts: rows by cell that the model was made from.
        missing: such rows without a value.
        start: where the feature's counts begin: rows without a value, then the cells.
    """

    name: str
    kind: str
    source: str
    part: int | None
    edges: tuple[float, ...]
    categories: tuple[str, ...]
    counts: NDArray[np.int64]
    missing: int
    start: int = 0

    @property
    def end(self) -> int:
        """Where the next feature's counts begin."""
        return self.start + 1 + len(self.counts)

    @property
    def rows(self) -> int:
        """Rows that the model was made from."""
        return int(self.counts.sum()) + self.missing

    @property
    def lists_all(self) -> bool:
        """Whether every value that there was is listed: another one was never seen."""
        return self.kind == "category" and int(self.counts[-1]) == 0


@dataclass(frozen=True)
class Answers:
    """Which outputs are the model's answers.

    Attributes:
        probabilities: the output of probabilities; None of a regression.
        prediction: the output of predicted numbers; None of a classification.
        classes: the classes' names, in the order of the probabilities.
    """

    probabilities: str | None
    prediction: str | None
    classes: tuple[str, ...]

    @property
    def output(self) -> str:
        """The output that holds them."""
        return self.probabilities or self.prediction or ""

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each class stands among the probabilities."""
        return {name: place for place, name in enumerate(self.classes)}


@dataclass(frozen=True)
class Reference:
    """A package's statistics.

    Attributes:
        features: of the inputs; none where the package says nothing of them.
        mix: the chosen classes; None of a regression, or where nothing is known.
        level: the probabilities of chosen classes, or the predicted numbers; None likewise.
        answers: None where the package doesn't say what its outputs are.
        log_loss: on held-out rows; None where it isn't known.
        rmse: likewise.
        level_mean: mean of ``level`` on held-out rows.
        level_deviation: its standard deviation.
        calibration_gap: mean gap of stated probability and share of hits on held-out rows.
        size: length of the list of counts.
    """

    features: tuple[Feature, ...] = ()
    mix: Feature | None = None
    level: Feature | None = None
    answers: Answers | None = None
    log_loss: float | None = None
    rmse: float | None = None
    level_mean: float = 0.0
    level_deviation: float = 0.0
    calibration_gap: float = 0.0
    size: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare rows with."""
        return bool(self.features) or self.level is not None


def part_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `read` needs of a manifest, for who has no package open."""
    return {key: manifest[key] for key in _PARTS_OF_MANIFEST if key in manifest}


def read(manifest: Mapping[str, Any]) -> Reference:
    """Lay out the counts for a package.

    What is missing or of another form than a publisher of now writes isn't watched: a package that
    is old or was made elsewhere is served as ever.

    Args:
        manifest: a verified manifest, or its `part_of`.
    """
    statistics = _object(manifest.get("statistics"))
    described = _object(statistics.get("features"))
    found: list[Feature] = []
    for entry in _list(manifest.get("inputs")):
        name, shape = entry.get("name"), entry.get("shape")
        if not isinstance(name, str) or not isinstance(shape, list):
            continue
        found += _of_input(name, cast("list[Any]", shape), _object(described.get(name)),
                           is_text=entry.get("datatype") == "BYTES")  # fmt: skip
    answers = _answers(manifest)
    known = _object(statistics.get("outputs"))
    mix, level, spread = _of_outputs(known, answers)
    placed: list[Feature] = []
    start = 0
    for feature in (*found[:MAX_FEATURES], *(each for each in (mix, level) if each is not None)):
        placed.append(replace(feature, start=start))
        start = placed[-1].end
    ends = len(placed) - (mix is not None) - (level is not None)
    return Reference(
        features=tuple(placed[:ends]),
        mix=placed[ends] if mix is not None else None,
        level=placed[-1] if level is not None else None,
        answers=answers,
        log_loss=_number(known.get("log_loss")),
        rmse=_number(known.get("rmse")),
        level_mean=_number(spread.get("mean")) or 0.0,
        level_deviation=_number(spread.get("standard_deviation")) or 0.0,
        calibration_gap=_gap(known.get("calibration")),
        size=start,
    )


def _of_input(
    name: str, shape: list[Any], known: Mapping[str, Any], *, is_text: bool
) -> list[Feature]:
    if len(shape) == 4 and not is_text and all(type(each) is int for each in shape[1:]):
        parts = _object(known.get("parts"))
        names = pictures.names(tuple(shape[1:]))
        made = [
            _of_numbers(f"{name}: {part}", name, _object(parts.get(part)), place)
            for place, part in enumerate(names)
        ]
        return [each for each in made if each is not None]
    if shape not in ([-1, 1], [-1]):
        return []
    if not is_text:
        made_one = _of_numbers(name, name, known)
    elif isinstance(known.get("lengths"), dict):
        made_one = _of_numbers(name, name, _object(known["lengths"]), kind="text")
    else:
        made_one = _of_texts(name, known)
    return [made_one] if made_one is not None else []


def _of_numbers(
    name: str, source: str, known: Mapping[str, Any], part: int | None = None, *,
    kind: str = "number",
) -> Feature | None:  # fmt: skip
    edges, shares = _numbers(known.get("edges")), _numbers(known.get("shares"))
    count, missing = _number(known.get("count")), _number(known.get("missing"))
    if edges is None or shares is None or count is None or missing is None:
        return None
    if len(shares) != len(edges) + 1 or edges != sorted(set(edges)):
        return None
    counts = np.rint(np.asarray(shares, dtype=np.float64) * count).astype(np.int64)
    return Feature(name, kind, source, part, tuple(edges), (), counts, int(missing))


def _of_texts(name: str, known: Mapping[str, Any]) -> Feature | None:
    categories = _object(known.get("categories"))
    counts = _numbers([*categories.values(), known.get("others")])
    missing = _number(known.get("missing"))
    if not categories or counts is None or missing is None:
        return None
    cells = np.array(counts, dtype=np.int64)
    return Feature(name, "category", name, None, (), tuple(categories), cells, int(missing))


def _answers(manifest: Mapping[str, Any]) -> Answers | None:
    by_role = {str(each.get("role")): each.get("name") for each in _list(manifest.get("outputs"))}
    probabilities, prediction = by_role.get("probabilities"), by_role.get("prediction")
    classes = manifest.get("classes")
    names = tuple(str(each) for each in classes) if is_sequence(classes) else ()
    if isinstance(probabilities, str) and 2 <= len(names) <= MAX_CLASSES:
        return Answers(probabilities, None, names)
    return Answers(None, prediction, ()) if isinstance(prediction, str) else None


def _of_outputs(
    known: Mapping[str, Any], answers: Answers | None
) -> tuple[Feature | None, Feature | None, Mapping[str, Any]]:
    if answers is None:
        return None, None, {}
    if answers.prediction is not None:
        return None, _of_numbers(OUTPUTS, answers.prediction, known), known
    counts, confidence = _object(known.get("counts")), _object(known.get("confidence"))
    chosen = _numbers(list(counts.values()))
    if tuple(counts) != answers.classes or chosen is None:
        return None, None, {}
    level = _of_numbers(OUTPUTS, str(answers.probabilities), confidence)
    if level is None:
        return None, None, {}
    # The cell of others stays empty: a model answers with its own classes.
    cells = np.array([*chosen, 0], dtype=np.int64)
    mix = Feature(
        OUTPUTS, "category", str(answers.probabilities), None, (), answers.classes, cells, 0
    )
    return mix, level, confidence


def _gap(bins: object) -> float:
    """The mean gap of bins of [stated probability, share of hits, rows]."""
    given = cast("list[Any]", bins) if isinstance(bins, list) else []
    rows = [found for each in given if (found := _numbers(each)) is not None and len(found) == 3]
    total = sum(each[2] for each in rows)
    return sum(abs(each[0] - each[1]) * each[2] for each in rows) / total if total else 0.0


def _object(value: object) -> dict[str, Any]:
    return value if is_dictionary(value) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if is_dictionary(each)] if is_sequence(value) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _MOST else None


def _numbers(values: object) -> list[float] | None:
    if not isinstance(values, list):
        return None
    found = [_number(each) for each in cast("list[object]", values)]
    return None if None in found else cast("list[float]", found)
