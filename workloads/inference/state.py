"""`state.json`: what the service is doing, for people and for the provider."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, write_json_atomic


class StateFile:
    """Writes the state atomically whenever it changes; a full disk is told once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: dict[str, Any] = {}
        self._told = False
        self._since = ""

    def write(
        self,
        *,
        port: int,
        status: str,
        model: str,
        version: int | None,
        workers: list[dict[str, Any]],
        error: str | None,
    ) -> None:
        """Write the state, unless nothing in it has changed."""
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "port": port,
            "status": status,
            "model": model,
            "version": version,
            "workers": workers,
            "error": error,
        }
        if facts == self._written:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._written.get("status") != status or self._written.get("version") != version:
            self._since = now
        try:
            make_private_folder(self.path.parent)
            write_json_atomic(self.path, facts | {"since": self._since, "updated": now})
        except WorkloadError as problem:
            if not self._told:
                self._told = True
                print(f"warning: {problem}; serving goes on", file=sys.stderr, flush=True)
            return
        self._told = False
        self._written = facts
