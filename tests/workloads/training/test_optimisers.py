"""Optimisers learn as PyTorch's own do, and a process that trains doesn't load its compiler."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from falaj.workloads.training import optimisers

OPTIONS: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 0.02, "weight_decay": 0.1, "fused": True},
    "SGD": {"lr": 0.02, "momentum": 0.9, "nesterov": True},
    "LBFGS": {"max_iter": 4, "line_search_fn": "strong_wolfe"},
}
TRAINS = """
import sys
import torch
from torch import nn
from falaj.workloads.training import hardware, optimisers
hardware.make_deterministic(1, 1)
assert torch.are_deterministic_algorithms_enabled()
assert not torch.is_deterministic_algorithms_warn_only_enabled()
layer = nn.Linear(3, 2)
for kind in (optimisers.AdamW, optimisers.SGD, optimisers.LBFGS):
    optimiser = kind(layer.parameters(), lr=0.1)
    def loss():
        optimiser.zero_grad()
        found = layer(torch.ones(4, 3)).square().sum()
        found.backward()
        return found
    optimiser.step(loss)
    optimiser.load_state_dict(optimiser.state_dict())
loaded = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor."))]
assert loaded == [], loaded
import torch._inductor.config
assert torch._inductor.config.deterministic
"""


def learned(kind: type[torch.optim.Optimizer], begin: nn.Module, options: dict[str, Any]) -> Any:
    """Weights and the optimiser's state after some steps, in whose middle it is loaded again."""
    module = copy.deepcopy(begin)
    optimiser = kind(module.parameters(), **options)
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(2))

    def loss() -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        found = module(rows).tanh().square().sum()
        found.backward()
        assert torch.is_grad_enabled()
        return found

    for step in range(6):
        optimiser.step(loss)
        if step == 2:
            state = copy.deepcopy(optimiser.state_dict())
            optimiser = kind(module.parameters(), **options)
            optimiser.load_state_dict(state)
    assert torch.is_grad_enabled()
    return module.state_dict(), optimiser.state_dict()


@pytest.mark.parametrize("name", OPTIONS)
def test_bit_by_bit_what_pytorchs_own_learns(name: str) -> None:
    torch.manual_seed(1)
    begin = nn.Linear(3, 2)
    ours, theirs = (getattr(each, name) for each in (optimisers, torch.optim))
    assert issubclass(ours, theirs)
    (weights, state), (wanted, wanted_state) = (
        learned(kind, begin, OPTIONS[name]) for kind in (ours, theirs)
    )
    torch.testing.assert_close(weights, wanted, rtol=0, atol=0)
    assert state.keys() == wanted_state.keys() == {"state", "param_groups"}
    torch.testing.assert_close(state["state"], wanted_state["state"], rtol=0, atol=0)
    assert state["param_groups"] == wanted_state["param_groups"]


def test_a_process_that_trains_does_not_load_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
