"""Checks of single values that several services share, and of those from a fixed set."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from falaj.sandbox.clouds.azure import kinds, naming, regions
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Rule, listed
from falaj.sandbox.clouds.model import Problem

Range: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

GUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def address_range(text: str) -> Range | None:
    """The range of a CIDR block; None when it isn't one or has host bits set."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def cidr(path: str, text: str) -> Iterator[Problem]:
    """A problem when the text isn't a CIDR block whose host bits are zero."""
    if address_range(text) is not None:
        return
    hint = "a block such as 10.0.0.0/16"
    with contextlib.suppress(ValueError):
        hint = f"did you mean {ipaddress.ip_network(text, strict=False)}?"
    yield Problem(path, f"{text!r} isn't a valid CIDR block (host bits must be zero): {hint}")


def address(path: str, text: str | None) -> Iterator[Problem]:
    """A problem when there is a text that isn't an IP address."""
    if text is None:
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield Problem(path, f"{text!r} isn't an IP address")


def guid(path: str, text: str | None) -> Iterator[Problem]:
    """A problem when there is a text that isn't a GUID."""
    if text is not None and not GUID.fullmatch(text):
        yield Problem(path, f"{text!r} isn't a GUID such as 12345678-1234-1234-1234-123456789abc")


def resource_id(path: str, text: str | None, *types: str) -> Iterator[Problem]:
    """A problem when there is a text that isn't the id of a resource of one of the types."""
    if text is None:
        return
    found = naming.parse(text)
    allowed = " or ".join(types) or "a resource"
    if found is None:
        yield Problem(
            path,
            f"{text!r} isn't a resource id; give the id of {allowed}, which looks like "
            "/subscriptions/…/resourceGroups/…/providers/…",
        )
    elif types and found.type.lower() not in {item.lower() for item in types}:
        yield Problem(path, f"this is the id of {found.type or 'a scope'}; give one of {allowed}")


_MINUTES: Final = re.compile(r"PT(\d+)M|PT(\d+)H(?:(\d+)M)?")


def minutes(duration: str) -> int | None:
    """The minutes of a duration such as ``PT5M`` or ``PT1H30M``; None for any other text."""
    matched = _MINUTES.fullmatch(duration)
    if matched is None:
        return None
    return int(matched[1]) if matched[1] else int(matched[2]) * 60 + int(matched[3] or 0)


def one_of(path: str, text: str | None, allowed: Iterable[str]) -> Iterator[Problem]:
    """A problem when there is a text that is not one of the allowed; `spelling` comes before."""
    if text is not None:
        yield from listed(path, text, tuple(allowed))


def location(kind: AzureKind | None, inputs: Inputs) -> Iterator[Problem]:
    """Problems of the resource's location and zones."""
    given = inputs.optional_string("location")
    allowed = kind.location if kind else "any"
    if given is None:
        return
    region = regions.normalise(given)
    if region == regions.GLOBAL:
        if allowed == "region":
            yield Problem(
                "location", "'global' isn't allowed here: name a region such as uaenorth"
            )
        return
    if allowed == "global":
        yield Problem("location", f"{given!r} isn't allowed: this type is 'global' only")
    elif not regions.is_known(given):
        near = regions.nearest(given)
        hint = f"did you mean {near}?" if near else "name a region such as uaenorth"
        yield Problem("location", f"{given!r} isn't a region of Azure: {hint}")


def zones(path: str, inputs: Inputs) -> Iterator[Problem]:
    """Problems of a list of availability zones."""
    items = inputs.strings(path)
    for where, zone in items:
        yield from one_of(where, zone, ("1", "2", "3"))
    if len({zone for _, zone in items}) < len(items):
        yield Problem(path, "names a zone twice; name each zone once")
    region = regions.region_of(inputs)
    if items and region and regions.has_zones(region) is False:
        yield Problem(
            path,
            f"{regions.display_name(region)} has no availability zones; leave the zones out",
        )


def zones_of(path: str) -> Rule:
    """A list of availability zones that the region has."""
    return lambda inputs: zones(path, inputs)


def tags(limit: int, inputs: Inputs) -> Iterator[Problem]:
    """Problems of tags.

    Source: learn.microsoft.com, azure-resource-manager/management/tag-resources (limitations).
    """
    names = inputs.keys("tags")
    if len(names) > limit:
        yield Problem("tags", f"{len(names)} tags are given; at most {limit} are allowed")
    if len({name.lower() for name in names}) < len(names):
        yield Problem("tags", "two names differ in letter case only; Azure takes them for one tag")
    for name in names:
        where = f'tags["{name}"]'
        if not 1 <= len(name) <= 512:
            yield Problem(where, f"the name has {len(name)} characters; allowed are 1 to 512")
        if any(sign in name for sign in "<>%&\\?/"):
            yield Problem(where, "the name has one of <>%&\\?/, which tags can't; leave it out")
        values = inputs.at("tags")
        value = values.get(name) if values else None
        if isinstance(value, str) and len(value) > 256:
            yield Problem(where, f"the value has {len(value)} characters; at most 256 are allowed")


# Enumerations: a reviewed table of fixed sets where the SDK's types take any text.


def _table() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = kinds.load_table("enums")["types"]
    return found


def enumerated_paths(token: str) -> dict[str, list[str]]:
    """Each path of the type that takes one of a list, with the list."""
    return _table().get(token, {})


def enumerated_tokens() -> list[str]:
    """The types that the table speaks of."""
    return list(_table())


def enumerations(kind: AzureKind, inputs: Inputs) -> Iterator[Problem]:
    """A problem for each value that isn't in its list."""
    for path, allowed in enumerated_paths(kind.token).items():
        for where in _expand(inputs, path):
            yield from one_of(where, inputs.optional_string(where), allowed)


def _expand(inputs: Inputs, path: str) -> Iterator[str]:
    head, marker, rest = path.partition("[*]")
    if not marker:
        yield path
        return
    for where, _ in inputs.items(head):
        yield from _expand(inputs, where + rest)
