"""The graph's nodes for dates and free texts: the same features as in training, of raw texts.

Texts are cut by the standard's ``StringSplit``, whose result has as many places as the longest row
has pieces, none where all rows are empty; numbers that are looked up are padded before anything is
taken from them by its place.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from falaj.workloads.optimization.graph_part import GraphPart
from falaj.workloads.training.dates import (
    CENTURY_FROM,
    FIRST_YEAR,
    MONTHS,
    PARTS,
    WEEKDAYS,
    DateColumn,
    written_numbers,
)
from falaj.workloads.training.words import BLANKS, WordsColumn

_FLOAT: Final = np.float32


def words(part: GraphPart, column: WordsColumn, index: int) -> str:
    """Add what makes features of a free text; return their name, float32 (N, stems + 1)."""
    part = part.inside(f"words_{index}/")
    at = part.name

    def constant(name: str, values: object, kind: type[np.generic] = np.int64) -> str:
        return part.constant(name, np.asarray(values, dtype=kind))

    if column.width == 0:  # no word recurs: every row has none that is known
        shape = part.node("Shape", [column.name], at("shape"))
        zeros = part.node("ConstantOfShape", [shape], at("zeros"))
        return part.node("Add", [zeros, constant("one", [1], _FLOAT)], at("features"))
    pieces = column.name
    for depth, blank in enumerate(BLANKS):
        pieces = _split(part, pieces, at(f"cut_{depth}"), blank)
    stems = part.looked_up(pieces, at("stems"), column.words, numbers=column.stems)
    flat = part.node("Flatten", [stems], at("flat"), axis=1)
    padded = part.node("Pad", [flat, constant("pads", [0, 0, 0, 1])], at("padded"))
    numbers = list(range(1, column.width + 1))
    counted = part.node(
        "TfIdfVectorizer", [padded], at("counts"), mode="TF", min_gram_length=1,
        max_gram_length=1, max_skip_count=0, pool_int64s=numbers, ngram_counts=[0],
        ngram_indexes=[number - 1 for number in numbers],
    )  # fmt: skip
    one = constant("one", [1], _FLOAT)
    found = part.node("Min", [counted, one], at("found"))
    some = part.node("ReduceMax", [found, constant("axis", [1])], at("some"), keepdims=1)
    none = part.node("Sub", [one, some], at("none"))
    return part.node("Concat", [found, none], at("features"), axis=1)


def date(part: GraphPart, column: DateColumn, index: int) -> str:
    """Add what makes features of a date; return their name, float32 (N, `dates.WIDTH`).

    The formula is that of `dates.date_features`.
    """
    part = part.inside(f"date_{index}/")
    at = part.name

    def constant(name: str, values: object, kind: type[np.generic] = _FLOAT) -> str:
        return part.constant(name, np.asarray(values, dtype=kind))

    def step(operator: str, name: str, *inputs: str | float) -> str:
        names = [
            given if isinstance(given, str) else constant(f"{name}:{place}", [given])
            for place, given in enumerate(inputs)
        ]
        return part.node(operator, names, at(name))

    year, month, day = _parts(part, column)
    century = step("Where", "century", step("Less", "young", year, CENTURY_FROM), 2000, 1900)
    whole = step("Add", "whole_year", year, century)
    year = step("Where", "year", step("Less", "short", year, 100), whole, year)
    bounds = [
        step("GreaterOrEqual", "month_low", month, 1),
        step("LessOrEqual", "month_high", month, MONTHS),
        step("GreaterOrEqual", "day_low", day, 1),
        step("LessOrEqual", "day_high", day, 31),
        step("GreaterOrEqual", "year_low", year, FIRST_YEAR),
    ]
    valid = bounds[0]
    for place, bound in enumerate(bounds[1:]):
        valid = step("And", f"valid_{place}", valid, bound)
    nowhere = float("nan")
    month = step("Where", "month", valid, month, nowhere)
    early = step("LessOrEqual", "early", month, 2)
    late = part.node("Cast", [early], at("late"), to=TensorProto.FLOAT)
    year = step("Sub", "year_from_march", year, late)
    months = step("Add", "months", month, step("Mul", "late_months", late, 12))
    months = step("Sub", "months_from_march", months, 3)
    since = step("Add", "since_2", step("Mul", "since_1", months, 153), 2)
    since = step("Floor", "since_4", step("Div", "since_3", since, 5))
    since = step("Sub", "since_6", step("Add", "since_5", since, day), 1)
    days = step("Mul", "days_0", year, 365)
    for place, (operator, by) in enumerate((("Add", 4), ("Sub", 100), ("Add", 400))):
        leaps = step("Floor", f"leaps_{place}", step("Div", f"leap_{place}", year, by))
        days = step(operator, f"days_{place + 1}", days, leaps)
    days = step("Where", "days", valid, step("Add", "days_4", days, since), nowhere)
    missing = step("IsNaN", "is_missing", days)
    centred = step("Div", "place", step("Sub", "centred", days, column.mean), column.scale)
    filled = step("Where", "filled", missing, 0, centred)
    flag = part.node("Cast", [missing], at("missing"), to=TensorProto.FLOAT)
    shifted = step("Add", "shifted", days, 2)
    weeks = step("Floor", "weeks", step("Div", "by_week", shifted, WEEKDAYS))
    weekday = step("Sub", "weekday", shifted, step("Mul", "week_days", weeks, WEEKDAYS))
    hits = [
        part.node("Equal", [value, constant(name, [numbers])], at(f"{name}_hit"))
        for name, value, numbers in (
            ("weekdays", weekday, range(WEEKDAYS)),
            ("months_of_year", month, range(1, MONTHS + 1)),
        )
    ]
    one_hot = [part.node("Cast", [hit], f"{hit}_float", to=TensorProto.FLOAT) for hit in hits]
    return part.node("Concat", [filled, flag, *one_hot], at("features"), axis=1)


def _parts(part: GraphPart, column: DateColumn) -> tuple[str, str, str]:
    """Year, month and day, float32 (N, 1) each, NaN where the text has none."""
    at = part.name

    def constant(name: str, values: list[int]) -> str:
        return part.constant(name, np.array(values, dtype=np.int64))

    pieces = column.name
    if column.time_mark:
        pieces = _split(part, pieces, at("of_time"), column.time_mark)
    pieces = _split(part, pieces, at("pieces"), column.separator)
    ways = written_numbers()
    numbers = part.looked_up(pieces, at("numbers"), list(ways), floats=list(ways.values()))
    # Axes: row, its one text, (date and time,) parts.
    rank = 4 if column.time_mark else 3
    ends = [0] * (rank - 2) + [1, PARTS] if column.time_mark else [0] * (rank - 1) + [PARTS]
    nan = part.constant("nan", np.array(np.nan, dtype=_FLOAT))
    padded = part.node("Pad", [numbers, constant("pads", [0] * rank + ends), nan], at("padded"))
    if column.time_mark:
        first = constant("first", [0])
        padded = part.node(
            "Slice", [padded, first, constant("second", [1]), constant("time", [2])], at("dated")
        )
        padded = part.node("Squeeze", [padded, constant("squeezed", [2])], at("date"))
    found = {
        letter: part.node(
            "Gather",
            [padded, constant(f"{letter}_place", [column.order.index(letter)])],
            at(f"{letter}_text"),
            axis=2,
        )
        for letter in "ymd"
    }
    year, month, day = (
        part.node("Flatten", [found[letter]], at(f"{letter}_part"), axis=1) for letter in "ymd"
    )
    return year, month, day


def _split(part: GraphPart, source: str, output: str, delimiter: str) -> str:
    """Cut texts at ``delimiter``, which adds an axis."""
    part.node("StringSplit", [source], output, ("count",), delimiter=delimiter)
    return output
