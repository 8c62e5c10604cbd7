"""The tables that are shipped as JSON beside the code, each with its sources."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load(name: str) -> dict[str, Any]:
    """The table of that name, such as ``quotas``."""
    text = Path(__file__).with_name(f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
