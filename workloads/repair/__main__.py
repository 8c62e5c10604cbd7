"""Command line: ``python -m falaj.workloads.repair --settings FILE``."""

from __future__ import annotations

import sys

from falaj.workloads.repair.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
