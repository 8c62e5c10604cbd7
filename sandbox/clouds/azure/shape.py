"""What the installed SDK says of a type's properties, read from its source.

The SDK's modules take up to a second each to import; the names are read without that.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_GETTER: Final = re.compile(
    r"@pulumi\.getter(?:\(name=\"(\w+)\"\))?\n    def (\w+)\(self\)(?: -> (.+))?:"
)
_VERSION: Final = re.compile(r"Uses Azure REST API version ([\w-]+)\.")
_TOKEN: Final = re.compile(r"^azure-native:(\w+):(\w+)$")


@dataclass(frozen=True)
class Shape:
    """The property names of a type."""

    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]
    api_version: str


@cache
def shape(token: str) -> Shape | None:
    """The shape of a type; None when the installed SDK has no such type."""
    source = _source(token)
    if source is None:
        return None
    arguments, _, resource = source.partition("@pulumi.type_token(")
    inputs: set[str] = set()
    required: set[str] = set()
    for wire_name, name, kind in _GETTER.findall(arguments):
        inputs.add(wire_name or name)
        if kind and not kind.startswith("pulumi.Input[Optional["):
            required.add(wire_name or name)
    outputs = {wire_name or name for wire_name, name, _ in _GETTER.findall(resource)}
    version = _VERSION.search(resource)
    return Shape(
        frozenset(inputs),
        frozenset(required),
        frozenset(outputs),
        version[1] if version else "",
    )


@cache
def _folder() -> Path | None:
    found = importlib.util.find_spec("pulumi_azure_native")
    return Path(found.origin).parent if found and found.origin else None


@cache
def _classes(module: str) -> dict[str, Path]:
    folder = _folder()
    files: dict[str, Path] = {}
    if folder is None or not (folder / module).is_dir():
        return files
    for file in sorted((folder / module).glob("*.py")):
        if file.name.startswith("_") or file.name == "outputs.py":
            continue
        # The list of what a module exports stands in its first lines: the class is the last.
        with file.open(encoding="utf-8") as text:
            head = text.read(2000)
        exported = re.search(r"__all__ = \[([^\]]*)\]", head)
        for name in re.findall(r"'(\w+)'", exported[1]) if exported else ():
            files.setdefault(name, file)
    return files


def _source(token: str) -> str | None:
    matched = _TOKEN.match(token)
    if not matched:
        return None
    module, name = matched.groups()
    file = _classes(module).get(name)
    text = file.read_text("utf-8") if file else ""
    return text if f'@pulumi.type_token("{token}")' in text else None
