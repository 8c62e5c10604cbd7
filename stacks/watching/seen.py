"""What ``falaj status`` says of a stack's watch: read from its file, without what it acts with."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from falaj.wire.documents import is_mapping
from falaj.workloads.watching.memory import MEMORY

FOLDER: Final = "watch"
"""Of a watch, below the stack's folder."""
FURTHER: Final = "models"
"""Of what it remembers of further models, by their names, below its own."""


def seen(site: Path, model: str | None = None) -> tuple[str, str, str] | None:
    """The line on a stack's watch for ``falaj status``; None where it never had one.

    Args:
        site: the stack's folder on this machine.
        model: a further one, which the server has. Default: the first.
    """
    what = "watch" if model is None else f"watch of {model}"
    path = (site / FOLDER if model is None else site / FOLDER / FURTHER / model) / MEMORY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        last, looked, process = found.get("last"), found.get("looked"), found.get("process")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError):
        return (what, "unknown", f"{path} can't be read")
    runs = isinstance(process, int) and _is_watch(process)
    text = f"last look {_ago(looked)}" if isinstance(looked, int | float) else "no look yet"
    if is_mapping(drifted := found.get("told")):
        text += f"; drifted: {', '.join(map(str, drifted.get('names') or ()))}"
    if is_mapping(last):
        text += f"; last {last.get('step')} {_ago(last.get('time', 0))}: {last.get('outcome')}"
    if runs:
        return (what, "watching", f"process {process}, {text}")
    return (what, "not running", text)


def _is_watch(process: int) -> bool:
    with suppress(psutil.Error):
        return "watch" in psutil.Process(process).cmdline()
    return False


def _ago(moment: float) -> str:
    passed = max(0.0, time.time() - moment)
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if passed >= 2 * seconds:
            return f"{passed / seconds:.0f} {unit} ago"
    return f"{passed:.0f} s ago"
