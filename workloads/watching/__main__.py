"""Command line: ``python -m falaj.workloads.watching watch``."""

from __future__ import annotations

import sys

from falaj.workloads.watching.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
