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


def _fields(distribution: importlib.metadata.Distribution) -> tuple[str, str, list[str]]:
    """Its name, version and requirements; an empty name where the installation is broken.

    The properties of `distribution` parse the whole text, description and all, as a mail, anew for
    each of them: of an environment of 280 packages that took half a second.
    """
    # Where there is no folder for it, it is one file: the last.
    names = ("METADATA", "PKG-INFO", "")
    text = next((read for name in names if (read := distribution.read_text(name))), "")
    found: dict[str, list[str]] = {"name": [], "version": [], "requires-dist": []}
    for line in text.partition("\n\n")[0].splitlines():
        field, _, value = line.partition(":")
        if (field := field.lower()) in found:
            found[field].append(value.strip())
    name, version = ("".join(found[field][:1]) for field in ("name", "version"))
    requirements = found["requires-dist"]
    if not requirements and distribution.read_text("requires.txt"):
        # Installed by setuptools and from no wheel, which writes them there in a form of its own.
        requirements = distribution.requires or []
    return name, version, requirements


def _plugin(distribution: importlib.metadata.Distribution, name: str, requires: list[str]) -> Any:
    """What the package says of its provider plugin, if it is a Pulumi SDK at all."""
    if "pulumi" not in requires:
        return None
    top = (distribution.read_text("top_level.txt") or "").split()
    for module in top or [_normal(name).replace("-", "_")]:
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            file = Path(folder) / "pulumi-plugin.json"
            if file.is_file():
                return json.loads(file.read_text(encoding="utf-8"))
    return None


def _entries() -> Iterator[dict[str, Any]]:
    for distribution in importlib.metadata.distributions():
        name, version, requirements = _fields(distribution)
        if not name:
            continue  # the remains of a broken installation
        matches = (re.match(r"[\w.-]+", text) for text in requirements)
        requires = sorted({_normal(match.group()) for match in matches if match})
        yield {
            "name": name,
            "version": version,
            "requires": requires,
            "plugin": _plugin(distribution, name, requires),
        }


if __name__ == "__main__":
    del sys.path[0]  # this script's own folder
    json.dump(sorted(_entries(), key=lambda entry: str(entry["name"]).lower()), sys.stdout)
