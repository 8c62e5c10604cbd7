"""Services of Azure that are in no region, each by what it does with data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.types import azure

#: How a location says that there is none; normalised.
GLOBAL: Final = frozenset(("global", "worldwide", "world"))


class Reach(Enum):
    """What a service without a region does with data."""

    EDGE = "edge"
    CONTROL_PLANE = "control_plane"
    HARMLESS = "harmless"


def _read() -> Mapping[str, tuple[Reach, str]]:
    file = Path(__file__).with_name("azure_global.yaml")
    document: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {
        token: (Reach(reach), str(each["reason"]))
        for reach, groups in document.items()
        for each in groups
        for token in azure(*each["types"])
    }


#: Every type that is classified, ``module:*`` for whole modules, with the reason.
CLASSIFIED: Final = _read()
EDGE: Final = frozenset(each for each, (reach, _) in CLASSIFIED.items() if reach is Reach.EDGE)
#: They are in a region unless their tier is Global: then every region that has a part of the load
#: balancer takes in what is sent (https://learn.microsoft.com/azure/load-balancer/cross-region-overview).
TIERED: Final = azure("network:LoadBalancer", "network:PublicIPAddress", "network:PublicIPPrefix")
#: Browsers for tests run in the region next to the client unless that is disabled
#: (https://learn.microsoft.com/azure/playwright-testing/how-to-optimize-regional-latency).
BROWSERS: Final = azure("azureplaywrightservice:Account", "loadtestservice:PlaywrightWorkspace")


@lru_cache(maxsize=4096)
def reach_of(kind: str) -> tuple[Reach, str] | None:
    """How a type without a region is classified, and why; None for all others."""
    return CLASSIFIED.get(kind) or CLASSIFIED.get(kind.rpartition(":")[0] + ":*")


def may_be_global(kind: str) -> bool:
    """Whether ``global`` is no finding of its own: it holds no data, or `edge` tells of it."""
    return reach_of(kind) is not None


@rule(
    "residency-azure-edge",
    "No service handles data at sites in other countries",
    Severity.CRITICAL,
    EDGE | TIERED | BROWSERS,
    ("health-data:13", "cbuae-outsourcing:6.1", "pdpl:22", "gdpr:44", "iso27001:A.5.23"),
    "Serve from the region itself: an Application Gateway with its firewall in front of "
    "applications, a storage account or a registry in the country for content, a hosted or "
    "regional service in the place of a global one.",
)
def edge(resource: Resource, view: View) -> Iterator[Finding]:
    """The presence of a service of the edge, or a setting that makes a regional one such."""
    del view
    if resource.kind in TIERED:
        yield from _unless(
            resource, "sku.tier", "Regional", "Regional", "it is reached through all regions"
        )
    elif resource.kind in BROWSERS:
        yield from _unless(
            resource, "regionalAffinity", "Disabled", "Enabled", "browsers run next to the client"
        )
    elif found := reach_of(resource.kind):
        yield violation("", f"{found[1]}; no setting of this type keeps data in the country")


def _unless(
    resource: Resource, path: str, wanted: str, default: str, otherwise: str
) -> Iterator[Finding]:
    given = resource.get(path)
    if is_unknown(given):
        yield indeterminate(path, f"it can't be seen, and must be {wanted}")
    elif (text(given) or default).lower() != wanted.lower():
        said = text(given) or f"not given, and so {default}"
        yield violation(path, f"it is {said}: {otherwise}; it must be {wanted}")


RULES: Final[tuple[Rule, ...]] = (edge,)
