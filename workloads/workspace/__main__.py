"""``python -m falaj.workloads.workspace serve``."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from falaj.workloads.errors import WorkloadError
from falaj.workloads.workspace.idleness import Limits
from falaj.workloads.workspace.server import Settings, serve


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="falaj.workloads.workspace", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("serve", help="serve JupyterLab to one person until it ends")
    one.add_argument("--home", type=Path, required=True, help="the person's folder")
    one.add_argument("--runtime", type=Path, required=True, help="a folder in memory")
    one.add_argument("--host-name", required=True, help="the name in the certificate")
    one.add_argument("--port", type=int, required=True, help="port on the loopback interface")
    one.add_argument("--certificate", type=Path, required=True)
    one.add_argument("--private-key", type=Path, required=True)
    one.add_argument("--token-file", type=Path, required=True, help="the file with the token")
    one.add_argument("--idle-minutes", type=float, required=True, help="end it unused after these")
    one.add_argument("--hours", type=float, required=True, help="end it after these in any case")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        for name in ("idle_minutes", "hours"):
            value = getattr(options, name)
            if not (math.isfinite(value) and value > 0):
                raise WorkloadError(
                    f"--{name.replace('_', '-')}: given {value}; allowed: a number above 0"
                )
        limits = Limits(options.idle_minutes * 60, options.hours * 3600)
        settings = Settings(
            options.home.resolve(), options.runtime, options.host_name, options.port,
            options.certificate, options.private_key, options.token_file, limits,
        )  # fmt: skip
        return serve(settings)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
