"""Geo-redundancy under any key of a sku, in types that no table of copies knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    rule,
    spell,
    text,
    violation,
)
from falaj.policies.reading.walk import walk
from falaj.policies.rules.residency.azure_backups import cosmos_backup, database_backups, vaults
from falaj.policies.rules.residency.azure_places import geo_copies_stay, no_geo_copies
from falaj.policies.rules.residency.azure_redundancy import CONTROLS, REMEDIATION, storage

#: Types whose own rules judge their copies.
KNOWN: Final = storage.types | database_backups.types | vaults.types | cosmos_backup.types

# Standard_RAGRS and the like, GeoRedundant, GeoZone: as skus and settings of every service.
_GEO: Final = re.compile(
    r"(?:(?:standard|premium)(?:v2)?[_-])?(?:ra-?)?gz?rs"
    r"|(?:readaccess)?geo(?:zone)?(?:redundant)?(?:storage)?",
    re.IGNORECASE,
)
#: Keys (their last words) that say how storage is copied.
_COPYING: Final = re.compile(
    r"(?:sku|skuname|redundancy|replicationtype|storageaccounttype|storagetype|accounttype"
    r"|storageaccountskuname|storagesku)$",
    re.IGNORECASE,
)


@rule(
    "residency-azure-geo-redundancy",
    "No setting of any service asks for geo-redundant storage",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    REMEDIATION,
)
def geo_redundancy(resource: Resource, view: View) -> Iterator[Finding]:
    """Values such as Standard_GRS under any key of a sku, of types that no table knows."""
    module = resource.kind.rpartition(":")[0]
    # Migrate only calculates what storage would cost.
    if geo_copies_stay(view) or module == "azure-native:migrate" or resource.kind in KNOWN:
        return
    for leaf in walk(resource):
        name = "".join(leaf.keys[-2:]) if leaf.key in {"name", "value"} else leaf.key
        stem = re.sub(r"(?:name|value)$", "", name)
        if not _COPYING.search(stem):
            continue
        if _GEO.fullmatch(text(leaf.value)):
            yield violation(
                spell(leaf.path),
                f"{text(leaf.value)} copies to another region: {no_geo_copies(view)}",
            )


RULES: Final[tuple[Rule, ...]] = (geo_redundancy,)
