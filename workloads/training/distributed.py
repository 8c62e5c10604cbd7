"""Data parallelism: the processes of a run, and the launch of several on one machine."""

from __future__ import annotations

import datetime
import logging
import os
import re
import signal
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed import DistError
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousError
from torch.nn.parallel import DistributedDataParallel

from falaj.workloads.bounds import CAUSE_FIRST_SECONDS, GANG, MARGIN_SECONDS
from falaj.workloads.errors import LOST, PROGRAM, STOPPED, WorkloadError, worst
from falaj.workloads.training.hardware import require_locked_memory
from falaj.workloads.training.rank_order import OrderedRendezvous
from falaj.workloads.training.stopping import StopRequest, terminate_when_orphaned
from falaj.workloads.training.tensors import numbers_of

# How the machines of a run find each other, and what becomes of lost ones.
#
# ``torchrun`` reads ``PET_*`` variables in place of its options, and Kubeflow Trainer sets them in
# its pods, so a run on several machines is started by the same command line as one on a single
# machine, with these in its environment:
#
# * ``PET_NNODES``: machines, as ``4`` or, for a run that may grow and shrink, ``2:8``;
# * ``PET_RDZV_ENDPOINT`` (``host:port``), or ``PET_MASTER_ADDR`` and ``PET_MASTER_PORT``;
# * ``PET_NODE_RANK``: the machine's index, by which it is ranked (`rank_order`); 0 on the one that
#   hosts the rendezvous;
# * ``PET_RDZV_ID``: a name of this attempt; ``PET_LOCAL_ADDR``: this machine's own address;
# * ``PET_NPROC_PER_NODE``: processes on each machine, instead of ``--processes``;
# * ``PET_MAX_RESTARTS``: how often processes are started again without leaving the machine;
# * ``PET_RDZV_CONF``: timeouts, as ``key=seconds,…``.
#
# Source: https://docs.pytorch.org/docs/stable/elastic/run.html

PORT = GANG["rendezvous_port"]
"""torchrun's default port of the rendezvous."""

TIMEOUTS: Mapping[str, int] = {
    "timeout": 600,
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 3,
}
"""Seconds. torchrun's own last call (30) and keep-alive (3 x 5) take 46 s to go on without a lost
machine, these take 12 s: measured with two machines and one killed. ``timeout`` is for the fewest
machines to come together: their images may have to be pulled."""

_NODES = re.compile(r"^(\d{1,5})(?::(\d{1,5}))?$")
_ENDPOINT = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?$")


@dataclass(frozen=True)
class Rendezvous:
    """Where and for how many machines.

    Attributes:
        least: the fewest machines that train.
        most: the most.
        processes: on each machine.
        endpoint: ``host:port`` of the store that the machine of rank 0 hosts.
        identity: names this attempt.
        index: of this machine: 0 hosts the store, and processes are ranked by it. None leaves the
            first to a look-up of names, and the second to addresses.
        address: of this machine, as the others reach it; None: by its host name.
        restarts: how often its processes are started again before the machine gives up.
        timeouts: seconds, as `TIMEOUTS`.
    """

    least: int
    most: int
    processes: int
    endpoint: str
    identity: str
    index: int | None = None
    address: str | None = None
    restarts: int = 0
    timeouts: Mapping[str, int] = field(default_factory=lambda: TIMEOUTS)

    @property
    def elastic(self) -> bool:
        """Whether the run goes on with fewer or more machines."""
        return self.least != self.most


def from_environment(environ: Mapping[str, str], processes: int) -> Rendezvous | None:
    """Return what ``environ`` says, or None where the run has this machine alone.

    Args:
        environ: the process's environment.
        processes: on each machine, unless ``PET_NPROC_PER_NODE`` says otherwise.

    Raises:
        WorkloadError: a variable can't be understood, or one is missing.
    """
    nodes = environ.get("PET_NNODES", "").strip()
    if not nodes:
        return None
    found = _NODES.match(nodes)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= least <= most:
        raise WorkloadError(
            f"PET_NNODES is {nodes!r}: allowed is a number of machines as 4, or the fewest and "
            "the most as 2:8"
        )
    index = _whole(environ, "PET_NODE_RANK", 0)
    if most == 1:
        return None
    return Rendezvous(
        least,
        most,
        _processes(environ, processes),
        _endpoint(environ),
        environ.get("PET_RDZV_ID", "").strip() or "training",
        index,
        environ.get("PET_LOCAL_ADDR", "").strip() or None,
        _whole(environ, "PET_MAX_RESTARTS", 0) or 0,
        _timeouts(environ.get("PET_RDZV_CONF", "")),
    )


