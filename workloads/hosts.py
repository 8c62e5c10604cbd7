"""Where a host is, by what it is called: on this machine, or in one's own networks."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own: nothing leaves it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_private(host: str) -> bool:
    """Whether an address is of one's own networks; a name's addresses are judged each."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return address.is_private or address.is_loopback or address.is_link_local
