"""Command line: ``python -m falaj.workloads.restoring rehearse``."""

from __future__ import annotations

import sys

from falaj.workloads.restoring.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
