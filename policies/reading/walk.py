"""Goes through all of a resource's properties, past what only names and describes.

What is left out says nothing about where data goes: tags and labels, names and descriptions;
filters (event patterns, metric dimensions, dashboards); what a document forbids (``"Effect":
"Deny"``, ``NotIn``) and the conditions of a permission, which can only narrow it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from falaj.policies.model import Path, Resource, is_list, text
from falaj.policies.model.resource import remembered

#: Whole branches that only mark, describe or filter; in small letters without ``-`` and ``_``.
_MARKS: Final = frozenset((
    "dimensions", "dimension", "costfilters", "filterexpression", "dashboardbody",
    "dashboardproperties", "eventpattern", "filterpattern", "filterpolicy", "managedfields",
    "filtercriteria", "filtercriterias", "findingcriteria", "tagfilters", "tagspecifications",
    "tagset",
))  # fmt: skip
#: Single texts that only name or describe.
_DESCRIBES: Final = frozenset((
    "description", "comment", "comments", "displayname", "title", "summary", "notes", "message",
    "longdescription", "alarmdescription", "documentation", "label", "instructions",
))  # fmt: skip
_NAMES: Final = ("name", "key", "parameterKey", "Name", "Key", "ParameterKey")
#: Ends of keys whose branches mark: ``tagsAll`` as well as ``recoveryPointTags``.
_MARKING: Final = ("tags", "tagsall", "labels")
#: Types whose key and value are a mark of something else.
_MARK_TYPES: Final = ("/tag:Tag", "/resourceTag:ResourceTag", "/defaultTags:DefaultTags")
#: Names of tags by which others are chosen: ``tag:Region``, ``aws:ResourceTag/Region``.
_CHOOSES: Final = re.compile(r"(?i)^tag:|Tag/")
_VALUES: Final = frozenset(("value", "values", "parametervalue"))
_KEEPS_OUT: Final = re.compile(
    r"exclu|denied|deny|disallow|blocked|forbid|prohibit", re.IGNORECASE
)
#: A document longer than this is no configuration.
_LONGEST: Final = 1_000_000


@dataclass(frozen=True)
class Leaf:
    """One value of a resource's properties, or of a JSON document within one."""

    path: Path
    """Of the property; that of the whole text for what stands in a document."""
    keys: tuple[str, ...]
    """Keys down to it, those within a document included; without places in lists."""
    value: Any

    @property
    def key(self) -> str:
        """The nearest key; empty where there is none."""
        return self.keys[-1] if self.keys else ""


@remembered(size=8)
def walk(resource: Resource) -> tuple[Leaf, ...]:
    """Every value that may say where something is or goes; unknowns included."""
    if resource.kind.endswith(_MARK_TYPES):
        return ()
    return tuple(_walk(resource.properties, (), ()))


def _plain(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


def _walk(value: Any, path: Path | None, keys: tuple[str, ...], at: Path = ()) -> Iterator[Leaf]:
    """Below a value; without a path of its own in a document, which stands at `at`."""
    if isinstance(value, Mapping):
        forbids = _forbids(value)
        # Lists of settings: {"name": "AWS_REGION", "value": …}.
        named = next((text(value[key]) for key in _NAMES if text(value.get(key))), "")
        narrows = any(_plain(str(key)) == "effect" for key in value)
        for key, each in value.items():
            name = str(key)
            plain = _plain(name)
            if plain in _MARKS or plain.endswith(_MARKING):
                continue
            if _KEEPS_OUT.search(name) or (forbids and plain != "effect"):
                continue
            if plain in _DESCRIBES and isinstance(each, str):
                continue
            if narrows and plain in {"condition", "conditions"}:
                continue
            if plain in _VALUES and _CHOOSES.search(named):
                continue
            below = (*keys, named, name) if named and plain in _VALUES else (*keys, name)
            yield from _walk(each, None if path is None else (*path, name), below, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _walk(each, None if path is None else (*path, index), keys, at)
    else:
        here = at if path is None else path
        yield Leaf(here, keys, value)
        if (document := _document(value)) is not None:
            yield from _walk(document, None, keys, here)


def _forbids(value: Mapping[Any, Any]) -> bool:
    for key, each in value.items():
        if _plain(str(key)) in {"effect", "operator"}:
            return text(each).lower() in {"deny", "notin", "doesnotexist"}
    return False


def _document(value: object) -> Any:
    """What a text of JSON holds; None for other texts."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    return _parsed(value) if value.lstrip()[:1] in {"{", "["} else None


@lru_cache(maxsize=512)
def _parsed(value: str) -> Any:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping | list) else None


def is_document(value: object) -> bool:
    """Whether a text is JSON, whose parts `walk` yields by themselves."""
    return _document(value) is not None


_ENCODED: Final = re.compile(r"(?i)userdata|base64|customdata")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]{24,}={0,2}\s*")


def decoded(leaf: Leaf) -> str:
    """A text, and what it holds where it is user data in base64; empty for what is no text."""
    if not isinstance(leaf.value, str):
        return ""
    given: str = leaf.value
    if _ENCODED.search(leaf.key) and _BASE64.fullmatch(given):
        try:
            return base64.b64decode(given, validate=False).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return given
    return given
