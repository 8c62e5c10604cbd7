"""Which keys of properties name a region, a zone or a location."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

Kind = Literal["region", "zone", "location", ""]

_WORD: Final = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|\d+")
#: Words after the one that counts: ``regionName``, ``regionLists``, ``zoneIds``.
_TAIL: Final = frozenset(("name", "names", "id", "ids", "list", "lists", "code", "codes", "value"))
_KINDS: Final[dict[str, Kind]] = {
    "region": "region", "regions": "region", "zone": "zone", "zones": "zone", "az": "zone",
    "azs": "zone", "location": "location", "locations": "location",
}  # fmt: skip
#: Switches, which are true or false (``multiRegion``, ``allRegions``), and parts of addresses of
#: people (``stateOrRegion``).
_OTHERWISE: Final = frozenset(("multi", "cross", "all", "global", "or", "and"))
#: Keys whose meaning the one above them gives: ``regions[].name``, ``{name: REGION, value: …}``.
_BELOW: Final = frozenset((
    "name", "id", "value", "values", "default", "defaultvalue", "parametervalue", "allowedvalues",
))  # fmt: skip


#: Last words of keys whose text calls something by a name that its owner chose.
_CALLS: Final = frozenset((
    "name", "names", "id", "ids", "identifier", "identifiers", "prefix", "prefixes", "suffix",
    "suffixes", "alias", "aliases", "bucket", "buckets", "sid",
))  # fmt: skip


@lru_cache(maxsize=8192)
def calls_something(key: str) -> bool:
    """Whether a key holds a name of one's own: a bucket may be called after any region.

    >>> calls_something("setIdentifier"), calls_something("TARGET")
    (True, False)
    """
    words = _WORD.findall(key)
    return bool(words) and words[-1].lower() in _CALLS


@lru_cache(maxsize=8192)
def kind_of_key(key: str) -> Kind:
    """What a key by itself names; empty for any other key.

    >>> kind_of_key("destinationRegion"), kind_of_key("AWS_REGION"), kind_of_key("multiRegion")
    ('region', 'region', '')
    """
    words = [each.lower() for each in _WORD.findall(key)]
    while len(words) > 1 and words[-1] in _TAIL:
        words.pop()
    if not words or (len(words) > 1 and words[-2] in _OTHERWISE):
        return ""
    # DNS zones are zones of names.
    if words[-1].startswith("zone") and len(words) > 1 and words[-2] in {"hosted", "dns"}:
        return ""
    return _KINDS.get(words[-1], "")


def kind_named(keys: tuple[str, ...]) -> Kind:
    """What a value's keys name: the nearest, or the one above where that only says ``name``."""
    if not keys:
        return ""
    found = kind_of_key(keys[-1])
    if not found and len(keys) > 1 and keys[-1].lower() in _BELOW:
        return kind_of_key(keys[-2])
    return found
