"""Runs trainings of several processes one after another, which are forked after one import.

Importing PyTorch takes a process longer than these trainings do. Reads a JSON list of runs from
the standard input, each with its number of ``processes`` and ``arguments``; writes a list of the
statuses that each run's processes ended with.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from falaj.workloads.training import command, compiling
from falaj.workloads.training import launcher as _launcher  # noqa: F401 - what the forks need
from falaj.workloads.training.divided import DividedOptimisation as _  # noqa: F401


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def nothing(_device: str) -> str:
    return ""


def one(rank: int, run: dict[str, object], port: int) -> int:
    count = str(run["processes"])
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": count, "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    said = open(os.path.join(str(run["said"]), f"{rank}.txt"), "w")  # noqa: SIM115, PTH123, PTH118
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    # The part of the compiler that needs neither minutes nor another compiler.
    compiling.BACKEND, compiling.lacking = "aot_eager", nothing
    return command.main([str(each) for each in run["arguments"]])  # type: ignore[union-attr]


def together(run: dict[str, object]) -> list[int]:
    port = free_port()
    Path(str(run["said"])).mkdir(parents=True, exist_ok=True)
    children: list[int] = []
    for rank in range(int(str(run["processes"]))):
        child = os.fork()
        if child == 0:
            status = 70
            try:
                status = one(rank, run, port)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    stop = run.get("stop_after")
    if stop:
        path = Path(str(run["said"])) / "0.txt"
        while not path.exists() or str(stop) not in path.read_text():
            time.sleep(0.05)
        os.kill(children[-1], int(getattr(signal, str(run["signal"]))))
    return [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children]


if __name__ == "__main__":
    print(json.dumps([together(each) for each in json.load(sys.stdin)]))
