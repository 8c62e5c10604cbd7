"""A language model in float, with 8 bits and with weights of 4: one more token, and a prompt.

Of weights as training starts with; what fewer bits cost in nats, `up` measures of a model that has
learned.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.optimization.comparison import (
    needs_reduced_range,
    open_session,
)
from falaj.workloads.optimization.export import Serving, assemble, export_module, quantise
from falaj.workloads.optimization.four_bits import quantise_weights
from falaj.workloads.optimization.remembered import past_of, step_of
from falaj.workloads.processor import relevant_cpu_flags
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.language import TOKENS

pytestmark = pytest.mark.benchmark_suite

_CONTEXT = 256
_TOKENS = 4_096
_ROUNDS = 25


@pytest.mark.timeout(900)
def test_fewer_bits_of_31_million_weights(benchmark: BenchmarkFixture) -> None:
    torch.manual_seed(0)
    module = Decoder(_CONTEXT, _TOKENS, 512, DecoderSize(10, 8, 4)).eval().requires_grad_(False)
    names = [str(each) for each in range(_TOKENS)]
    serving = Serving("text", None, (_CONTEXT,), names, text_labels=True, target=None)
    core = export_module(module, serving.shape)
    random = np.random.default_rng(0)
    rows = random.integers(0, _TOKENS, (32, _CONTEXT))
    reduced = needs_reduced_range(relevant_cpu_flags())
    models = {
        "float": core, "int8": quantise(core, rows, reduced), "int4": quantise_weights(core),
    }  # fmt: skip
    sizes: dict[str, int] = {}
    steps: dict[str, Callable[[], object]] = {}
    prompts: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        served = assemble(model, serving)
        data = served.SerializeToString()
        sizes[name], session = len(data), open_session(data)
        steps[name] = step_of(session, past_of(served), rows[:1])
        prompts[name] = prompt_of(session, {TOKENS: rows[:1, :128]})
    times: dict[str, list[float]] = {
        f"{name} {of}": [] for name in models for of in ("step", "prompt")
    }

    def turn() -> None:
        for of, calls in (("step", steps), ("prompt", prompts)):
            for name, call in calls.items():
                # Of the processor: the machine does other things as well.
                started = time.process_time()
                call()
                times[f"{name} {of}"].append(1e3 * (time.process_time() - started))

    turn()
    benchmark.pedantic(turn, rounds=_ROUNDS, iterations=1)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\n{load}; {' '.join(relevant_cpu_flags())}; milliseconds of the processor, medians")
    for name, size in sizes.items():
        said = [f"{name:>5}: {size:11,} bytes"]
        for of in ("step", "prompt"):
            found, before = times[f"{name} {of}"], times[f"float {of}"]
            ratio = statistics.median(a / b for a, b in zip(before, found, strict=True))
            said.append(f"{of} {statistics.median(found):6.2f}, {ratio:.2f} times as fast")
        print("  " + "; ".join(said))
    assert sizes["int4"] < sizes["int8"] < sizes["float"]


def prompt_of(session: Any, feed: dict[str, Any]) -> Callable[[], object]:
    return lambda: session.run(["probabilities"], feed)