def _processes(environ: Mapping[str, str], processes: int) -> int:
    if environ.get("PET_NPROC_PER_NODE", "").strip() in ("", "auto", "gpu", "cpu"):
        return processes
    return _whole(environ, "PET_NPROC_PER_NODE", 1) or processes


def _endpoint(environ: Mapping[str, str]) -> str:
    given = environ.get("PET_RDZV_ENDPOINT", "").strip()
    if not given and (host := environ.get("PET_MASTER_ADDR", "").strip()):
        given = f"{host}:{environ.get('PET_MASTER_PORT', '').strip() or PORT}"
    if not given:
        raise WorkloadError(
            "PET_NNODES asks for several machines, but neither PET_RDZV_ENDPOINT nor "
            "PET_MASTER_ADDR says where they meet; set PET_RDZV_ENDPOINT to host:port of the "
            "machine with PET_NODE_RANK 0"
        )
    found = _ENDPOINT.match(given)
    port = int(found[2] or PORT) if found else 0
    if not found or not 1 <= port <= 65535:
        raise WorkloadError(
            f"the rendezvous endpoint is {given!r}: allowed is host:port, with a port from 1 to "
            "65535 (PET_RDZV_ENDPOINT, or PET_MASTER_ADDR and PET_MASTER_PORT)"
        )
    return f"{found[1]}:{port}"


def _timeouts(text: str) -> Mapping[str, int]:
    values = dict(TIMEOUTS)
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, seconds = part.partition("=")
        if name.strip() not in TIMEOUTS or not seconds.strip().isdecimal():
            raise WorkloadError(
                f"PET_RDZV_CONF holds {part!r}: allowed are {', '.join(TIMEOUTS)}, each with "
                "whole seconds, as last_call_timeout=5,keep_alive_interval=2"
            )
        values[name.strip()] = int(seconds)
    return values


def _whole(environ: Mapping[str, str], name: str, least: int) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise WorkloadError(f"{name} is {text!r}: allowed is a whole number from {least}")
    return int(text)


GRACE = "FALAJ_GRACE_SECONDS"
"""Variable: seconds from SIGTERM until the scheduler kills; 30, as Kubernetes has it."""
#: Of one attempt to reach the rendezvous, and of each look at it later.
_READ_SECONDS = 60


class _Agent(LocalElasticAgent):
    """torchrun's agent, which doesn't start a program again that will fail again."""

    # torch's decorator has no types: pyright takes the method for something else.
    def _monitor_workers(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, worker_group: WorkerGroup
    ) -> RunResult:
        result = cast("Any", super())._monitor_workers(worker_group)
        if _codes(result) & PROGRAM:
            self._remaining_restarts = 0
        return result


def take_part(arguments: list[str], rendezvous: Rendezvous, stop: StopRequest) -> int:
    """Run ``python -m falaj.workloads.training arguments`` in this machine's processes.

    In a run of a fixed size a lost process ends the machine's part (status 74): whoever started
    the machines starts all of them again, from the last checkpoint. An elastic one meets again
    with whoever is left, at most ``rendezvous.restarts`` times; machines that join don't count.

    Args:
        arguments: the command line after the module's name.
        rendezvous: where the machines meet.
        stop: whether a stop was asked for before this.

    Returns:
        One of `falaj.workloads.errors`.

    Raises:
        WorkloadError: two machines of a run of a fixed size have one index; or ``--resume never``:
            each restart would throw the work away; or the network between machines needs more
            locked memory than they allow.
    """
    if _last_resume(arguments) == "never":
        raise WorkloadError(
            "--resume never is not for several machines: they are started again after each "
            "fault, and each time it would begin afresh; leave it out, or choose a new --output"
        )
    if stop.asked():
        return STOPPED
    require_locked_memory(os.environ)
    for name in ("multiprocessing.api", "agent.server.api", "rendezvous.dynamic_rendezvous"):
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _leave)  # while it waits for the others, too
    return meet(["-m", "falaj.workloads.training", *arguments], rendezvous)


