"""List the installed packages of the Python that runs this file, as one JSON array on stdout.

Run as a script by the project's own interpreter: standard library only. Each entry: name, version,
requires (normalised names), plugin (the content of the package's pulumi-plugin.json, or null).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _plugin(distribution: importlib.metadata.Distribution, requires: list[str]) -> Any:
    """What the package says of its provider plugin, if it is a Pulumi SDK at all."""
    if "pulumi" not in requires:
        return None
    top = (distribution.read_text("top_level.txt") or "").split()
    for module in top or [_normal(distribution.name).replace("-", "_")]:
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            file = Path(folder) / "pulumi-plugin.json"
            if file.is_file():
                return json.loads(file.read_text(encoding="utf-8"))
    return None


def _entries() -> Iterator[dict[str, Any]]:
    for distribution in importlib.metadata.distributions():
        if not distribution.name:
            continue  # the remains of a broken installation
        matches = (re.match(r"[\w.-]+", text) for text in distribution.requires or [])
        requires = sorted({_normal(match.group()) for match in matches if match})
        yield {
            "name": distribution.name,
            "version": distribution.version,
            "requires": requires,
            "plugin": _plugin(distribution, requires),
        }


if __name__ == "__main__":
    del sys.path[0]  # this script's own folder
    json.dump(sorted(_entries(), key=lambda entry: str(entry["name"]).lower()), sys.stdout)
