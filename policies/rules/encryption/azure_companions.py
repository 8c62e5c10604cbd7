"""Azure's types whose key another resource names: SQL servers, workspaces of logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import ABSENT, Resource, View, get, is_unknown, text
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.azure_stores import KEYS
from falaj.policies.rules.encryption.table import Part, Reader, read_key

_LINKS: Final = azure("operationalinsights:LinkedService")
_CLUSTERS: Final = azure("operationalinsights:Cluster")


def _server(protector: str, parent: str) -> Reader:
    """A server of Azure SQL: its own `keyId`, else what its encryption protector says."""

    def read(resource: Resource, view: View) -> Iterator[Part]:
        state, why = read_key(resource, "keyId", resource.get("keyId"), view, KEYS)
        if state != "absent":
            yield Part(state, "keyId", "keyId", why, text(resource.get("keyId")), surely=True)
            return
        if view.stack is None:
            why = "keyId isn't given; a protector with a customer's key may be a resource apart"
            yield Part("unknown", "keyId", "keyId", why, surely=True, given=False)
            return
        for each in children(view, resource, frozenset({protector}), parent):
            kind = get(each.properties, "serverKeyType")
            if is_unknown(kind):
                why = f"serverKeyType of {each.name} can't be seen"
                yield Part("unknown", "keyId", "keyId", why, surely=True)
                return
            if text(kind).lower() == "azurekeyvault":
                yield Part("customer key", "keyId", "keyId", f"{each.name} names a key")
                return
        why = (
            "neither keyId nor an encryption protector with a key is given, and by default "
            "the key is the service's own"
        )
        yield Part("service key", "keyId", "keyId", why, given=False)

    return read


SERVERS: Final[dict[str, tuple[Reader, ...]]] = {
    "azure-native:sql:Server": (
        _server("azure-native:sql:EncryptionProtector", "serverName"),
    ),
    "azure-native:sql:ManagedInstance": (
        _server(
            "azure-native:sql:ManagedInstanceEncryptionProtector", "managedInstanceName"
        ),
    ),
}  # fmt: skip


def _workspace(resource: Resource, view: View) -> Iterator[Part]:
    """A workspace of logs has a customer's key only in a dedicated cluster."""
    path = "features.clusterResourceId"
    state, why = read_key(resource, path, resource.get(path), view, _CLUSTERS)
    if state != "absent":
        yield Part(state, path, path, why, surely=True)
    elif view.stack is None:
        why = f"{path} isn't given; a link to a cluster may be a resource apart"
        yield Part("unknown", path, path, why, surely=True, given=False)
    elif links := [
        each
        for each in children(view, resource, _LINKS, "workspaceName")
        if get(each.properties, "writeAccessResourceId") is not ABSENT
    ]:
        yield Part("customer key", path, path, f"{links[0].name} links it to a cluster")
    else:
        why = f"neither {path} nor a link to a cluster is given, and the key is the service's own"
        yield Part("service key", path, path, why, given=False)


def _component(resource: Resource, view: View) -> Iterator[Part]:
    """Application Insights keeps its data in a workspace; where it names none, in its own store,
    under a key of the service."""
    if resource.get("workspaceResourceId") is ABSENT:
        why = "workspaceResourceId isn't given, and data outside of a workspace has no own key"
        yield Part("service key", "workspaceResourceId", "workspaceResourceId", why, given=False)


WORKSPACES: Final[dict[str, tuple[Reader, ...]]] = {
    **dict.fromkeys(azure("operationalinsights:Workspace"), (_workspace,)),
    **dict.fromkeys(azure("applicationinsights:Component"), (_component,)),
}
