"""`python -m falaj.engine ensure | env | doctor`: the engine and what it needs."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from types import FrameType

from falaj.engine import doctor
from falaj.engine.errors import EngineError
from falaj.engine.install import ensure_engine
from falaj.engine.launch import additions


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 1 the doctor found something, 2 it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m falaj.engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ensure = commands.add_parser("ensure", help="have a Pulumi engine, getting one if need be")
    ensure.add_argument("--json", action="store_true", help="print the engine as one JSON object")
    commands.add_parser("env", help="print shell exports with which plain `pulumi` works")
    commands.add_parser("doctor", help="say what is there, what is not, and what to do")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    try:
        if given.command == "doctor":
            return doctor.main()
        engine = ensure_engine()
        if given.command == "env":
            for name, value in additions(engine).items():
                print(f"export {name}={shlex.quote(value)}")
        elif given.json:
            fields = vars(engine) | {
                "path": str(engine.path),
                "bin_dirs": [str(folder) for folder in engine.bin_dirs],
            }
            print(json.dumps(fields))
        else:
            print(
                f"pulumi {engine.version} ({engine.source}) at {engine.path}, "
                f"Python language host: {engine.language_host}"
            )
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing half-finished is left behind", file=sys.stderr)
        return 130
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM takes the same way out as Ctrl-C: everything temporary is removed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
