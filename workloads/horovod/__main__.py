"""Command line: ``python -m falaj.workloads.horovod run`` and ``… pack``."""

from __future__ import annotations

import sys

from falaj.workloads.horovod.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
