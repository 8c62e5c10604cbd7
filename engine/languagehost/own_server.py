"""Run one policy pack that answers the engine itself: `own_server.py PACK ADDRESS [FLAG …]`.

The language host starts this file as a script with the interpreter of the pack, which need not
have this package: standard library only.
"""

from __future__ import annotations

import atexit
import gc
import runpy
import sys

if __name__ == "__main__":
    # As falaj.engine.short_lived does it.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    del sys.path[0]  # this script's own folder: its modules must not hide the pack's
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
