"""A worker that meets the others by gloo and tells who has which rank, once a round."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

from torch import distributed

from falaj.workloads.errors import LOST

#: ``prctl(PR_SET_PDEATHSIG, …)``, linux/prctl.h: what a machine runs ends with it.
_PARENT_DEATH = 1


def main(folder: Path, rounds: int) -> None:
    """Write ``[completion index, local rank, rank]`` of every process into a file each round.

    Args:
        folder: where process 0 writes ``<processes>-<round>.json``.
        rounds: how many; 0 for as long as the folder has no file ``end``.
    """
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    distributed.init_process_group("gloo")
    mine = [int(os.environ["PET_NODE_RANK"]), int(os.environ["LOCAL_RANK"])]
    size = distributed.get_world_size()
    count = 0
    while not rounds or count < rounds:
        told: list[list[int] | None] = [None] * size
        distributed.all_gather_object(told, [*mine, distributed.get_rank()])
        if distributed.get_rank() == 0:
            path = folder / f"{size}-{count}.json"
            path.with_suffix(".new").write_text(json.dumps(told), encoding="utf-8")
            path.with_suffix(".new").rename(path)
        count += 1
        ending = [(folder / "end").exists()]
        distributed.broadcast_object_list(ending, src=0)
        if ending[0]:
            break
        time.sleep(0.1)
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except RuntimeError as error:  # as falaj.workloads.training says it
        print(error, file=sys.stderr)
        sys.exit(LOST)
