"""How the processes of a training divide a model: the numbers, and which of them go together.

All processes are ``data`` x ``shard`` x ``tensor`` x ``pipeline``. The last two divide the layers
of Falaj's language model, so what they may be depends on how large that is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default
from falaj.components.specification.limits import Between
from falaj.components.specification.workload_bounds import bound, choice

PROCESSES: Final = bound("training", "processes")
MODELS: Final = Between(1, 131_072)
"""How often a model may be there: as often as a job in a cluster has processes, 512 x 256."""
SHARD: Final = bound("training", "shard")
TENSOR: Final = bound("training", "tensor")
"""Each process has as many of a layer's heads of keys and values as the others."""
PIPELINE: Final = bound("training", "pipeline")
"""Each process has a layer at least."""
RECOMPUTE: Final = choice("training", "recompute")
COMPILE: Final = choice("training", "compile")
COMPRESSION: Final = choice("training", "compression")
PARTS: Final = ("shard", "tensor", "pipeline")
"""What divides a model, by the names of the workload's options."""
OF_LAYERS: Final = ("tensor", "pipeline")
"""Those that need a model made of layers, which Falaj's language model alone is."""


class ParallelArgs(TypedDict):
    """How many processes divide what; multiplied, they are all processes of the training."""

    data: NotRequired[Annotated[int, MODELS]]
    """Groups of processes that each have the whole model, and learn from rows of their own.
    Default: what the others leave of all processes."""
    shard: NotRequired[Annotated[int, SHARD, Default(SHARD.default)]]
    """Processes that each hold a part of weights, gradients and the optimiser's numbers, fetch the
    rest when they need it, and learn from rows of their own (FSDP). For every network."""
    tensor: NotRequired[Annotated[int, TENSOR, Default(TENSOR.default)]]
    """Processes that each hold and compute a part of every layer; divides its heads of keys and
    values. For the language model, and a class of one's own that says how it is divided."""
    pipeline: NotRequired[Annotated[int, PIPELINE, Default(PIPELINE.default)]]
    """Processes that each hold and compute some of the layers, one after the other; at most as
    many as there are layers. For the language model."""


class SavingArgs(TypedDict):
    """What a training's processes spare memory, time and network by."""

    recompute: NotRequired[Annotated[str, RECOMPUTE, Default(RECOMPUTE.default)]]
    """``layers`` computes what is in a layer of a language model again going back, which saves
    memory and costs time; ``none`` keeps all."""
    compile: NotRequired[Annotated[str, COMPILE, Default(COMPILE.default)]]
    """Whether the network is compiled (``torch.compile``), which takes minutes at the begin and
    then less time and memory for each step. ``auto`` compiles a language model on GPUs where there
    is a C compiler, and the run's record says whether it did. Not with ``tensor``."""
    compression: NotRequired[Annotated[str, COMPRESSION, Default(COMPRESSION.default)]]
    """What gradients travel as between processes that each have the whole model: float32
    (``none``), half as many bytes, or with ``powersgd`` two thin matrices for each of theirs."""


@dataclass(frozen=True)
class Division:
    """Among how many processes one model is divided."""

    shard: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def processes(self) -> int:
        """Those that have one model together."""
        return self.shard * self.tensor * self.pipeline

    @property
    def options(self) -> dict[str, int]:
        """The options of a training that say so, without those that divide nothing."""
        found = {part: int(getattr(self, part)) for part in PARTS}
        return {part: number for part, number in found.items() if number > 1}

    def __str__(self) -> str:
        """The numbers and their product."""
        shown = " x ".join(f"{part} {getattr(self, part)}" for part in PARTS)
        return f"{shown} = {self.processes}"

    def refuse_processes(self, processes: int, data: int | None = None) -> str | None:
        """Why so many processes can't have models that are divided so; None where they can.

        Args:
            processes: all of the training's.
            data: how many models there are to be. None: as many as there is room for.
        """
        if data is not None and data * self.processes != processes:
            return (
                f"given data {data} x {self}, which is {data * self.processes} in all, but the "
                f"training has {processes} process(es); allowed: numbers whose product that is, "
                "or leave data out"
            )
        if processes % self.processes:
            return (
                f"given {self}, but the training has {processes} process(es); allowed: numbers "
                "whose product divides that"
            )
        return None

    def refuse_compression(self, compression: str, processes: int) -> str | None:
        """Why gradients of so many processes can't be compressed; None where they can."""
        if compression == COMPRESSION.default:
            return None
        if self.processes > 1:
            given = ", ".join(f"{part} {number}" for part, number in self.options.items())
            return (
                f"given {compression!r} beside {given}; allowed: {COMPRESSION.default} there: "
                "only gradients between processes that each have the whole model are compressed"
            )
        if processes == 1:
            return (
                f"given {compression!r}, but the training has 1 process, which exchanges nothing; "
                f"allowed: {COMPRESSION.default}, or several processes"
            )
        return None

    def refuse_compile(self, compiles: str) -> str | None:
        """Why layers that are divided so can't be compiled; None where they can, or needn't."""
        if compiles != "always" or self.tensor == 1:
            return None
        allowed = ", ".join(each for each in COMPILE.words if each != compiles)
        return (
            f"given {compiles!r} beside tensor {self.tensor}; allowed: {allowed} there: gradients "
            "of compiled layers whose matrices are divided came out wrong"
        )


def division_of(given: Mapping[str, Any]) -> Division:
    """The division that checked arguments ask for, by the names of `PARTS`."""
    return Division(**{part: int(given.get(part) or 1) for part in PARTS})
