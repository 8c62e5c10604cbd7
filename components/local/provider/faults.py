"""Where internal errors are written down."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_LOG_NAME: Final = "provider.log"
_LOG_LIMIT: Final = 1 << 20


def record_fault(site: Path | None, trace: str) -> str:
    """Append a trace to the site's log and return where it went; at most one MiB is kept.

    Without a site folder (before it is made, after it is removed) the trace goes to the standard
    error output, which the engine keeps in its own log.
    """
    entry = f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{trace}\n"
    if site is None or not site.is_dir():
        sys.stderr.write(entry)
        return "the engine's log (run with --logtostderr -v=9)"
    path = site / _LOG_NAME
    try:
        if path.exists() and path.stat().st_size > _LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        with path.open("a", encoding="utf-8") as log:
            log.write(entry)
    except OSError:
        sys.stderr.write(entry)
        return "the engine's log (run with --logtostderr -v=9)"
    return str(path)
