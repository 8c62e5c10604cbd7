"""What measures trainings beside each other works, and counts what it should."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from tests.gpu.bench_training_gpu import BILLION, gpu_of, weights
from tests.peers.trainings import OURS, Network, measured, text

TOY = Network(width=32, layers=2, heads=2, key_value_heads=1, context=16, batch_size=4)


def test_the_large_one_has_about_a_billion_weights() -> None:
    assert 0.9e9 < weights(BILLION) < 1.1e9


@pytest.mark.parametrize("network", [TOY, BILLION], ids=["toy", "billion"])
def test_operations_are_those_that_pytorch_counts(network: Network) -> None:
    """It counts attention whole, and not by half, as a decoder needs it."""
    size = DecoderSize(network.layers, network.heads, network.key_value_heads)
    with torch.device("meta"):
        module = Decoder(network.context, 128, network.width, size)
        tokens = torch.zeros(1, network.context, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            module(tokens).sum().backward()
    halved = 6.0 * network.layers * network.width * network.context
    counted = counter.get_total_flops() / network.context - halved
    assert network.flops(weights(network)) == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize(
    ("number", "name", "peak"), [(0x2335, "H200-SXM-141GB", 989), (0x2330, "H100-SXM5-80GB", 989)]
)
def test_a_gpu_is_known_by_its_number(number: int, name: str, peak: float) -> None:
    found = gpu_of(number, "NVIDIA")
    assert (found.name, found.bf16_tflops) == (name, peak)


def test_one_that_is_not_known_is_told() -> None:
    with pytest.raises(AssertionError, match="no GPU 1234 \\(a card\\), so that its peak"):
        gpu_of(0x1234, "a card")


def test_ours_is_measured(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--precision", "float32", "--threads", "1"]
    found = measured(OURS, text(tmp_path, TOY, rows=64), TOY, 0.2, options)
    assert found["tokens_per_second"] == pytest.approx(found["rows_per_second"] * TOY.context)
    assert found["tokens_per_second"] > 0
    assert (found["memory"], 0 <= found["rows_share"] < 1) == (None, True)
