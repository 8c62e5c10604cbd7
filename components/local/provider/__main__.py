"""Entry point of the plugin: ``python components/local/provider ENGINE_ADDRESS``."""

from __future__ import annotations

import asyncio
import atexit
import gc
import sys
from pathlib import Path

# Run as a folder, Python puts this folder first on the path, where our modules would hide others.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]

# As falaj.engine.short_lived does it, which components don't know.
gc.set_threshold(100_000, 20, 20)
atexit.register(gc.freeze)

from falaj.components.local.provider.resources import HANDLERS  # noqa: E402
from falaj.components.local.provider.servicer import serve  # noqa: E402


def main() -> int:
    """Serve the provider; the status is 2 when the engine's address is missing."""
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if not addresses:
        sys.stderr.write(
            "error: the engine's address is missing; this program is started by `pulumi`\n"
        )
        return 2
    asyncio.run(serve(addresses[-1], HANDLERS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
