"""One machine's part of a run on several: its processes, and what becomes of lost ones."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from types import FrameType
from typing import Any

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousError

from falaj.workloads.errors import WorkloadError
from falaj.workloads.statuses import LOST, PROGRAM, STOPPED, worst
from falaj.workloads.training.rendezvous import Rendezvous
from falaj.workloads.training.stopping import StopRequest

GRACE = "FALAJ_GRACE_SECONDS"
"""Variable: seconds from SIGTERM until the scheduler kills; 30, as Kubernetes has it."""
_MARGIN_SECONDS = 5
#: Machines that only lost their peers wait before they say so: whoever knows the cause is to be
#: seen first by a scheduler that judges the run by its first failure.
_CAUSE_FIRST_SECONDS = 10.0
#: Of one attempt to reach the rendezvous, and of each look at it later.
_READ_SECONDS = 60


class _Agent(LocalElasticAgent):
    """torchrun's agent, which doesn't start a program again that will fail again."""

    # torch's decorator has no types: pyright takes the method for something else.
    def _monitor_workers(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, worker_group: WorkerGroup
    ) -> RunResult:
        result: Any = super()._monitor_workers(worker_group)  # pyright: ignore[reportCallIssue]
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
        One of `falaj.workloads.statuses`.

    Raises:
        WorkloadError: ``--resume never``: each restart would throw the work away.
    """
    if _last_resume(arguments) == "never":
        raise WorkloadError(
            "--resume never is not for several machines: they are started again after each "
            "fault, and each time it would begin afresh; leave it out, or choose a new --output"
        )
    if stop.asked():
        return STOPPED
    for name in ("multiprocessing.api", "agent.server.api", "rendezvous.dynamic_rendezvous"):
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _leave)  # while it waits for the others, too
    with tempfile.TemporaryDirectory(prefix="falaj-training-") as logs:
        try:
            return _meet(arguments, rendezvous, logs)
        except SignalException:
            return STOPPED
        except (RendezvousError, DistError) as error:
            return _lost(f"the machines at {rendezvous.endpoint} were lost ({error})")


def _meet(arguments: list[str], rendezvous: Rendezvous, logs: str) -> int:
    handler = _reach(rendezvous)
    spec = WorkerSpec(
        role="trainer",
        local_world_size=rendezvous.processes,
        entrypoint=sys.executable,
        args=("-m", "falaj.workloads.training", *arguments),
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
    result: Any = agent.run()
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
    if rendezvous.hosts is not None:
        configuration["is_host"] = rendezvous.hosts
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
    return max(1, int(text) - _MARGIN_SECONDS)


def _lost(message: str) -> int:
    print(f"{message}; start the run again to go on from the last checkpoint", file=sys.stderr)
    sys.stderr.flush()
    time.sleep(_CAUSE_FIRST_SECONDS)
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
