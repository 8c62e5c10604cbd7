"""Engines against each other: rows of one model, one thread, in turns, in the same run.

Weights are as training starts with them: times don't depend on what they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.engines import graph_of, open_openvino, openvino_precisions
from falaj.workloads.optimization.comparison import (
    Latency,
    Session,
    compare,
    needs_reduced_range,
    open_session,
)
from falaj.workloads.optimization.export import Serving, assemble, export_module, quantise
from falaj.workloads.processor import relevant_cpu_flags
from falaj.workloads.training.models import Architecture, build

pytestmark = pytest.mark.benchmark_suite

_ROUNDS = 41
_CLASSES = [f"class {number}" for number in range(10)]
NETWORKS = {
    "convolutions, 8x8": Architecture("images", (1, 8, 8), 10, 16),
    "convolutions, 64x64": Architecture("images", (3, 64, 64), 10, 32),
    "mobilenet, 96x96": Architecture("images", (3, 96, 96), 10, 16, network="mobilenet"),
    "efficientnet, 224x224": Architecture("images", (3, 224, 224), 10, 32, network="efficientnet"),
    "mobilenet, 224x224": Architecture("images", (3, 224, 224), 10, 16, network="mobilenet"),
}


def sessions(architecture: Architecture) -> dict[str, Session]:
    """The model in each engine and precision, as optimisation makes them."""
    shape = architecture.shape
    core = export_module(build(architecture).eval(), shape)
    rows = np.random.default_rng(0).random((64, *shape), dtype=np.float32)
    small = quantise(core, rows, needs_reduced_range(relevant_cpu_flags()))
    serving = Serving("images", None, shape, _CLASSES, text_labels=True, target=None)
    exact, eight = (assemble(each, serving).SerializeToString() for each in (core, small))
    made: dict[str, Session] = {
        "onnxruntime float": open_session(exact), "onnxruntime int8": open_session(eight)
    }  # fmt: skip
    for precision in (*openvino_precisions(), "int8"):
        graph = graph_of(eight if precision == "int8" else exact)
        made[f"openvino {precision}"] = open_openvino(graph, precision, threads=1)
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("name", NETWORKS)
def test_engines(benchmark: BenchmarkFixture, name: str, rows: int) -> None:
    made = sessions(NETWORKS[name])
    images = np.random.default_rng(1).random((rows, *NETWORKS[name].shape), dtype=np.float32)
    calls: dict[str, Callable[[], object]] = {
        each: lambda run=session.run: run(None, {"image": images})
        for each, session in made.items()
    }
    found: dict[str, Latency] = {}

    def measure() -> None:
        found.update(compare(calls, _ROUNDS))

    benchmark.pedantic(measure, rounds=1, iterations=1)
    usual = found["onnxruntime float"].median_us
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\n{name}, {rows} row(s), one thread; {load}; {' '.join(relevant_cpu_flags())}")
    for each, latency in found.items():
        print(
            f"  {each:>17}: {latency.median_us:10.1f} µs (fastest {latency.fastest_us:10.1f}), "
            f"{usual / latency.median_us:5.2f} times as fast as ONNX Runtime's float"
        )
