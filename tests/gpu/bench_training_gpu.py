"""A language model of about a billion weights on GPUs, beside Lightning Fabric, in turns.

Run by `make bench-gpu`; without a GPU it fails. Tokens a second, and the share of what the GPUs
could compute that the model's own operations take (model FLOPs utilisation), of the data sheet's
peak and of a product of large matrices that is measured here. torchtitan isn't beside them: it is
run from a clone, by a configuration of its own models.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.components.catalogue.gpus import GPUS, Gpu
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from tests.gpu.check_training_gpu import train
from tests.peers.trainings import FABRIC, OURS, Network, in_turns, text

pytestmark = pytest.mark.benchmark_suite
ROUNDS = 3
SECONDS = 20.0
PRECISION = ["--device", "cuda", "--precision", "bfloat16"]
BILLION = Network(width=2_048, layers=20, heads=16, key_value_heads=8, context=2_048, batch_size=8)
CHECKPOINTED = Network(
    width=1_024, layers=12, heads=16, key_value_heads=8, context=1_024, batch_size=8
)
SIDE = 8_192
"""Of the matrices whose product is measured."""
AIM = 0.5
"""Of one GPU's peak, in bfloat16 with compiled layers."""


def weights(network: Network, characters: int = 128) -> int:
    """How many it has; they take no memory to count."""
    size = DecoderSize(network.layers, network.heads, network.key_value_heads)
    with torch.device("meta"):
        made = Decoder(network.context, characters, network.width, size)
    return sum(each.numel() for each in made.parameters())


def this_gpu() -> Gpu:
    """The catalogue's row of the first GPU, by the number that its vendor gives it."""
    assert torch.cuda.is_available(), "no usable NVIDIA GPU: check the driver with nvidia-smi"
    import pynvml

    nvml = cast("Any", pynvml)
    nvml.nvmlInit()
    number = nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(0)).pciDeviceId >> 16
    return gpu_of(number, torch.cuda.get_device_name())


def gpu_of(number: int, name: str) -> Gpu:
    """The catalogue's row of a PCI device."""
    found = [each for each in GPUS.values() if f"0x{number:04X}" in each.pci_device_ids]
    assert found, f"the catalogue has no GPU {number:04X} ({name}), so that its peak isn't known"
    return found[0]


def product_tflops() -> float:
    """What a product of large matrices reaches, in 10¹² operations a second."""
    one, other = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(10):
        one @ other
    torch.cuda.synchronize()
    begun, times = time.perf_counter(), 50
    for _ in range(times):
        one @ other
    torch.cuda.synchronize()
    return 2 * SIDE**3 * times / (time.perf_counter() - begun) / 1e12


@pytest.mark.timeout(5_400)
def test_a_billion_weights(tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    peak, reached = this_gpu().bf16_tflops, product_tflops()
    assert peak is not None
    processes = torch.cuda.device_count()
    network = BILLION
    dataset = text(tmp_path, network, rows=64)
    sharded = ["--shard", str(processes)] if processes > 1 else []
    operations = network.flops(weights(network))
    print(
        f"\n{weights(network) / 1e9:.2f} billion weights, {processes} GPU(s), bfloat16; a product "
        f"of matrices reaches {reached:,.0f} of {peak:,.0f} TFLOP/s"
    )

    def run() -> dict[str, dict[str, dict[str, float]]]:
        return {
            compiled: in_turns(
                (OURS, FABRIC), ROUNDS, dataset, network, SECONDS,
                [*PRECISION, *sharded, "--compile", compiled], processes=processes,
            )
            for compiled in ("never", "always")
        }  # fmt: skip

    for compiled, rates in benchmark.pedantic(run, rounds=1, iterations=1).items():
        for name, found in rates.items():
            used = found["tokens_per_second"] * operations / processes / 1e12
            share = found["tokens_per_second"] / rates[FABRIC]["tokens_per_second"]
            print(
                f"  {name}, compile {compiled}: {found['tokens_per_second']:,.0f} tokens/s, "
                f"{share:.2f} of Fabric's; {used / peak:.1%} of the peak (aim: {AIM:.0%}), "
                f"{used / reached:.1%} of the product; {found['memory'] / 2**30:.1f} GiB; "
                f"waited for rows {found.get('rows_share', 0):.1%}"
            )


@pytest.mark.timeout(1_800)
def test_what_checkpoints_cost(tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """The same training with checkpoints every few steps, and with one at its end."""
    this_gpu()
    network = CHECKPOINTED
    dataset = text(tmp_path, network, rows=1_600)
    steps = 200
    seconds: dict[str, list[float]] = {"seldom": [], "every 20 steps": []}

    def run() -> None:
        for number in range(ROUNDS):
            for name, more in (("seldom", []), ("every 20 steps", ["--checkpoint-steps", "20"])):
                record = train(
                    dataset, tmp_path / f"{name}-{number}", *network.options, "--epochs", "1",
                    "--precision", "bfloat16", "--compile", "never", *more,
                )  # fmt: skip
                seconds[name].append(record["timings"]["training_seconds"])

    benchmark.pedantic(run, rounds=1, iterations=1)
    least = {name: min(values) for name, values in seconds.items()}
    cost = (least["every 20 steps"] - least["seldom"]) / steps
    print(f"\n{json.dumps(least)}: a step waits {1_000 * cost:.2f} ms for checkpoints, "
          f"{cost * steps / least['seldom']:.2%} of its time")  # fmt: skip
