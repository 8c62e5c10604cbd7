"""Command line: ``python -m falaj.workloads.federation coordinator`` and ``… site``."""

from __future__ import annotations

import sys

from falaj.workloads.federation.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
