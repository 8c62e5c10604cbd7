"""Data Factory and Synapse: where copies run, and to whom a workspace may send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.components.catalogue.region_names import normalise_azure
from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.azure_targets import CONTROLS

_AUTO: Final = frozenset(("autoresolve", "autoresolveintegrationruntime", ""))


@rule(
    "residency-azure-integration-runtime",
    "Integration runtimes run in the country",
    Severity.CRITICAL,
    azure("datafactory:IntegrationRuntime", "synapse:IntegrationRuntime"),
    CONTROLS,
    "Set computeProperties.location to a location in the country: AutoResolve runs next to the "
    "sink of a copy, wherever that is.",
)
def runtime(resource: Resource, view: View) -> Iterator[Finding]:
    """Runtimes of Azure resolve their region by themselves unless one is given.

    https://learn.microsoft.com/azure/data-factory/concepts-integration-runtime#azure-ir-location
    """
    kind = resource.get("properties.type")
    if text(kind).lower() in {"selfhosted", "self-hosted"}:
        return
    path = "properties.typeProperties.computeProperties.location"
    if resource.get("properties.typeProperties") is ABSENT:
        path = "properties.computeProperties.location"
    place = resource.get(path)
    if is_unknown(place) or is_unknown(kind):
        where = path if is_unknown(place) else "properties.type"
        yield indeterminate(where, f"where it runs can't be seen; {where_allowed(view)}")
    elif normalise_azure(place) in _AUTO:
        given = text(place) or "not given, and so AutoResolve"
        yield violation(path, f"it is {given}, which is next to the sink; {where_allowed(view)}")
    elif normalise_azure(place) not in allowed(view):
        yield violation(path, f"the location is {text(place)!r}; {where_allowed(view)}")


#: Services that no runtime connects to.
_WITHOUT_RUNTIME: Final = frozenset(
    ("azurekeyvault", "azurebatch", "hdinsightondemand", "azuredatalakeanalytics")
)


@rule(
    "residency-azure-linked-service",
    "Services of a data factory are reached by a runtime of a known place",
    Severity.HIGH,
    azure("datafactory:LinkedService"),
    CONTROLS,
    "Name in connectVia an integration runtime whose location is in the country: without one the "
    "factory resolves the region by itself.",
)
def linked_service(resource: Resource, view: View) -> Iterator[Finding]:
    """Without `connectVia` it is AutoResolveIntegrationRuntime.

    https://learn.microsoft.com/azure/data-factory/concepts-integration-runtime
    """
    del view
    if text(resource.get("properties.type")).lower() in _WITHOUT_RUNTIME:
        return
    path = "properties.connectVia.referenceName"
    name = resource.get(path)
    if is_unknown(name):
        yield indeterminate(path, "which runtime connects to it can't be seen")
    elif text(name).lower() in _AUTO:
        given = text(name) or "not given, and so AutoResolveIntegrationRuntime"
        yield violation(path, f"it is {given}, which runs next to the sink of a copy")


@rule(
    "residency-azure-synapse-exfiltration",
    "Synapse sends data to approved tenants only",
    Severity.MEDIUM,
    azure("synapse:Workspace"),
    CONTROLS,
    "Set managedVirtualNetwork to default and managedVirtualNetworkSettings."
    "preventDataExfiltration to true. It can only be chosen when the workspace is made.",
)
def synapse(resource: Resource, view: View) -> Iterator[Finding]:
    """Off unless asked for.

    https://learn.microsoft.com/azure/synapse-analytics/security/workspace-data-exfiltration-protection
    """
    del view
    path = "managedVirtualNetworkSettings.preventDataExfiltration"
    prevented = resource.get(path)
    if is_unknown(prevented):
        yield indeterminate(path, "whether data may go to other tenants can't be seen")
    elif not is_true(prevented):
        given = "not given, and so false" if prevented is ABSENT else "false"
        yield violation(path, f"it is {given}: data may be sent to any tenant, wherever it is")


RULES: Final[tuple[Rule, ...]] = (runtime, linked_service, synapse)
