"""Our training against Lightning Fabric's loop on processors, in turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.peers.trainings import FABRIC, OURS, Network, in_turns, text

pytestmark = pytest.mark.benchmark_suite
ROUNDS = 5
SECONDS = 8.0
SMALL = Network(width=128, layers=4, heads=4, key_value_heads=2, context=128, batch_size=16)
LARGER = Network(width=384, layers=6, heads=6, key_value_heads=2, context=256, batch_size=8)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("network", [SMALL, LARGER], ids=["small", "larger"])
def test_a_language_model(tmp_path: Path, benchmark: BenchmarkFixture, network: Network) -> None:
    dataset = text(tmp_path, network, rows=40 * network.batch_size)
    options = ["--device", "cpu", "--precision", "float32", "--threads", "1", "--compile", "never"]

    def run() -> dict[str, dict[str, float]]:
        return in_turns((OURS, FABRIC), ROUNDS, dataset, network, SECONDS, options)

    rates = benchmark.pedantic(run, rounds=1, iterations=1)
    print(f"\nwidth {network.width}, {network.layers} layers, rows of {network.context}")
    for name, found in rates.items():
        share = found["tokens_per_second"] / rates[FABRIC]["tokens_per_second"]
        print(f"  {name}: {found['tokens_per_second']:,.0f} tokens/s, {share:.2f} of Fabric's")
