"""Trains a language model for some seconds, and says how many tokens a second it went through.

By Falaj's own run, or by the loop that Lightning Fabric's documentation has one write: the same
network, batch, precision, optimiser and clipping, and of ours a run's average of the weights and
its watch over losses, too. Steps alone are timed, after some that warm up: nothing that goes
before, and nothing that validates.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from falaj.workloads.training import distributed, hardware
from falaj.workloads.training.batches import windows
from falaj.workloads.training.command import build_parser, requested_of
from falaj.workloads.training.compiling import keep_apart
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.launcher import resolve
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import Dataset, open_dataset
from falaj.workloads.training.stopping import StopRequest

WARM_STEPS = 5
ROUND = 10
"""Steps between two looks at the clock: on a GPU each look waits for it."""


def ours(dataset: Dataset, parameters: Parameters, seconds: float) -> dict[str, Any]:
    """What a run of Falaj's does."""
    team = distributed.join(parameters.device)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(dataset, parameters, Path(folder), None, "measured", False)
        session = Session(setting, team, StopRequest(), Progress("json", False, lambda: None))
        rate, waited = session.measure(seconds, warm=WARM_STEPS)
    distributed.leave()
    return {"rows_per_second": rate, "rows_share": waited, "rank": team.rank}


def fabric(dataset: Dataset, parameters: Parameters, seconds: float) -> dict[str, Any]:
    """What Lightning Fabric's loop does."""
    from lightning_fabric import Fabric

    precisions: dict[str, Any] = {"float32": "32-true", "bfloat16": "bf16-mixed"}
    runner = Fabric(
        accelerator=parameters.device, devices=parameters.processes, strategy=(
            "fsdp" if parameters.shard > 1 else "ddp" if parameters.processes > 1 else "auto"
        ), precision=precisions[parameters.precision],
    )  # fmt: skip
    runner.launch()
    torch.manual_seed(parameters.seed)
    size = parameters.decoder
    tokens, wanted = windows(dataset, "train")
    names = dataset.description["classes"]
    characters = dataset.pairs.size if dataset.pairs is not None else len(names)
    network = Decoder(tokens.shape[1], characters, parameters.width or 0, size)
    if parameters.compile == "always":
        keep_apart()
        for each in network.layers.values():
            each.compile(dynamic=False)
    module: Any = runner.setup_module(network)
    groups = [
        {"params": [each for each in module.parameters() if each.ndim > 1],
         "weight_decay": parameters.weight_decay},
        {"params": [each for each in module.parameters() if each.ndim <= 1], "weight_decay": 0.0},
    ]  # fmt: skip
    optimiser: Any = runner.setup_optimizers(
        torch.optim.AdamW(groups, lr=parameters.learning_rate, fused=True)
    )
    share = parameters.batch_size // parameters.processes
    loader: Any = runner.setup_dataloaders(
        DataLoader(TensorDataset(tokens, wanted), share, shuffle=True, drop_last=True)
    )

    def step(rows: Any, after: Any) -> None:
        logits = module(rows)
        runner.backward(functional.cross_entropy(logits.flatten(0, 1).float(), after.flatten()))
        runner.clip_gradients(module, optimiser, max_norm=parameters.gradient_clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    rate = timed(step, batches(loader), seconds, runner.device.type)
    return {"rows_per_second": rate * share * parameters.processes, "rank": runner.global_rank}


def batches(loader: Any) -> Iterator[Any]:
    """The batches of one epoch after the other."""
    while True:
        yield from loader


def timed(step: Callable[..., None], rows: Iterator[Any], seconds: float, device: str) -> float:
    """Steps a second: by the median of rounds, or on a GPU, which goes on by itself, of all."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(WARM_STEPS):
        step(*next(rows))
    wait()
    begun, took = time.perf_counter(), list[float]()
    while time.perf_counter() - begun < seconds:
        start, count = time.perf_counter(), ROUND if device == "cuda" else 1
        for _ in range(count):
            step(*next(rows))
        wait()
        took.append((time.perf_counter() - start) / count)
    return 1 / (statistics.fmean(took) if device == "cuda" else statistics.median(took))


def main() -> None:
    """Measure: ``trainer.py ours|fabric SECONDS OPTIONS-OF-A-RUN``."""
    which, seconds, *given = sys.argv[1:]
    options = build_parser().parse_args(["run", *given, "--output", "none"])
    dataset = open_dataset(options.dataset, None)
    parameters = resolve(requested_of(options), dataset)
    hardware.make_deterministic(parameters.seed, parameters.threads)
    found = {"ours": ours, "fabric": fabric}[which](dataset, parameters, float(seconds))
    if found.pop("rank") == 0:
        used = torch.cuda.max_memory_allocated() if parameters.device == "cuda" else None
        context = int(windows(dataset, "train")[0].shape[1])
        rate = found["rows_per_second"] * context
        assert math.isfinite(rate)
        print(json.dumps({**found, "tokens_per_second": rate, "memory": used}))


if __name__ == "__main__":
    main()
