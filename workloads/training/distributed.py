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

from workloads.errors import WorkloadError
from workloads.training.stopping import StopRequest, terminate_when_orphaned

STOPPED = 75
"""Exit status of a process that stopped on request (EX_TEMPFAIL of sysexits.h)."""

LOST = 74
"""Exit status of a process whose peers have gone."""

_ATTEMPTS = 3

# The defaults (30 s and 3 x 5 s) take 46 s to notice that a member has gone; these take 12 s.
_RENDEZVOUS = {
    "timeout": 120,
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 3,
}
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


def is_connection_loss(error: Exception) -> bool:
    """Return whether ``error`` says that another process has gone."""
    text = str(error).lower()
    return isinstance(error, distributed.DistNetworkError) or any(
        hint in text for hint in ("connection", "gloo", "nccl", "peer")
    )


def world_size(processes: int) -> int:
    """Return how many processes the run has: the launcher's number where there is a launcher."""
    return int(os.environ["WORLD_SIZE"]) if is_member() else processes


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
    """Run ``python -m workloads.training arguments`` in several processes by torchrun's agent.

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
    command = ["-m", "workloads.training", *arguments]
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
        if codes & {1, 2}:  # a fault that will come again; it has been explained
            return 2 if 2 in codes else 1
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
        rdzv_configs=dict(_RENDEZVOUS),
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=logs),
    )
