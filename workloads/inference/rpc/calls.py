"""Messages between a worker and its gRPC process, over a `Channel`.

A message is a number of bytes, a JSON object of so many bytes, and a body. What HTTP has as status
and headers stands in the object; the worker decides and the gRPC process translates.
"""

from __future__ import annotations

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


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return one payload."""
    said = orjson.dumps(head)
    return b"".join((_LENGTH.pack(len(said)), said, body))


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the object and the body of a payload that `pack` made."""
    (length,) = _LENGTH.unpack_from(payload)
    end = _LENGTH.size + length
    return orjson.loads(payload[_LENGTH.size : end]), payload[end:]
