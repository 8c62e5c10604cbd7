"""Run one Pulumi program inside its own Python: `execute.py JSON`.

The language host starts this file as a script with the interpreter of the project, which has the
Pulumi SDK but not necessarily this package. Configuration arrives in PULUMI_CONFIG, as the SDK
wants it. Exit codes: 0 done; REPORTED when the reason was already shown; else the program's own.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import logging
import os
import runpy
import sys
import traceback
from types import TracebackType
from typing import Any

REPORTED = 32
"""The program failed, and the person has been told why: nothing is to be added."""


def main() -> int:
    """Run the program that the first argument describes; return the exit code."""
    # As in falaj.engine.short_lived, which the program's interpreter may not have: most of what
    # programs load is the SDKs' classes, and looking through them for garbage takes a third of
    # the time.
    gc.set_threshold(1_000_000, 20, 20)
    atexit.register(gc.freeze)
    spec: dict[str, Any] = json.loads(sys.argv[1])
    del sys.path[0]  # this script's own folder: its modules must not hide the program's
    try:
        import pulumi  # noqa: PLC0415  may be missing, which deserves more than a trace
        import pulumi.runtime  # noqa: PLC0415  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        print(
            f"error: the Pulumi SDK cannot be imported by {sys.executable}: {error}\n"
            "Install it there, for example with `pulumi install`.",
            file=sys.stderr,
        )
        return REPORTED
    _configure(pulumi, spec)
    sys.argv = [spec["program"], *spec["args"]]
    os.chdir(spec["pwd"])
    # When a deployment fails, futures stay unawaited by design; asyncio's complaints about that
    # tell a person nothing.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return _run(pulumi, loop, spec["program"])
    finally:
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()


def _configure(pulumi: Any, spec: dict[str, Any]) -> None:
    runtime = pulumi.runtime
    runtime.set_all_config(runtime.get_config_env(), runtime.get_config_secret_keys_env())
    runtime.configure(
        runtime.Settings(
            project=spec["project"],
            stack=spec["stack"],
            parallel=spec["parallel"],
            dry_run=spec["dry_run"],
            monitor=spec["monitor"],
            engine=spec["engine"],
            organization=spec["organization"],
            root_directory=spec["root"],
        )
    )


def _run(pulumi: Any, loop: asyncio.AbstractEventLoop, program: str) -> int:
    try:
        loop.run_until_complete(
            pulumi.runtime.run_in_stack(lambda: _begin(program)),
        )
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return REPORTED
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        pulumi.log.error(str(leave.code))
        return REPORTED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        pulumi.log.error("Program failed with an unhandled exception:\n" + _trace(error))
        return REPORTED
    return 0


def _begin(program: str) -> asyncio.Task[None]:
    """Run the program; what is returned is done when all that it asked of the engine has begun.

    The SDK waits for calls first, each in its turn, and then for outputs: for all of them anew
    whenever one is there. Without a turn of the loop in between, no call has begun yet, and of a
    program of 276 resources it waited 190 times for 2,000 outputs at a time: a sixth of its time.
    """
    _start(program)
    return asyncio.ensure_future(asyncio.sleep(0))


def _start(program: str) -> None:
    runpy.run_path(program, run_name="__main__")


def _trace(error: BaseException) -> str:
    """The trace from the program's first line on, without the machinery that led to it."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_frame.f_code is not _start.__code__:
        frame = frame.tb_next
    while frame is not None and _is_machinery(frame):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__))


def _is_machinery(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>")


if __name__ == "__main__":
    sys.exit(main())
