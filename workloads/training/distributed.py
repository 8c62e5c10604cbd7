"""Data parallelism: the processes of a run, and the launch of several on one machine."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import tempfile
import uuid
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from falaj.workloads.errors import WorkloadError
from falaj.workloads.statuses import PROGRAM, STOPPED, worst
from falaj.workloads.training.rendezvous import TIMEOUTS
from falaj.workloads.training.stopping import StopRequest, terminate_when_orphaned

_ATTEMPTS = 3

#: What the driver and NCCL say of a GPU that is broken or has fallen off the bus. An illegal
#: address or a failed assertion is the program's own doing and none of them.
#: docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
_GPU_FAULTS = (
    "uncorrectable ecc error", "hardware stack error", "nvlink error", "no cuda-capable device",
    "devices unavailable", "device unavailable", "unhandled cuda error", "driver shutting down",
    "cuda error: unknown error",
)  # fmt: skip
_COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class Team:
    """This process's place among the processes of the run."""

    rank: int
    processes: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Return whether this process reports and writes."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return ``module`` with gradients that are averaged over the processes."""
        if self.processes == 1:
            return module
        # About the memory layout of one-channel kernels; of no weight at this size.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=ids)

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is set in any process; all must ask."""
        if self.processes == 1:
            return flag
        value = torch.tensor([int(flag)], device=self.device)
        distributed.all_reduce(value, op=distributed.ReduceOp.MAX)
        return bool(value.item())

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of ``value`` over the processes; all must ask."""
        if self.processes > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def from_leader(self, value: float) -> float:
        """Return the leader's ``value``; all must ask."""
        if self.processes == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.broadcast(tensor, src=0)
        return float(tensor.item())

    def share(self, data: bytes | None) -> bytes | None:
        """Return the leader's ``data``; all must ask.

        What a file holds is not the same everywhere at once: shared file systems show a new one
        to the other machines a while later.
        """
        if self.processes == 1:
            return data
        size = torch.tensor([-1 if data is None else len(data)], device=self.device)
        distributed.broadcast(size, src=0)
        if int(size) < 0:
            return None
        content = bytearray(data) if data is not None and self.leads else bytearray(int(size))
        values = torch.frombuffer(content, dtype=torch.uint8).to(self.device)
        distributed.broadcast(values, src=0)
        return values.cpu().numpy().tobytes()

    def wait(self) -> None:
        """Wait until every process has come this far."""
        if self.processes > 1:
            distributed.barrier()


def is_member() -> bool:
    """Return whether torchrun, an operator or `launch` started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_leader() -> bool:
    """Return whether this process reports and writes for the run."""
    return not is_member() or os.environ["RANK"] == "0"


def is_first_of_machine() -> bool:
    """Return whether this process speaks for its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def is_hardware_fault(error: Exception) -> bool:
    """Return whether ``error`` says that a GPU or its driver failed, not that memory was short."""
    text = str(error).lower()
    return any(hint in text for hint in _GPU_FAULTS)


def is_connection_loss(error: Exception) -> bool:
    """Return whether ``error`` says that another process has gone."""
    text = str(error).lower()
    return isinstance(error, distributed.DistNetworkError) or any(
        hint in text for hint in ("connection", "gloo", "nccl", "peer")
    )


def world_size(processes: int) -> int:
    """Return how many processes the run has: the launcher's number where there is a launcher."""
    return int(os.environ["WORLD_SIZE"]) if is_member() else processes


def local_processes(processes: int) -> int:
    """Return how many processes of the run are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or world_size(processes))


def join(device: str) -> Team:
    """Return this process's team, after a rendezvous with the others if there are any."""
    if not is_member():
        index = 0 if device == "cuda" else None
        return Team(
            0, 1, torch.device(device, index) if index is not None else torch.device(device)
        )
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = torch.device("cpu")
    if device == "cuda":
        local = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(local)
    if size > 1:
        distributed.init_process_group(
            "nccl" if device == "cuda" else "gloo", timeout=_COLLECTIVE_TIMEOUT
        )
    return Team(rank, size, local)


def leave() -> None:
    """End the membership; safe to call always."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def launch(arguments: list[str], processes: int, stop: StopRequest) -> int:
    """Run ``python -m falaj.workloads.training`` in several processes by torchrun's agent.

    A killed process ends the others, and all start again from the last checkpoint, at most twice
    and each time with a fresh rendezvous.

    Args:
        arguments: the command line after the module's name.
        processes: how many to start, all on this machine.
        stop: notices when this process's parent dies.

    Returns:
        The exit status: 0, 1, 2 or 75.

    Raises:
        WorkloadError: processes were lost at each attempt.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.launcher.api import elastic_launch  # noqa: PLC0415

    # The agent's own account of a lost process is for its developers; ours follows below.
    for name in ("multiprocessing.api", "agent.server.api"):
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    # All are on this machine: a host name that doesn't resolve must not matter.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    terminate_when_orphaned(stop)
    command = ["-m", "falaj.workloads.training", *arguments]
    again = [*command, "--resume", "auto"]  # the last one counts: never must not lose an attempt
    for attempt in range(1, _ATTEMPTS + 1):
        if stop.asked():
            return STOPPED
        with tempfile.TemporaryDirectory(prefix="falaj-training-") as logs:
            try:
                elastic_launch(_configuration(processes, logs), sys.executable)(
                    *(command if attempt == 1 else again)
                )
            except SignalException:
                return STOPPED
            except ChildFailedError as error:
                codes = {failure.exitcode for failure in error.failures.values()}
            else:
                return 0
        if STOPPED in codes:
            return STOPPED
        if codes & PROGRAM:  # a fault that will come again; it has been explained
            return worst(codes)
        if attempt < _ATTEMPTS:
            print(
                f"a training process was lost (exit status {sorted(codes)}); starting again from "
                f"the last checkpoint, attempt {attempt + 1} of {_ATTEMPTS}",
                file=sys.stderr,
            )
    raise WorkloadError(
        f"the training processes were lost {_ATTEMPTS} times; the last checkpoint is kept. Look "
        "for the reason (often too little memory), then run again, perhaps with fewer --processes"
    )


def _configuration(processes: int, logs: str) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig  # noqa: PLC0415

    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        rdzv_configs=dict(TIMEOUTS),
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=logs),
    )
