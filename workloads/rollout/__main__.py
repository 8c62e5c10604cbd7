"""Command line: ``python -m falaj.workloads.rollout judge``."""

from __future__ import annotations

import sys

from falaj.workloads.rollout.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
