"""Manifests in YAML as the API server's own reader takes them."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from falaj.engine.errors import EngineError

# YAML 1.1 as Go's reader has it (sigs.k8s.io/yaml): no dates, no numbers in base 60, and `=` is a
# text, all of which stand in definitions of well-known charts.
_SCALARS: Final = (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
     "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
     r"|\.(nan|NaN|NAN)", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
)  # fmt: skip


class _Loader(yaml.CSafeLoader):
    """Reads the plain values above, and takes everything else for texts."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_pattern})$"),
        ["" if each == "\0" else each for each in _first],
    )


def _int(loader: Any, node: Any) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    digits = text.lstrip("+-")
    if digits.startswith("0o"):
        return int(text.replace("0o", "", 1), 8)
    if len(digits) > 1 and digits.isdigit() and digits.startswith("0"):
        return int(text, 8)
    return int(text, 0)


def _float(loader: Any, node: Any) -> float:
    return float(str(loader.construct_scalar(node)).replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def read_manifests(text: str, where: str) -> list[dict[str, Any]]:
    """The objects of a text with any number of documents; lists are taken apart.

    Raises:
        EngineError: it is no YAML, or something in it is no object with a type and a name.
    """
    try:
        documents = list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EngineError(f"{where} is no YAML that can be read: {error}") from error
    return [each for document in documents for each in expanded(document, where)]


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """One mapping, such as a chart's values; empty for an empty text. Raises EngineError."""
    try:
        found = yaml.load(text, _Loader)  # noqa: S506 - derives from the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EngineError(f"{where} is no YAML that can be read: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise EngineError(f"{where}: expected a mapping, given {type(found).__name__}")
    return found


def expanded(document: Any, where: str) -> list[dict[str, Any]]:
    """The objects of a document: none, one, or those of a list. Raises EngineError."""
    if not document:
        return []
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        raise EngineError(f"{where}: {_short(document)} has no apiVersion and kind")
    if kind.endswith("List") and isinstance(document.get("items"), list):
        return [one for each in document["items"] for one in expanded(each, where)]
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise EngineError(f"{where}: {_short(document)} has no metadata.name")
    return [document]


def _short(document: Any) -> str:
    text = str(document)
    return text if len(text) <= 100 else f"{text[:97]}…"
