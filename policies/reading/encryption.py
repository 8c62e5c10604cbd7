"""What encrypts a resource's data at rest: for reports' maps of resources.

The tables are those of the pack's rules, so a map and a judgement never disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from falaj.policies.model import Context, Resource, Stack
from falaj.policies.rules.encryption.at_rest import AWS_READERS as AWS
from falaj.policies.rules.encryption.at_rest import CUSTOMER_KEYS_READERS as AZURE
from falaj.policies.rules.encryption.stores import Part, Readers, merged, parts_of

AtRest = Literal["customer key", "service key", "none", "not stored here", "unknown"]

#: Of several parts, the worst is what counts.
_WORST_FIRST: Final[tuple[AtRest, ...]] = ("none", "unknown", "service key", "customer key")


@dataclass(frozen=True)
class Encryption:
    """What encrypts a resource's data at rest."""

    at_rest: AtRest
    """The worst of what holds for its parts; ``not stored here`` where it keeps nothing, or is of
    a type that no table knows."""
    key: str = ""
    """The customer's key as the resource names it; empty where none is named or can be seen."""


@cache
def _readers() -> Readers:
    return merged(AWS, AZURE)


def encryption_of(resource: Resource, stack: Stack | None = None) -> Encryption:
    """What encrypts a resource's data at rest. Never raises.

    Args:
        resource: of any cloud.
        stack: to look up keys that aren't made yet, and companions such as a bucket's settings.
    """
    parts = list(parts_of(resource, Context(stack=stack), _readers()))
    if not parts:
        return Encryption("not stored here")
    worst = min(parts, key=_rank)
    return Encryption(worst.state, worst.key or next((each.key for each in parts if each.key), ""))


def _rank(part: Part) -> int:
    return _WORST_FIRST.index(part.state)
