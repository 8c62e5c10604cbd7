"""How many of a type a region, or something in it, takes: AWS's documented default quotas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from falaj.sandbox.clouds.aws.regions import region_of
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Made, Problem, World

_FILE: Final = Path(__file__).parent / "data" / "quotas.json"
_ASK: Final = "or ask AWS for more and raise the figure in the sandbox's quotas.json"


@dataclass(frozen=True)
class Quota:
    """At most `limit` resources of a type in each region, account, or other resource."""

    name: str
    token: str
    limit: int
    per: str
    """``region``, ``account``, or the property whose value they share."""
    only: dict[str, str]
    """Values that a resource must have to count."""
    source: str
    hint: str
    """What else can be done where it is met."""


@cache
def quotas() -> tuple[Quota, ...]:
    """The table of `data/quotas.json`."""
    rows = json.loads(_FILE.read_text("utf-8"))["quotas"]
    return tuple(
        Quota(
            row["name"],
            row["token"],
            row["limit"],
            row["per"],
            row.get("only", {}),
            row["source"],
            row.get("hint", _ASK),
        )
        for row in rows
    )


def exceeded(inputs: Inputs, world: World) -> Iterator[Problem]:
    """The quotas that one more resource would exceed."""
    for quota in quotas():
        if quota.token != inputs.token:
            continue
        if any(inputs.get(path) != value for path, value in quota.only.items()):
            continue
        shared = inputs.get(quota.per) if quota.per not in ("region", "account") else None
        if quota.per not in ("region", "account") and not isinstance(shared, str):
            continue
        count = sum(1 for made in world.all(inputs.token) if _counts(made, quota, inputs, shared))
        if count >= quota.limit:
            where = {"region": region_of(inputs), "account": "the account"}.get(
                quota.per, str(shared)
            )
            yield Problem(
                quota.per if isinstance(shared, str) else "",
                f"{where} has {count} already, and the quota {quota.name!r} is {quota.limit}; "
                f"delete one, share one, {quota.hint}",
            )


def _counts(made: Made, quota: Quota, inputs: Inputs, shared: object) -> bool:
    if quota.per == "region" and made.region != region_of(inputs):
        return False
    values = made.outputs
    if isinstance(shared, str) and shared not in [
        value for _, value in Inputs(values).each(quota.per)
    ]:
        return False
    return all(
        value in [found for _, found in Inputs(values).each(path)]
        for path, value in quota.only.items()
    )
