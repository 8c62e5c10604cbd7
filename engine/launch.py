"""Run plain `pulumi` with everything that it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from falaj.engine.backend import clear_stale_locks, ensure_backend
from falaj.engine.errors import EngineError
from falaj.engine.files import cache_home
from falaj.engine.guard import guarded
from falaj.engine.install import Engine, ensure_engine
from falaj.engine.launchers import PYTHON_VARIABLE
from falaj.engine.progress import Report, to_stderr


def additions(engine: Engine, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What plain `pulumi` needs beside the variables `environ` (ours); none is a secret."""
    base = os.environ if environ is None else environ
    own = Path(sys.prefix) / "bin"
    before = [str(folder) for folder in [own, *engine.bin_dirs]]
    after = [part for part in base.get("PATH", os.defpath).split(os.pathsep) if part not in before]
    found = {
        "PATH": os.pathsep.join([*before, *after]),
        PYTHON_VARIABLE: sys.executable,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        **ensure_backend(base),
    }
    if engine.source != "installed" and "PULUMI_HOME" not in base:
        # Who has no Pulumi of their own gets no ~/.pulumi either: what an engine of ours keeps
        # beside the state (plugins, selections) can be made again.
        found["PULUMI_HOME"] = str(cache_home(base) / "pulumi")
    return found


def environment(
    report: Report = to_stderr,
    engine: Engine | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All variables for running plain `pulumi`: `environ` (ours), and what it needs.

    Makes the backend on first use, and gets an engine unless `engine` is one. Raises EngineError.
    """
    base = os.environ if environ is None else environ
    return {**base, **additions(engine or ensure_engine(report), base)}


def run(
    args: Sequence[str],
    cwd: Path | str | None = None,
    report: Report = to_stderr,
    engine: Engine | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    output: IO[bytes] | None = None,
    meanwhile: Callable[[], None] | None = None,
    interrupted: Callable[[], None] | None = None,
) -> int:
    """Run `pulumi` with `args` in `cwd` and return its exit code (128 + n when signal n ended it).

    Gets an engine unless `engine` is one, and runs it with the variables `environ` where they are
    given (as `environment` makes them), else with ours and what it needs; clears the locks that
    killed engines left. The engine stops in order (cancelling what it does) on Ctrl-C, which
    reaches it from the terminal, and when we get SIGTERM or SIGHUP or are killed.

    With `output` what it prints goes to that file, and it asks and draws nothing. `meanwhile` is
    called every 0.1 s while it runs, and once after it; `interrupted` when it is asked to stop.
    Raises EngineError when there is no engine or it cannot be started.
    """
    engine = engine or ensure_engine(report)
    env = environment(report, engine) if environ is None else dict(environ)
    clear_stale_locks(env.get("PULUMI_BACKEND_URL", ""), report)
    before = {number: signal.getsignal(number) for number in _HANDED_ON}
    try:
        # Until the engine runs there is nobody to hand a signal on to; ignored signals would be
        # inherited, handlers are not.
        process = subprocess.Popen(
            guarded([str(engine.path), *args]),
            cwd=cwd,
            env=env,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        )
    except OSError as error:
        raise EngineError(f"{engine.path} cannot be started: {error.strerror}") from error

    def hand_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:  # the terminal has sent it to the engine as well
            process.send_signal(signal.SIGTERM)
        if interrupted is not None:
            interrupted()

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    try:
        code = _wait(process, meanwhile)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen[bytes], meanwhile: Callable[[], None] | None) -> int:
    if meanwhile is None:
        return process.wait()
    while True:
        try:
            code = process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            meanwhile()
        else:
            meanwhile()
            return code


_POLL_SECONDS = 0.1
_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
