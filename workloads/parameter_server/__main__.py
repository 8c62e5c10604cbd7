"""Command line: ``python -m falaj.workloads.parameter_server server`` and ``… worker``."""

from __future__ import annotations

import sys

from falaj.workloads.parameter_server.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
