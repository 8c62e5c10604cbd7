"""A worker that tells which rank it was given, and reaches the store that it would meet others by.

It imports no torch, for which each process needs seconds.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path


def main(folder: Path) -> None:
    """Write ``[completion index, local rank, rank]`` of every process, as `roll_call` does.

    Args:
        folder: where process 0 writes ``<processes>-0.json`` when the others have told theirs.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    socket.create_connection(place, timeout=30).close()
    mine = [int(os.environ["PET_NODE_RANK"]), int(os.environ["LOCAL_RANK"]), rank]
    publish(folder / f"rank-{rank}.json", mine)
    if rank:
        return
    paths = [folder / f"rank-{each}.json" for each in range(size)]
    until = time.monotonic() + 30
    while not all(path.exists() for path in paths) and time.monotonic() < until:
        time.sleep(0.05)
    publish(folder / f"{size}-0.json", [json.loads(path.read_text()) for path in paths])


def publish(path: Path, told: object) -> None:
    """Write it whole or not at all."""
    path.with_suffix(".new").write_text(json.dumps(told), encoding="utf-8")
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
