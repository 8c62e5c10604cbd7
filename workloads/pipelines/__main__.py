"""Command line: ``python -m falaj.workloads.pipelines start``."""

from __future__ import annotations

import sys

from falaj.workloads.pipelines.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
