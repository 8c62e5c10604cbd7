"""One machine of a run: joins it as `falaj.workloads.training` does, with a worker of the test."""

from __future__ import annotations

import os
import sys

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import distributed


def main(words: list[str]) -> int:
    """Run ``python words`` in this machine's processes; return their status."""
    rendezvous = distributed.from_environment(os.environ, 1)
    assert rendezvous is not None
    try:
        return distributed.meet(words, rendezvous)
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
