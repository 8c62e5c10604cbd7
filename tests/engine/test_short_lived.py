"""Memory of processes that live for seconds."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, gc
from falaj.engine.short_lived import collect_rarely
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 1000, "objects", len(gc.get_objects()) < 100))
before = gc.get_threshold()[0]
collect_rarely()
gc.collect()
kept = [[] for _ in range(20_000)]
print("seldom", gc.get_threshold()[0] > 10 * before, "still", gc.isenabled(), gc.get_count()[0] > 10_000)
"""  # noqa: E501


def test_garbage_is_looked_for_seldom_and_not_at_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["seldom True still True True", "frozen True objects True"]


def test_cycles_are_still_found() -> None:
    program = (
        "import gc, weakref\n"
        "from falaj.engine.short_lived import collect_rarely\ncollect_rarely()\n"
        "class A: pass\n"
        "found = []\n"
        "for _ in range(700_000):\n"
        "    one = A(); one.itself = one; found.append(weakref.ref(one))\n"
        "print(sum(each() is None for each in found) > 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True\n"
