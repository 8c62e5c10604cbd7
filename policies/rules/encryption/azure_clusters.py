"""Azure: services of several machines encrypt what these say to one another and keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_true,
    rule,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import azure

_FABRIC: Final = azure("servicefabric:Cluster")
_ENVIRONMENTS: Final = azure("web:AppServiceEnvironment")
_LEVEL: Final = "encryptandsign"


@rule(
    "encryption-azure-cluster-transport",
    "Machines of a cluster encrypt what they say to one another",
    Severity.HIGH,
    _FABRIC | _ENVIRONMENTS,
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Service Fabric: set `ClusterProtectionLevel` in the section `Security` to EncryptAndSign. "
    "App Service environments: set `InternalEncryption` in `clusterSettings` to true.",
)
def _between(resource: Resource, view: View) -> Iterator[Finding]:
    """Service Fabric protects nothing by default, and neither does an environment.

    https://learn.microsoft.com/azure/service-fabric/service-fabric-cluster-fabric-settings
    https://learn.microsoft.com/azure/app-service/environment/app-service-app-service-environment-custom-settings
    """
    if resource.kind in _ENVIRONMENTS:
        found = _named(resource.get("clusterSettings"), "clusterSettings", "internalencryption")
        yield from _must_be(found, "true", "clusterSettings", "InternalEncryption")
        return
    path, section = _named(resource.get("fabricSettings"), "fabricSettings", "security")
    inner = f"{path}.parameters" if path else ""
    found = _named(get(section, "parameters"), inner, "clusterprotectionlevel")
    if isinstance(section, Unknown):
        found = path, section
    yield from _must_be(found, _LEVEL, "fabricSettings", "ClusterProtectionLevel")


def _named(pairs: Any, path: str, name: str) -> tuple[str, Any]:
    """The pair of a name with its path, an Unknown where it may be among what can't be seen."""
    hidden: tuple[str, Any] = "", ABSENT
    for at, each in entries(pairs, path):
        own = get(each, "name")
        if isinstance(own, Unknown):
            hidden = at, own
        elif text(own).lower() == name:
            return at, each
    return hidden


def _must_be(found: tuple[str, Any], wanted: str, holder: str, name: str) -> Iterator[Finding]:
    path, pair = found
    value = pair if isinstance(pair, Unknown) else get(pair, "value")
    if isinstance(value, Unknown):
        yield indeterminate(path or holder, f"{name} {value.reason}")
    elif str(value).strip().lower() != wanted:
        given = f"is {text(value) or value}" if value is not ABSENT else "isn't given"
        yield violation(f"{path}.value" if path else holder, f"{name} {given}")


_POOLS: Final = azure("synapse:SqlPool")
_TDE: Final = azure("synapse:SqlPoolTransparentDataEncryption")


@rule(
    "encryption-azure-synapse-pool",
    "SQL pools of Synapse have transparent data encryption",
    Severity.HIGH,
    _POOLS,
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32"),
    "Add a `SqlPoolTransparentDataEncryption` with the status Enabled for the pool, or make its "
    "workspace with a customer-managed key, which encrypts all its pools.",
)
def _pool(resource: Resource, view: View) -> Iterator[Finding]:
    """A dedicated pool has none by default, unless its workspace has a customer's key.

    https://learn.microsoft.com/azure/synapse-analytics/security/workspaces-encryption
    """
    if view.stack is None:
        why = "whether the pool has transparent data encryption is known with the whole stack"
        yield indeterminate("", why)
        return
    found = children(view, resource, _TDE, "sqlPoolName")
    if found or any(_has_key(each) for each in _workspaces(resource, view)):
        return
    if not _workspaces(resource, view):
        why = "its workspace isn't of this stack, so nobody knows whether it has a key"
        yield indeterminate("workspaceName", why)
        return
    yield violation("", "no transparent data encryption is given, and by default there is none")


def _workspaces(resource: Resource, view: View) -> list[Resource]:
    if view.stack is None:
        return []
    return [
        each
        for each in view.stack.of_kind("azure-native:synapse:Workspace")
        if any(one.urn == resource.urn for one in children(view, each, _POOLS, "workspaceName"))
    ]


def _has_key(workspace: Resource) -> bool:
    value = workspace.get("encryption.cmk.key")
    return isinstance(value, Unknown) or value is not ABSENT


_NETWORKS: Final = azure("network:VirtualNetwork")


@rule(
    "encryption-azure-network",
    "Virtual networks of restricted data encrypt what their machines say",
    Severity.MEDIUM,
    _NETWORKS,
    ("iso27001:A.8.24", "iso27001:A.8.20", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Set `encryption.enabled` of the virtual network to true; it works between machines of sizes "
    "with accelerated networking.",
)
def _network(resource: Resource, view: View) -> Iterator[Finding]:
    if view.data_class(resource).strip().lower() in {"public", "internal", "confidential"}:
        return
    value = resource.get("encryption.enabled")
    if isinstance(value, Unknown):
        yield indeterminate("encryption.enabled", f"encryption.enabled {value.reason}")
    elif not is_true(value):
        given = "isn't given, and is off by default" if value is ABSENT else "is off"
        yield violation("encryption.enabled", f"encryption.enabled {given}")


RULES: tuple[Rule, ...] = (_between, _pool, _network)
