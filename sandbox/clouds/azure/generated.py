"""Values that Azure would make up: the same in each run, and plainly not real."""

from __future__ import annotations

import hashlib
import uuid
from typing import Final

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000000"
"""Every id of the sandbox is in this subscription, which can't exist."""
TENANT: Final = "00000000-0000-0000-0000-00000000aaaa"
PRINCIPAL: Final = "00000000-0000-0000-0000-00000000bbbb"
"""The object id of who deploys."""
CLIENT: Final = "00000000-0000-0000-0000-00000000cccc"
MOMENT: Final = "2026-01-01T00:00:00Z"
"""When everything was made: outputs must not change from run to run."""

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:falaj:sandbox:azure")


def guid(*parts: str) -> str:
    """A GUID made from the parts; Azure's ids don't tell letter case apart, nor does this."""
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts).lower()))


def digest(length: int, *parts: str) -> str:
    """So many hexadecimal digits (at most 64) made from the parts."""
    return hashlib.sha256("\0".join(parts).lower().encode()).hexdigest()[:length]


def etag(*parts: str) -> str:
    """An entity tag in the form of Resource Manager's networks."""
    return f'W/"{guid("etag", *parts)}"'


def system_data() -> dict[str, str]:
    """Who made a resource, and when."""
    return {
        "createdAt": MOMENT,
        "createdBy": PRINCIPAL,
        "createdByType": "Application",
        "lastModifiedAt": MOMENT,
        "lastModifiedBy": PRINCIPAL,
        "lastModifiedByType": "Application",
    }