def meet(words: list[str], rendezvous: Rendezvous) -> int:
    """Run ``python words`` in this machine's processes, with the other machines'.

    Args:
        words: what the interpreter is given.
        rendezvous: where the machines meet.

    Returns:
        One of `falaj.workloads.errors`.

    Raises:
        WorkloadError: two machines of a run of a fixed size have one index.
    """
    with tempfile.TemporaryDirectory(prefix="falaj-training-") as logs:
        try:
            return _meet(words, rendezvous, logs)
        except SignalException:
            return STOPPED
        except (RendezvousError, DistError) as error:
            return _lost(f"the machines at {rendezvous.endpoint} were lost ({error})")


def _meet(words: list[str], rendezvous: Rendezvous, logs: str) -> int:
    handler = OrderedRendezvous(
        _reach(rendezvous),
        rendezvous.index,
        rendezvous.address,
        unique=not rendezvous.elastic,
    )
    spec = WorkerSpec(
        role="trainer",
        local_world_size=rendezvous.processes,
        entrypoint=sys.executable,
        args=tuple(words),
        rdzv_handler=handler,
        max_restarts=rendezvous.restarts,
        monitor_interval=0.1,
        local_addr=rendezvous.address,
    )
    agent = _Agent(
        spec=spec,
        logs_specs=DefaultLogsSpecs(log_dir=logs),
        start_method="spawn",
        shutdown_timeout=grace(os.environ.get(GRACE)),
    )
    try:
        result = cast("Any", agent).run()
    finally:
        handler.fall_silent()
    codes = _codes(result)
    if codes - {0}:
        handler.shutdown()
        code = worst(codes)
        message = f"training processes ended with status {sorted(codes)}"
        return _lost(message) if codes == {LOST} else code
    return 0


def _reach(rendezvous: Rendezvous) -> RendezvousHandler:
    """Connect to the machine that hosts the rendezvous, which may start later than this one.

    Raises:
        RendezvousConnectionError: it didn't within the rendezvous' timeout.
    """
    configuration: dict[str, Any] = dict(rendezvous.timeouts)
    if rendezvous.index is not None:
        configuration["is_host"] = rendezvous.index == 0
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=rendezvous.endpoint,
        run_id=rendezvous.identity,
        min_nodes=rendezvous.least,
        max_nodes=rendezvous.most,
        local_addr=rendezvous.address,
        read_timeout=_READ_SECONDS,
        **configuration,
    )
    until = time.monotonic() + rendezvous.timeouts["timeout"]
    while True:
        try:
            return rendezvous_registry.get_rendezvous_handler(parameters)
        except RendezvousConnectionError:
            if time.monotonic() >= until:
                raise
            time.sleep(1.0)


def grace(text: str | None) -> int:
    """Seconds that the processes have for a checkpoint when the machine is asked to leave.

    Raises:
        WorkloadError: the variable holds no number of seconds.
    """
    if text is None or not text.strip():
        text = "30"
    if not text.strip().isdecimal() or not 1 <= int(text) <= 86_400:
        raise WorkloadError(f"{GRACE} is {text!r}: allowed are whole seconds from 1 to 86400")
    return max(1, int(text) - MARGIN_SECONDS)


def _lost(message: str) -> int:
    print(f"{message}; start the run again to go on from the last checkpoint", file=sys.stderr)
    sys.stderr.flush()
    time.sleep(CAUSE_FIRST_SECONDS)
    return LOST


def _codes(result: RunResult) -> set[int]:
    return {failure.exitcode for failure in result.failures.values()}


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SignalException(f"{signal.Signals(number).name} was received", signal.Signals(number))


def _last_resume(arguments: list[str]) -> str:
    found = "auto"
    for position, argument in enumerate(arguments):
        if argument == "--resume" and position + 1 < len(arguments):
            found = arguments[position + 1]
        elif argument.startswith("--resume="):
            found = argument.partition("=")[2]
    return found


_ATTEMPTS = 3
LOOPBACK_INTERFACE: Final = "lo0" if sys.platform == "darwin" else "lo"

