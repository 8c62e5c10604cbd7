"""Progress of a run on stdout: one JSON object, or one plain line, per event."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any


class Progress:
    """Prints events until the reader goes away.

    Args:
        style: ``json`` or ``text``.
        enabled: False in all but the first process of a run.
        on_lost: called once when nobody reads any more.
    """

    def __init__(self, style: str, enabled: bool, on_lost: Callable[[], None]) -> None:
        self._style = style
        self._enabled = enabled
        self._on_lost = on_lost

    def emit(self, event: str, message: str, **fields: Any) -> None:
        """Print one event at once.

        Args:
            event: start, resume, epoch, stopped or finished.
            message: the same in words.
            fields: what a program wants to know; numbers that are not finite become null.
        """
        if not self._enabled:
            return
        if self._style == "json":
            said = {key: finite_or_none(value) for key, value in fields.items()}
            line = json.dumps({"event": event, **said, "message": message}, ensure_ascii=False)
        else:
            line = message
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, ValueError):
            self._enabled = False
            # The interpreter flushes stdout once more when it ends: let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._on_lost()


def duration(seconds: float) -> str:
    """Return ``seconds`` for people: ``42 s`` or ``3 min 05 s``."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def finite_or_none(value: Any) -> Any:
    """Return ``value``, or None for a number that JSON has no word for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
