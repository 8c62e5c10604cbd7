"""Command line: ``python -m workloads.federation coordinator`` and ``… site``."""

from __future__ import annotations

import sys

from workloads.federation.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
