"""Trainings of a language model that are measured beside each other, each in its own process."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.environments import environment

PROGRAM: Final = Path(__file__).with_name("trainer.py")
OURS, FABRIC = "ours", "fabric"
LIMIT_SECONDS: Final = 1_200


@dataclass(frozen=True)
class Network:
    """A language model, and the batches that it learns from.

    Attributes:
        width: of the stream between its layers.
        layers: of it.
        heads: of each layer.
        key_value_heads: of each layer.
        context: tokens of a row.
        batch_size: rows of a step over all processes.
    """

    width: int
    layers: int
    heads: int
    key_value_heads: int
    context: int
    batch_size: int

    @property
    def options(self) -> list[str]:
        """Of a run's command line."""
        return [
            "--width", str(self.width), "--layers", str(self.layers), "--heads", str(self.heads),
            "--key-value-heads", str(self.key_value_heads), "--batch-size", str(self.batch_size),
        ]  # fmt: skip

    def flops(self, weights: int) -> float:
        """Floating point operations of a token that is learned from, forward and back.

        Six for each weight, and for each layer twelve by width and context, of which a decoder,
        that looks back alone, needs half: Chowdhery et al., PaLM, appendix B,
        https://arxiv.org/abs/2204.02311.

        Args:
            weights: of the network; the matrix of tokens, in and out, counts once, as only its
                answers are products.
        """
        return 6.0 * weights + 6.0 * self.layers * self.width * self.context


def text(folder: Path, network: Network, rows: int) -> Path:
    """Write a text of so many rows; return the dataset that is made of it."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
             for _ in range(2_000)]  # fmt: skip
    needed, written = (rows + rows // 2) * network.context, 0
    with (folder / "text.txt").open("w") as file:
        while written < needed:
            written += file.write(" ".join(draw.choices(words, k=12)) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", "dataset", "--source",
         str(folder / "text.txt"), "--context", str(network.context), "--output",
         str(folder / "datasets"), "--json"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Path(json.loads(done.stdout.splitlines()[-1])["path"])


def fabric_path() -> str:
    """Where Lightning Fabric is imported from, in this environment's PyTorch."""
    folder = environment("peers-fabric")
    return sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})


def measured(
    which: str, dataset: Path, network: Network, seconds: float, options: list[str],
    *, processes: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Train for some seconds; return what `trainer` prints.

    Args:
        which: `OURS` or `FABRIC`.
        dataset: that is learned from.
        network: that learns.
        seconds: of steps that are timed.
        options: of a run's command line, beside those of the network.
        processes: that train together.
    """
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    variables = dict(os.environ)
    if which == FABRIC:
        variables["PYTHONPATH"] = fabric_path()
    done = subprocess.run(
        [*start, str(PROGRAM), which, str(seconds), "--dataset", str(dataset),
         "--processes", str(processes), *network.options, *options],
        env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


def in_turns(
    which: tuple[str, ...], rounds: int, *args: Any, **options: Any
) -> dict[str, dict[str, float]]:
    """Medians of each of several, which take turns; arguments are those of `measured`."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in which}
    for _ in range(rounds):
        for name in which:
            found[name].append(measured(name, *args, **options))
    return {
        name: {
            key: statistics.median(each[key] for each in values)
            for key, value in values[0].items() if value is not None
        }
        for name, values in found.items()
    }  # fmt: skip
