"""Addresses between this computer and control planes with real machines, stated once.

A control plane with real machines has a network of its own (:mod:`falaj.engine.controlplane`), to
which one pair of virtual interfaces leads: who makes it and who asks whether an address is such a
one's both read this.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

import psutil

RANGE: Final = ipaddress.ip_network("10.251.0.0/20")
"""Four addresses of it for each control plane: on this computer they are seen."""
INTERFACE: Final = "fj-"
"""Beginning of the names of this computer's interfaces to them."""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this computer's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_here(host: str) -> bool:
    """Whether what is sent there stays on this computer, in a control plane of it as well."""
    return is_loopback(host) or leads_to(host)


def leads_to(host: str) -> bool:
    """Whether an address is a control plane's of this computer: by an uplink that ends here."""
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        return False
    return wanted in RANGE and any(
        wanted in ipaddress.ip_network(f"{each.address}/{each.netmask}", strict=False)
        for name, found in psutil.net_if_addrs().items()
        for each in found
        if name.startswith(INTERFACE) and each.family == socket.AF_INET
    )
