"""Shares of rows: together they are all rows, each once, and none is larger than another."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.training.row_shares import RowShare


@given(st.integers(1, 60), st.integers(1, 9))
def test_every_row_counts_in_one_share(rows: int, parts: int) -> None:
    values, counts = torch.arange(rows), torch.ones(rows)
    found = [RowShare(part, parts).of(values, counts) for part in range(parts)]
    assert len({len(counted) for _, counted in found}) == 1
    counted = [
        int(value) for each, of in found for value, count in zip(each, of, strict=True) if count
    ]
    assert sorted(counted) == list(range(rows))
