"""Command line: ``python -m falaj.workloads.batch``."""

from __future__ import annotations

import sys

from falaj.workloads.batch.command import main

if __name__ == "__main__":
    sys.exit(main())
