"""Reads the catalogue's JSON files; numbers with a fraction arrive as exact decimals."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

_PACKAGE = "falaj.components.catalogue.data"

REGION_FILES = ("aws_me_central_1", "azure_uaenorth", "azure_uaecentral")
"""Files that describe a region each, in the order in which places are listed."""


@cache
def load(name: str) -> dict[str, Any]:
    """Content of ``data/<name>.json``; read once, never to be changed by the caller."""
    text = resources.files(_PACKAGE).joinpath(f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)
