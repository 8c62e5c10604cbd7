"""Ids of Azure Resource Manager, and the values that Azure would make up.

Made-up values are the same in each run, and plainly not real.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from falaj.sandbox.clouds.azure.kinds import PLACE, AzureKind
from falaj.sandbox.clouds.vendor import MADE_AT

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000000"
"""Every id of the sandbox is in this subscription, which can't exist."""
TENANT: Final = "00000000-0000-0000-0000-00000000aaaa"
PRINCIPAL: Final = "00000000-0000-0000-0000-00000000bbbb"
"""The object id of who deploys."""
CLIENT: Final = "00000000-0000-0000-0000-00000000cccc"

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
        "createdAt": MADE_AT,
        "createdBy": PRINCIPAL,
        "createdByType": "Application",
        "lastModifiedAt": MADE_AT,
        "lastModifiedBy": PRINCIPAL,
        "lastModifiedByType": "Application",
    }


# Resource ids: how they are built, read and compared.

ID: Final = re.compile(
    r"(?:/subscriptions/[^/]+(?:/resourceGroups/[^/]+)?|/providers/Microsoft\.Management/"
    r"managementGroups/[^/]+)?(?:/providers/[^/]+(?:/[^/]+/[^/]+)+)*",
    re.IGNORECASE,
)
"""What a resource id looks like."""

# What may stand in one segment; all else would be percent-encoded in the request's address.
_SEGMENT: Final = "()._-~!$&'*+,;=:@"


@dataclass(frozen=True)
class Reference:
    """An id, taken apart."""

    id: str
    subscription: str
    group: str | None
    type: str
    """Such as ``Microsoft.Network/virtualNetworks/subnets``; empty for a group or subscription."""
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last name."""
        return self.names[-1] if self.names else (self.group or self.subscription)

    @property
    def parent(self) -> str | None:
        """The id of the resource that this one is a child of; None at the top."""
        return self.id.rsplit("/", 2)[0] if len(self.names) > 1 else None

    @property
    def is_made_up(self) -> bool:
        """Whether it is in the sandbox's subscription."""
        return self.subscription == SUBSCRIPTION


def parse(id: str) -> Reference | None:
    """The parts of an id; None when it isn't the id of something in a subscription."""
    if not id.lower().startswith("/subscriptions/") or not ID.fullmatch(id):
        return None
    segments = id.split("/")
    group = segments[4] if len(segments) > 4 and segments[3].lower() == "resourcegroups" else None
    head, marker, below = id.rpartition("/providers/")
    if not marker:
        return Reference(id, segments[2], group, "", ())
    del head
    parts = below.split("/")
    return Reference(
        id, segments[2], group, "/".join([parts[0], *parts[1::2]]), tuple(parts[2::2])
    )


def group_id(group: str) -> str:
    """The id of a resource group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{segment(group)}"


def segment(name: str) -> str:
    """The name as it stands in an id."""
    return quote(name, safe=_SEGMENT) or "_"


def build(kind: AzureKind, values: Mapping[str, Any], fallback: str) -> str:
    """The id of a resource of that kind; `fallback` stands where a name isn't known yet."""

    def part(match: re.Match[str]) -> str:
        key = match[1]
        if key == "subscriptionId":
            return SUBSCRIPTION
        value = values.get(key)
        text = value if isinstance(value, str) and value else fallback
        if key in _PARTIAL:
            return _partial(key, value if isinstance(value, str) else "", fallback)
        return scope(text) if key in SCOPES else segment(text)

    path = _EMPTY.sub("/", PLACE.sub(part, kind.path))
    if not kind.is_in_group:
        return path
    group = values.get("resourceGroupName")
    text = group if isinstance(group, str) and group else fallback
    return f"{group_id(text)}/providers/{path}"


def _partial(key: str, text: str, fallback: str) -> str:
    steps = [segment(step) for step in text.split("/") if step]
    if key == "parentResourcePath":
        # Types and names take turns: an odd number of steps can't be a path.
        return "/".join(steps) if len(steps) % 2 == 0 else ""
    return steps[0] if steps else segment(fallback)


_EMPTY: Final = re.compile(r"/{2,}")
_PARTIAL: Final = frozenset({"parentResourcePath", "resourceType", "resourceProviderNamespace"})
"""Inputs that hold a part of the path itself; the first of them may be empty."""
SCOPES: Final = frozenset({"scope", "resourceUri", "scopeId"})
"""Inputs that hold a whole id, of what an extension resource belongs to."""


def scope(text: str) -> str:
    """A scope as the beginning of an id: one slash before it, none behind."""
    segments = [segment(part) for part in text.split("/") if part]
    return "/" + "/".join(segments) if segments else f"/subscriptions/{SUBSCRIPTION}"


def same(one: str, other: str) -> bool:
    """Whether two ids mean the same resource: letter case doesn't count."""
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def is_below(id: str, above: str) -> bool:
    """Whether `id` is `above` or stands below it."""
    one, top = id.lower(), above.rstrip("/").lower()
    return one == top or one.startswith(top + "/")
