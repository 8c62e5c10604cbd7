"""How the processes of a run divide its work: rows, weights, matrices and layers.

Processes are counted as ``pipeline x data x shard x tensor``, the last one fastest: those that
exchange most are next to each other, on one machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import language
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.options import Parameters

_PARTS_OF_A_TURN: Final = 4

PIPELINE, DATA, SHARD, TENSOR = "pipeline", "data", "shard", "tensor"


@dataclass(frozen=True)
class Layout:
    """Sizes of the grid of processes.

    Attributes:
        data: copies of the model, each of which learns from other rows.
        shard: processes that divide weights, gradients and the optimiser's numbers of a copy, and
            learn from other rows, too.
        tensor: processes that divide the matrices of each layer.
        pipeline: processes that divide the layers.
    """

    data: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def is_divided(self) -> bool:
        """Whether any process holds a part of the model alone."""
        return self.shard * self.tensor * self.pipeline > 1

    @property
    def row_parts(self) -> int:
        """How many parts of a batch are learned from at the same time."""
        return self.data * self.shard

    def __str__(self) -> str:
        sizes = {PIPELINE: self.pipeline, DATA: self.data, SHARD: self.shard, TENSOR: self.tensor}
        return " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)


def layout(parameters: Parameters) -> Layout:
    """Return what the parameters ask for; copies are made of as many processes as are left.

    Raises:
        WorkloadError: the processes can't be divided so.
    """
    shard, tensor, pipeline = parameters.shard, parameters.tensor, parameters.pipeline
    product = shard * tensor * pipeline
    if parameters.processes % product:
        words = [
            f"--{name} {size}"
            for name, size in ((SHARD, shard), (TENSOR, tensor), (PIPELINE, pipeline))
            if size > 1
        ]
        raise WorkloadError(
            f"{' with '.join(words)} divides a model among {product} processes, and the run has "
            f"{parameters.processes}: allowed is a multiple of {product} (--processes {product})"
        )
    return Layout(parameters.processes // product, shard, tensor, pipeline)


def parts_of_batch(parameters: Parameters) -> int:
    """Return how many parts a batch is learned from in, one after another.

    In a pipeline at least as many as it has processes; with m parts in p processes each waits for
    (p - 1) / (m + p - 1) of the time (https://arxiv.org/abs/1811.06965), so it is a fifth where
    the batch has enough rows.
    """
    found = layout(parameters)
    turns = _PARTS_OF_A_TURN * (found.pipeline - 1)
    rows = parameters.batch_size // found.row_parts
    return max(parameters.accumulation, found.pipeline, min(turns, rows))


def check_layout(parameters: Parameters, family: str) -> None:
    """Refuse a division that this model or these parameters can't have.

    Args:
        parameters: of the run.
        family: of its data: ``images``, ``table`` or ``text``.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    divided = layout(parameters).is_divided
    if family != language.FAMILY:
        # A model of a team's own says itself how its matrices are divided, or is refused.
        by_own = parameters.own is not None
        for name, is_given in (
            (f"--{TENSOR} {parameters.tensor}", parameters.tensor > 1 and not by_own),
            (f"--{PIPELINE} {parameters.pipeline}", parameters.pipeline > 1),
            (f"--recompute {parameters.recompute}", parameters.recompute != "none"),
        ):
            if is_given:
                raise WorkloadError(
                    f"{name} is of Falaj's language model, and this dataset is no text: leave it "
                    f"out, or divide weights and optimiser alone (--{SHARD})"
                )
    if divided and parameters.precision == "float16":
        raise WorkloadError(
            f"--precision float16 needs the same scale of gradients in all processes, and here "
            f"the model is divided ({layout(parameters)}): use bfloat16, which needs none"
        )
    for name, is_given in (
        ("--teacher", bool(parameters.teacher)),
        (f"--prune {parameters.prune:g}", parameters.prune > 0),
        ("--quantisation-aware", parameters.quantisation_aware),
        (f"--lora-rank {parameters.lora_rank}", parameters.lora_rank > 0),
    ):
        if divided and is_given:
            raise WorkloadError(
                f"{name} is for networks that each process has whole, and here the model is "
                f"divided ({layout(parameters)}): leave one of both out"
            )
    _check_compression(parameters, divided=divided)


def _check_compression(parameters: Parameters, *, divided: bool) -> None:
    if parameters.compression == "none":
        return
    given = f"--compression {parameters.compression}"
    if divided:
        raise WorkloadError(
            f"{given} is of gradients that copies of a whole model exchange, and here the model "
            f"is divided ({layout(parameters)}): leave one of both out; what is exchanged then "
            "gets smaller by --precision bfloat16"
        )
    if parameters.processes == 1:
        raise WorkloadError(
            f"{given}: one process exchanges no gradients; leave it out, or use --processes 2"
        )


class Grid:
    """The places of a team's processes, and this one's.

    Args:
        layout: whose sizes multiply to the team's processes.
        team: the processes.
    """

    def __init__(self, layout: Layout, team: Team) -> None:
        self.layout, self.team = layout, team
        self.mesh: DeviceMesh = init_device_mesh(
            team.device.type,
            (layout.pipeline, layout.data, layout.shard, layout.tensor),
            mesh_dim_names=(PIPELINE, DATA, SHARD, TENSOR),
        )

    def place(self, name: str) -> int:
        """Return this process's number along one side of the grid."""
        return self.mesh.get_local_rank(name)

    @property
    def row_part(self) -> int:
        """Return which part of each batch this process learns from."""
        return self.place(DATA) * self.layout.shard + self.place(SHARD)

    @property
    def is_first_copy(self) -> bool:
        """Return whether no process before this one holds the same numbers."""
        return self.place(DATA) == 0

    def leader_of(self, part: int) -> int:
        """Return the rank of the first process that holds one part of the pipeline."""
        return part * (self.layout.data * self.layout.shard * self.layout.tensor)