_RANK = 2
"""Columns of the two matrices that stand for a gradient's (PowerSGD)."""
_HALVED = {
    "float16": default_hooks.fp16_compress_hook, "bfloat16": default_hooks.bf16_compress_hook,
}  # fmt: skip

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

    def wrap(self, module: nn.Module, compression: str = "none") -> nn.Module:
        """Return ``module`` with gradients that are averaged over the processes.

        Args:
            module: the same in all of them.
            compression: what gradients travel as, as `Parameters.compression`.
        """
        if self.processes == 1:
            return module
        # About the memory layout of one-channel kernels; of no weight at this size.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        ids = [self.device.index] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(module, device_ids=ids)
        if compression == "powersgd":
            # From the second step on: what is left out of one is added to the next.
            state = powersgd.PowerSGDState(
                process_group=None, matrix_approximation_rank=_RANK, start_powerSGD_iter=2
            )
            cast("Any", wrapped).register_comm_hook(state, powersgd.powerSGD_hook)
        elif compression != "none":
            cast("Any", wrapped).register_comm_hook(None, _HALVED[compression])
        return wrapped

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is set in any process; all must ask."""
        return self.any_of((flag,))[0]

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """Return of each of ``flags`` whether it is set in any process; all must ask."""
        if self.processes == 1:
            return list(flags)
        values = torch.tensor([int(each) for each in flags], device=self.device)
        distributed.all_reduce(values, op=distributed.ReduceOp.MAX)
        return [bool(each) for each in numbers_of(values)]

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of ``value`` over the processes; all must ask."""
        if self.processes > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def gather(self, value: Tensor) -> Tensor:
        """Return the processes' ``value`` (n,) as (processes, n), on the CPU; all must ask."""
        own = value.to(self.device)
        if self.processes == 1:
            return own[None].cpu()
        every = [torch.empty_like(own) for _ in range(self.processes)]
        distributed.all_gather(every, own)
        return torch.stack(every).cpu()

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

    def collect(self, data: bytes) -> list[bytes]:
        """Return every process's ``data``, in their order; all must ask."""
        if self.processes == 1:
            return [data]
        sizes = numbers_of(self.gather(torch.tensor([len(data)])).flatten())
        padded = torch.frombuffer(bytearray(data.ljust(max(*sizes, 1))), dtype=torch.uint8)
        every = self.gather(padded)
        return [each.numpy().tobytes()[:size] for each, size in zip(every, sizes, strict=True)]

    def send(self, data: bytes, rank: int) -> None:
        """Send ``data``, which isn't empty, to a process that calls `receive`."""
        distributed.send(torch.tensor([len(data)], device=self.device), dst=rank)
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        distributed.send(values.to(self.device), dst=rank)

    def receive(self, rank: int) -> bytes:
        """Return what a process sends to this one."""
        size = torch.zeros(1, dtype=torch.int64, device=self.device)
        distributed.recv(size, src=rank)
        values = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        distributed.recv(values, src=rank)
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
        The exit status: 0, 1, 2 or 75; 71 or 74 where processes were lost at each attempt.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.launcher.api import elastic_launch  # noqa: PLC0415

    # The agent's own account of a lost process is for its developers; ours follows below.
    for name in ("multiprocessing.api", "agent.server.api"):
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    # All are on this machine: a host name that doesn't resolve must not matter.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    terminate_when_orphaned(stop)
    command = ["-m", "falaj.workloads.training", *arguments]
    again = [*command, "--resume", "auto"]  # the last one counts: never must not lose an attempt
    codes: set[int] = set()
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
        if codes & PROGRAM:  # it has been explained; whoever started this decides what is next
            return worst(codes)
        if attempt < _ATTEMPTS:
            print(
                f"a training process was lost (exit status {sorted(codes)}); starting again from "
                f"the last checkpoint, attempt {attempt + 1} of {_ATTEMPTS}",
                file=sys.stderr,
            )
    # No refusal: on another machine it may go on.
    print(
        f"the training processes were lost {_ATTEMPTS} times; the last checkpoint is kept. Look "
        "for the reason (often too little memory), then run again, perhaps with fewer --processes",
        file=sys.stderr,
    )
    return worst(codes)


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
