"""Command line: ``python -m falaj.workloads.training dataset`` and ``… run``."""

from __future__ import annotations

import sys

from falaj.workloads.training.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
