"""Messages between a worker and its gRPC process, over a `Channel`.

A message is a number of bytes, a JSON object of so many bytes, and a body. What HTTP has as status
and headers stands in the object; the worker decides and the gRPC process translates.
"""

from __future__ import annotations

import ipaddress
import secrets
import struct
from typing import Any, Final

import orjson

SOCKET: Final = "grpc"
"""The name of the gRPC process's socket in the folder that its worker gives it."""

# worker to gRPC process
CONFIGURE: Final = 1
ANSWER: Final = 2
# gRPC process to worker
LISTENING: Final = 11
ADMIT: Final = 12
"""May this caller send a request? Asked before a message is read whose caller isn't known."""
CALL: Final = 13
CANCEL: Final = 14
LOST: Final = 15
"""A call ended without a message."""

_LENGTH: Final = struct.Struct("<I")


def new_name(address: str) -> str:
    """Return a name for a connection of this client's, which nobody can guess.

    It tells the gRPC process which connections are of one network, and nothing else of the client.
    """
    return f"falaj-{secrets.token_hex(16)}-{network_of(address)}"


def network_of(address: str) -> str:
    """Return what stands for all addresses that one client has as a rule.

    That is an address of IPv4, and of IPv6 the 64 bits that a host's network has in common
    (RFC 4291, 2.5.4), as one host takes as many of them as it likes.

    >>> network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    True
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "other"
    if isinstance(found, ipaddress.IPv4Address):
        return found.packed.hex()
    mapped = found.ipv4_mapped
    return mapped.packed.hex() if mapped is not None else found.packed[:8].hex()


def network_of_name(peer: str) -> str:
    """Return the network in what gRPC calls a connection with a name of `new_name`."""
    return peer.rpartition("-")[2]


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return one payload."""
    encoded = orjson.dumps(head)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, body))


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the object and the body of a payload that `pack` made."""
    (length,) = _LENGTH.unpack_from(payload)
    end = _LENGTH.size + length
    return orjson.loads(payload[_LENGTH.size : end]), payload[end:]
