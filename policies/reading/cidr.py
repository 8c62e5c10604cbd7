"""Addresses as people write them: whether a range, a prefix or a tag stands for the world."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from falaj.policies.model import text

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Words for every address there is: Azure's prefixes and tags, other tools' spellings.
_WORLD_WORDS: Final = frozenset(("*", "any", "internet", "all", "<nw>/0", "0/0", "/0"))
#: Nobody but a registry of addresses holds more of IPv4 than a /8: whoever writes less means the
#: world, or much of it.
_LARGE_V4: Final = 7
#: The largest blocks that operators hold of IPv6 are a /19 or smaller
#: (https://www.iana.org/assignments/ipv6-unicast-address-assignments).
_LARGE_V6: Final = 15
#: A list of ranges that has this much of IPv4 in all is open as well.
_MUCH_V4: Final = 2**30
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(each)
    for each in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8",
        "169.254.0.0/16", "224.0.0.0/3", "fc00::/7", "fe80::/10", "ff00::/8",
    )
)  # fmt: skip
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_OCTETS: Final = re.compile(r"(\d{1,10})\.(\d{1,10})\.(\d{1,10})\.(\d{1,10})")
_SEPARATORS: Final = re.compile(r"[\s,;]+")
_RANGE: Final = re.compile(r"([0-9A-Fa-f.:]+)\s*-\s*([0-9A-Fa-f.:]+)")


def network(value: object) -> Network | None:
    """The network that a text names, as clouds read it: host bits are dropped, zeros may lead.

    A netmask may stand for the prefix; an address alone is itself. None for anything else.
    """
    said, slash, prefix = text(value).strip("[]").partition("/")
    said = _OCTETS.sub(lambda found: ".".join(str(int(each)) for each in found.groups()), said)
    prefix = prefix.strip()
    if prefix.isascii() and prefix.isdigit():
        prefix = prefix.lstrip("0") or "0"
    try:
        found = ipaddress.ip_network(f"{said.strip()}{slash}{prefix}", strict=False)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Network) and found.subnet_of(_MAPPED):
        inner = ipaddress.IPv4Address(int(found.network_address) & 0xFFFFFFFF)
        return ipaddress.IPv4Network((inner, found.prefixlen - 96))
    return found


def is_open(value: object) -> bool:
    """Whether a text stands for the world, or for a large part of its public addresses.

    ``0.0.0.0/0``, ``::/0`` and their other spellings, ``0.0.0.0`` and ``::`` alone, ``*``,
    ``Any``, ``Internet``; prefixes of public IPv4 shorter than /8 and of IPv6 shorter than /16;
    a range from-to; any of these in a list with commas. Private ranges are not open, nor is what
    isn't a text.
    """
    given = text(value)
    if between := _RANGE.fullmatch(given):
        return is_range_open(between[1], between[2])
    parts = [each for each in _SEPARATORS.split(given) if each]
    return any(_is_open(each) for each in parts) or (len(parts) > 1 and are_open(parts))


def _is_open(given: str) -> bool:
    if given.lower() in _WORLD_WORDS or given in {"0.0.0.0", "::", "0::", "0::0"}:  # noqa: S104
        return True
    found = network(given)
    if found is None:
        return False
    large = _LARGE_V4 if found.version == 4 else _LARGE_V6
    return found.prefixlen <= large and not _is_within(found)


def _is_within(found: Network) -> bool:
    """Whether nothing of it is public."""
    return any(
        isinstance(found, ipaddress.IPv4Network) == isinstance(each, ipaddress.IPv4Network)
        and each.prefixlen <= found.prefixlen
        and found.network_address in each
        for each in _NOT_PUBLIC
    )


def are_open(values: Iterable[object]) -> bool:
    """Whether a list stands for the world: one of it does, or all together are much of it.

    ``0.0.0.0/1`` with ``128.0.0.0/1``, or the world cut into many pieces: from a quarter of IPv4.
    """
    pieces: list[ipaddress.IPv4Network] = []
    for value in values:
        if is_open(value):
            return True
        found = network(value)
        if isinstance(found, ipaddress.IPv4Network) and not _is_within(found):
            pieces.append(found)
    size = sum(each.num_addresses for each in ipaddress.collapse_addresses(pieces))
    return size >= _MUCH_V4


def is_range_open(first: object, last: object) -> bool:
    """Whether the addresses from one to another (both included) are the world, or much of it."""
    low, high = _address(first), _address(last)
    if low is None or high is None or low.version != high.version or int(low) > int(high):
        return False
    size = int(high) - int(low) + 1
    if low.version == 6:
        return size >= 2 ** (128 - _LARGE_V6)
    private = [each for each in _NOT_PUBLIC if isinstance(each, ipaddress.IPv4Network)]
    if any(low in each and high in each for each in private):
        return False
    return size >= 2 ** (32 - _LARGE_V4)


def _address(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    found = network(text(value).partition("/")[0])
    return found.network_address if found is not None else None
