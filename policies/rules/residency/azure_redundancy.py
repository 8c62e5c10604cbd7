"""How storage and backups of Azure are copied: within the region, or to its pair.

The pair of UAE North is UAE Central, so a geo-redundant copy can stay in the country. It is a
choice all the same: allowed where the settings say ``geoRedundancy: paired`` and both regions are
allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    format_value,
    indeterminate,
    is_unknown,
    rule,
    scalar,
    select,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import geo_copies_stay, no_geo_copies

CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T3.5.1", "pdpl:22", "gdpr:44",
    "iso27001:A.8.13",
)  # fmt: skip
REMEDIATION: Final = (
    "Choose local or zone redundancy. Where copies in UAE Central are wanted, set geoRedundancy "
    "to paired and allow both regions of the country in the settings of the policies."
)


LOCAL_STORAGE: Final = (
    "Standard_LRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS", "PremiumV2_LRS",
    "PremiumV2_ZRS", "StandardV2_LRS", "StandardV2_ZRS",
)  # fmt: skip


@dataclass(frozen=True)
class Copies:
    """A property that says where copies of data are kept.

    Attributes:
        path: keys with dots.
        local: values that keep all copies within the region.
        default: what the service takes where nothing is given.
        source: where that default is documented.
        unless: a property and its value, in small letters, with which it has no such copies.
    """

    path: str
    local: tuple[str, ...]
    default: str
    source: str
    unless: tuple[str, str] = ("", "")

    def judge(self, resource: Resource, view: View) -> Iterator[Finding]:
        """Copies in another region that the settings don't allow, or that can't be seen."""
        path, value = self.unless
        if geo_copies_stay(view) or (path and scalar(resource.get(path)) == value):
            return
        found = list(select(resource.properties, self.path, absent=True)) or [(self.path, ABSENT)]
        local = {each.lower() for each in self.local}
        for path, value in found:
            if is_unknown(value):
                yield indeterminate(path, f"where copies are can't be seen; use {self.wanted}")
            elif value is ABSENT or value == "":
                if self.default.lower() not in local:
                    yield violation(
                        path,
                        f"it isn't given, and the default, {self.default}, copies to another "
                        f"region ({self.source}); it must be {self.wanted}: {no_geo_copies(view)}",
                    )
            elif scalar(value) not in local:
                yield violation(
                    path,
                    f"{format_value(value)} copies to another region; it must be "
                    f"{self.wanted}: {no_geo_copies(view)}",
                )

    @property
    def wanted(self) -> str:
        """The values that are fine, as a reason says them."""
        if self.local == LOCAL_STORAGE:
            return "one that ends in _LRS or _ZRS"
        return " or ".join(self.local)


def copies(
    id: str, title: str, table: dict[str, Sequence[Copies]], remediation: str = REMEDIATION
) -> Rule:
    """One rule over a table of types (as ``module:Type``) and what says where their copies are."""
    by_kind = {kind: found for name, found in table.items() for kind in azure(name)}

    @rule(id, title, Severity.CRITICAL, frozenset(by_kind), CONTROLS, remediation)
    def check(resource: Resource, view: View) -> Iterator[Finding]:
        for each in by_kind.get(resource.kind, ()):
            yield from each.judge(resource, view)

    return check


STORAGE: Final[dict[str, Sequence[Copies]]] = {
    "storage:StorageAccount": [
        Copies(
            "sku.name",
            LOCAL_STORAGE,
            "Standard_RAGRS",
            "https://learn.microsoft.com/cli/azure/storage/account",
        )
    ],
    "databricks:Workspace": [
        Copies(
            "parameters.storageAccountSkuName.value",
            LOCAL_STORAGE,
            "Standard_GRS",
            "https://learn.microsoft.com/azure/templates/microsoft.databricks/workspaces",
            # A serverless workspace has no account of its own.
            unless=("computeMode", "serverless"),
        )
    ],
    "machinelearningservices:Registry": [
        Copies(
            "registryProperties.regionDetails.storageAccountDetails.systemCreatedStorageAccount"
            ".storageAccountType",
            LOCAL_STORAGE,
            "Standard_LRS",
            "https://learn.microsoft.com/azure/machine-learning/how-to-manage-registries",
        ),
        Copies(
            "regionDetails.storageAccountDetails.systemCreatedStorageAccount.storageAccountType",
            LOCAL_STORAGE,
            "Standard_LRS",
            "https://learn.microsoft.com/azure/machine-learning/how-to-manage-registries",
        ),
    ],
    "fileshares:FileShare": [
        Copies(
            "properties.redundancy",
            ("Local", "Zone"),
            "Local",
            "https://learn.microsoft.com/azure/storage/files/files-redundancy",
        )
    ],
}

storage: Final = copies(
    "residency-azure-storage-redundancy",
    "Storage keeps its copies within the region",
    STORAGE,
)

RULES: Final[tuple[Rule, ...]] = (storage,)
