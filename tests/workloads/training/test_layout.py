"""How processes may be divided: what is refused, with what was given and what is allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.layout import Layout, check_layout, layout, parts_of_batch
from falaj.workloads.training.options import Parameters

PLAIN = Parameters(
    epochs=1, batch_size=8, learning_rate=1e-3, weight_decay=0.1, patience=3, gradient_clip=1.0,
    label_smoothing=0.0, accumulation=1, seed=0, processes=4, precision="float32", device="cpu",
    class_weights="none", model="auto", width=32, checkpoint_every=1, threads=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("family", "given", "said"),
    [
        ("text", {"shard": 3}, "--shard 3 divides a model among 3 processes, and the run has 4"),
        (
            "text", {"tensor": 2, "pipeline": 4},
            "--tensor 2 with --pipeline 4 divides a model among 8 processes",
        ),
        ("text", {"shard": 2, "precision": "float16"}, "use bfloat16"),
        ("text", {"shard": 2, "compression": "float16"}, "leave one of both out"),
        ("text", {"processes": 1, "compression": "powersgd"}, "one process exchanges no"),
        ("images", {"tensor": 2}, "--tensor 2 is of Falaj's language model"),
        ("table", {"pipeline": 2}, "--pipeline 2 is of Falaj's language model"),
        ("images", {"recompute": "layers"}, "--recompute layers is of Falaj's language model"),
    ],
)  # fmt: skip
def test_what_cant_be_is_refused(family: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        check_layout(replace(PLAIN, **given), family)


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("text", {"shard": 2, "tensor": 2}),
        ("text", {"tensor": 2, "pipeline": 2, "recompute": "layers"}),
        ("images", {"shard": 4, "precision": "bfloat16"}),
        ("table", {"compression": "float16"}),
    ],
)
def test_what_can_be_is_allowed(family: str, given: dict[str, Any]) -> None:
    check_layout(replace(PLAIN, **given), family)


@given(
    data=st.integers(1, 8), shard=st.integers(1, 8), tensor=st.sampled_from([1, 2]),
    pipeline=st.integers(1, 4), rows=st.integers(1, 64), parts=st.integers(1, 16),
)  # fmt: skip
def test_copies_take_what_is_left(  # noqa: PLR0917 - drawn
    data: int, shard: int, tensor: int, pipeline: int, rows: int, parts: int
) -> None:
    given = replace(
        PLAIN, processes=data * shard * tensor * pipeline, shard=shard, tensor=tensor,
        pipeline=pipeline, batch_size=rows, accumulation=parts,
    )  # fmt: skip
    found = layout(given)
    assert found == Layout(data, shard, tensor, pipeline)
    assert found.is_divided is (shard * tensor * pipeline > 1)
    # A schedule of a pipeline has at least as many parts as processes.
    assert parts_of_batch(given) >= max(parts, pipeline)


def test_the_division_changes_no_identity() -> None:
    plain = PLAIN.identity("of the data")
    for each in ({"shard": 4}, {"tensor": 2}, {"pipeline": 2}, {"recompute": "layers"}):
        assert replace(PLAIN, **each).identity("of the data") == plain
    assert replace(PLAIN, compression="powersgd").identity("of the data") != plain
