"""Where Falaj keeps what belongs to a person: backend, passphrase and the stacks' folders."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """FALAJ_HOME, else the user's data folder."""
    if home := os.environ.get("FALAJ_HOME"):
        return Path(home).expanduser().resolve()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser().resolve() / "falaj"
