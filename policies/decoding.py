"""The engine's values as rules see them: secrets opened, unknowns marked, assets by their name.

What a program, a preview or an exported state writes carries mappings with a signature for
secrets, outputs, assets and references (`falaj.wire`). Unlike a provider, a rule has to see all of
it: what no provider could use is read as far as it goes, and hidden otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from falaj.policies.model.errors import PolicyError
from falaj.policies.model.values import REDACTED, UNKNOWN
from falaj.wire import (
    ARCHIVE,
    ASSET,
    OUTPUT_VALUE,
    REFERENCE,
    SECRET,
    SIGNATURE,
    UNKNOWN_TEXTS,
)

#: What `pulumi policy analyze` and `pulumi stack export` write for a secret that stays closed.
_CLOSED: Final = "[secret]"
#: Levels of properties within each other. The deepest schemas of Kubernetes have about 40; deeper
#: than this, Python could not walk through.
DEEPEST: Final = 150
_LONE_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def plain(value: Any, depth: int = 0) -> Any:
    """A value of JSON as rules see it; what can't be read is `REDACTED`.

    Raises:
        PolicyError: it is nested deeper than `DEEPEST` levels. To hide what is below would let it
            pass.
    """
    require_depth(depth)
    if isinstance(value, str):
        if value in UNKNOWN_TEXTS:
            return UNKNOWN
        return REDACTED if value == _CLOSED else readable(value)
    if isinstance(value, list):
        return [plain(each, depth + 1) for each in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        found = cast("Mapping[str, Any]", value)
        return _signed(found, depth) if SIGNATURE in found else plain_mapping(found, depth)
    return value


def plain_mapping(value: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The properties of a resource as rules see them; what providers keep for themselves goes.

    Raises PolicyError as `plain` does.
    """
    return {
        readable(key): plain(each, depth + 1)
        for key, each in value.items()
        if key not in ("__defaults", "__meta")
    }


def require_depth(depth: int) -> None:
    """Raise PolicyError where values are nested deeper than can be walked through."""
    if depth > DEEPEST:
        raise PolicyError(
            f"properties are nested deeper than {DEEPEST} levels, so they can't be judged"
        )


def readable(text: str) -> str:
    """A text that can be written as UTF-8: half characters, which JSON allows, are replaced."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def _signed(value: Mapping[str, Any], depth: int) -> Any:
    kind = value[SIGNATURE]
    if kind == SECRET:
        if "value" in value:
            return plain(value["value"], depth + 1)
        return _opened(value.get("plaintext"), depth)
    if kind == OUTPUT_VALUE:
        return plain(value["value"], depth + 1) if "value" in value else UNKNOWN
    if kind in (ASSET, ARCHIVE):
        # A file's text may hold anything; its name is what rules can judge.
        given = value.get("text") or value.get("path") or value.get("uri")
        return plain(given, depth + 1) if given else REDACTED
    if kind == REFERENCE:
        return plain(value.get("id") or value.get("urn"), depth + 1)
    return REDACTED


def _opened(text: object, depth: int) -> Any:
    """A secret of a state that was exported with `--show-secrets`: JSON in a text."""
    if not isinstance(text, str):
        return REDACTED
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return REDACTED
    return plain(found, depth + 1)
