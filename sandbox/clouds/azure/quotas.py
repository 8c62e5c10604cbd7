"""Limits of a subscription, from a table with its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from falaj.sandbox.clouds.azure import arm, data, existing, results
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Resource
from falaj.sandbox.clouds.model import Problem


@dataclass(frozen=True)
class Quota:
    """How many resources of a type may exist."""

    most: int
    per: str
    """``subscription``, ``region`` or ``parent``."""
    source: str


@cache
def table() -> dict[str, Quota]:
    """The limits by the type's token."""
    return {
        token: Quota(int(row["most"]), str(row["per"]), str(row["source"]))
        for token, row in data.load("quotas")["types"].items()
    }


def check(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    """A problem when one more of the type would exceed its limit."""
    quota = table().get(kind.token)
    if quota is None:
        return
    exists = list(existing.of_type(resource.world, kind.arm_type))
    if quota.per == "parent":
        parent = resource.id.rsplit("/", 2)[0]
        exists = [made for made in exists if arm.is_below(made.id, parent)]
    elif quota.per == "region":
        region = results.location(resource)
        exists = [made for made in exists if existing.region_of(made) == region]
    if len(exists) >= quota.most:
        yield Problem(
            "",
            f"there are {len(exists)} of these in this {quota.per} already, and Azure allows "
            f"{quota.most} ({quota.source}); remove one or resource Azure for more",
        )
