"""Command line: ``python -m falaj.workloads.training dataset`` and ``… run``."""

from __future__ import annotations

import logging
import os
import sys

from falaj.workloads.training.command import main


def _end(status: int) -> None:
    """End the process without the interpreter's own clearing up.

    PyTorch's threads for connections to other processes may outlive their group; C++ then ends
    the process by SIGABRT, and a run that is finished and saved would count as a failed pod.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    done = main(sys.argv[1:])
    if "RANK" in os.environ:  # one of several processes, see `distributed.is_member`
        _end(done)
    sys.exit(done)
