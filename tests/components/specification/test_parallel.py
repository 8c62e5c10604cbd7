"""How processes divide a model: which numbers go together, and what is said where they don't."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from falaj.components.specification.parallel import (
    COMPRESSION,
    PIPELINE,
    TENSOR,
    Division,
    division_of,
)
from falaj.workloads.bounds import DECODER

divisions = st.builds(
    Division,
    st.integers(1, 64),
    st.integers(1, int(TENSOR.high)),
    st.integers(1, int(PIPELINE.high)),
)


def test_limits_are_those_of_the_language_model() -> None:
    assert (TENSOR.low, TENSOR.high) == (1, DECODER["key_value_heads"].high)
    assert (PIPELINE.low, PIPELINE.high) == (1, DECODER["layers"].high)


@given(divisions, st.integers(1, 4_096), st.none() | st.integers(1, 64))
def test_processes_are_taken_where_each_has_a_part(
    division: Division, processes: int, data: int | None
) -> None:
    fits = processes % division.processes == 0
    if data is not None:
        fits = data * division.processes == processes
    reason = division.refuse_processes(processes, data)
    assert (reason is None) == fits
    if reason is not None:
        assert str(division) in reason
        assert f"has {processes} process(es); allowed: " in reason


@given(divisions, st.integers(1, 64), st.sampled_from(COMPRESSION.words))
def test_only_gradients_between_whole_models_are_compressed(
    division: Division, models: int, word: str
) -> None:
    reason = division.refuse_compression(word, models * division.processes)
    assert (reason is None) == (word == "none" or (division == Division() and models > 1))


@given(divisions)
def test_options_say_what_divides_and_nothing_else(division: Division) -> None:
    assert division_of(division.options) == division
    assert all(number > 1 for number in division.options.values())
    assert division_of({"shard": None}) == Division()
