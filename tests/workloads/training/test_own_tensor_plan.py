"""How a team's own model wants its matrices divided: refused before it trains, with the reason.

That divided ones learn what one process learns is in `test_divided.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

from falaj.workloads.errors import CodeError, WorkloadError
from falaj.workloads.training.own_model import own_tensor_plan


def model(said: Any) -> nn.Module:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.layers = nn.ModuleList(
                nn.ModuleDict({"up": nn.Linear(8, 12), "down": nn.Linear(12, 8)}) for _ in range(2)
            )
            self.norm = nn.LayerNorm(8)
            self.tied = self.layers[0]

        def forward(self, rows: Tensor) -> Tensor:
            return rows

        def tensor_plan(self) -> Any:
            return said() if callable(said) else said

    return Network()


def test_names_stand_for_layers() -> None:
    plan = {"layers.*.up": "colwise", "layers.*.down": "rowwise", "words": "colwise"}
    assert own_tensor_plan(model(plan), 4) == {
        "layers.0.up": "colwise", "layers.1.up": "colwise",
        "layers.0.down": "rowwise", "layers.1.down": "rowwise",
        "words": "colwise",
    }  # fmt: skip


def fails() -> Any:
    raise KeyError("up")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "tensor_plan() of Network gives None: a dictionary"),
        ({}, "tensor_plan() of Network gives {}: a dictionary"),
        ([("words", "colwise")], "a dictionary of 'colwise' or 'rowwise' by the names of layers"),
        ({"words": "columns"}, "'words' is 'columns'; allowed: 'colwise' or 'rowwise'"),
        ({"words": None}, "'words' is None; allowed"),
        ({"words": ["colwise"]}, "'words' is ['colwise']; allowed"),
        ({1: "colwise"}, "1 is the name of no layer"),
        ({"": "colwise"}, "'' is , a Network; allowed: an nn.Linear or an nn.Embedding"),
        ({"word": "colwise"}, "'word' is the name of no layer; those that can be divided: words"),
        ({"norm": "colwise"}, "'norm' is norm, a LayerNorm; allowed: an nn.Linear or an nn.Emb"),
        ({"layers.*": "colwise"}, "a ModuleDict; allowed"),
        (
            {"layers.*.up": "colwise", "layers.0.up": "rowwise"},
            "'layers.0.up' is layers.0.up, which another name stands for already",
        ),
        (
            {"layers.*.up": "rowwise"},
            "whose 8 rows can't be divided among 3 processes alike: give it a multiple, or choose "
            "another --tensor",
        ),
        ({"words": "colwise"}, "'words' is words, whose 8 columns can't be divided among 3"),
        ({"words": "rowwise"}, "'words' is words, whose 10 rows can't be divided among 3"),
        (fails, "tensor_plan() of Network fails: KeyError: 'up'"),
    ],
)  # fmt: skip
def test_a_plan_that_cant_be_followed(said: Any, why: str) -> None:
    with pytest.raises((WorkloadError, CodeError)) as refused:
        own_tensor_plan(model(said), 3)
    assert why in str(refused.value)


@pytest.mark.parametrize("made", [lambda: nn.Linear(4, 4), lambda: model(None)])
def test_without_a_plan_it_is_said_what_one_is(made: Callable[[], nn.Module]) -> None:
    module = made()
    if not isinstance(module, nn.Linear):
        type(module).tensor_plan = None  # type: ignore[assignment, union-attr]
    with pytest.raises(
        WorkloadError, match=r"--tensor 2 divides .* and \w+ has none: give it one"
    ):
        own_tensor_plan(module, 2)
