"""Ranges of private addresses (RFC 1918)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from falaj.components.specification.refusals import Refusals

PRIVATE = tuple(
    ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)


def private_ranges(args: Mapping[str, Any], argument: str, refusals: Refusals) -> tuple[str, ...]:
    """An optional list of private IPv4 ranges; empty where it is absent."""
    if args.get(argument) is None:
        return ()
    given = refusals.texts(argument, args[argument])
    if not given:
        refusals.add(
            argument,
            args[argument],
            "at least one private range, or no such argument",
        )
    for position, text in enumerate(given):
        at = f"{argument}[{position}]"
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError as error:
            refusals.add(at, text, f"an IPv4 range such as 10.0.0.0/16 ({error})")
            continue
        if not any(network.subnet_of(private) for private in PRIVATE):
            allowed = ", ".join(map(str, PRIVATE))
            refusals.add(at, text, f"a range inside {allowed}", "nothing public is let in")
    return given
