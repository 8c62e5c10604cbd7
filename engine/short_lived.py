"""Memory of processes that live for seconds.

``python -m falaj.engine.short_lived MODULE [ARGUMENT …]`` runs a module as
``python -m MODULE`` does, and collects rarely from before its first import on.
"""

from __future__ import annotations

import atexit
import gc
import runpy
import sys

_ALLOCATIONS = 100_000
"""Containers made until Python looks for cycles of garbage, where its default is 700. The classes
of one cloud's SDK are several hundred thousand of them, none garbage: looking through them, at
each turn and once more at exit, was 2 of the 5.6 s of a program of 90 resources."""


def collect_rarely() -> None:
    """Look for cycles of garbage seldom, and not at all when the process ends."""
    gc.set_threshold(_ALLOCATIONS, 20, 20)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    collect_rarely()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
