"""The queries (invokes) that are answered: from what exists, and from the catalogue."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from falaj.components.catalogue.clusters import AKS_SERVER
from falaj.sandbox.clouds.azure import naming, registry, resources
from falaj.sandbox.clouds.azure.resources import shape
from falaj.sandbox.clouds.azure.services import kubernetes, monitor, storage
from falaj.sandbox.clouds.azure.services.network import WATCHER
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Made, Properties, World

_CERTIFICATE: Final = (
    "-----BEGIN CERTIFICATE-----\nnone: made by the sandbox\n-----END CERTIFICATE-----\n"
)


def entry(cluster: Made, name: Literal["clusterUser", "clusterAdmin"]) -> dict[str, str]:
    """One of a cluster's kubeconfigs, its text in base64. JSON is YAML too."""
    text = json.dumps(document(cluster, name), indent=2)
    return {"name": name, "value": _encoded(text)}


def document(cluster: Made, name: Literal["clusterUser", "clusterAdmin"]) -> dict[str, Any]:
    """The kubeconfig of a cluster: with a made-up token, or with kubelogin where Entra is used."""
    asked = Inputs(cluster.outputs)
    host = (
        asked.optional_string("privateFQDN") or asked.optional_string("fqdn") or "sandbox.invalid"
    )
    own = cluster.id.rpartition("/")[2]
    user: dict[str, Any] = {"token": f"not-a-real-token-{naming.digest(32, cluster.id, name)}"}
    if name == "clusterUser" and asked.is_given("aadProfile"):
        user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "kubelogin",
                "args": [
                    "get-token",
                    "--environment",
                    "AzurePublicCloud",
                    "--server-id",
                    AKS_SERVER,
                    "--tenant-id",
                    naming.TENANT,
                ],
                "provideClusterInfo": False,
            }
        }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": own,
                "cluster": {
                    "server": f"https://{host}:443",
                    "certificate-authority-data": _encoded(_CERTIFICATE),
                },
            }
        ],
        "users": [{"name": f"{name}_{own}", "user": user}],
        "contexts": [{"name": own, "context": {"cluster": own, "user": f"{name}_{own}"}}],
        "current-context": own,
        "preferences": {},
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


Answer: TypeAlias = Callable[[Inputs, World], Mapping[str, Any]]

_TOKEN: Final = re.compile(r"azure-native:(\w+)(?:/v\w+)?:get([A-Z]\w*)")


def answer(token: str, args: Properties, config: Properties, world: World) -> Properties:
    """The answer to a query.

    Raises:
        LookupError: the query isn't known, what is asked for doesn't exist, or Azure would refuse
            to answer.
    """
    inputs = Inputs(args, config, token)
    own = _ANSWERS.get(token)
    if own is not None:
        return own(inputs, world)
    matched = _TOKEN.fullmatch(token)
    resource = f"azure-native:{matched[1]}:{matched[2]}" if matched else ""
    if resource and shape(resource) is not None:
        return _get(resource, inputs, world)
    raise LookupError(
        f"the sandbox has no answer to the query {token}; it answers get queries of resources "
        f"that were made, and {', '.join(sorted(_ANSWERS))}"
    )


def _get(resource: str, inputs: Inputs, world: World) -> dict[str, Any]:
    """What a resource's outputs are now."""
    kind = registry.kind_of(resource)
    id = naming.build(kind, inputs.values, "_")
    made = resources.by_id(world, id)
    if made is None:
        inline = resources.inline(world, id)
        if inline is None:
            raise LookupError(
                f"{id} doesn't exist in the sandbox; a query finds only what was made there, in "
                "this stack or another"
            )
        return {**inline, "id": id}
    return {**made.outputs, "id": made.id}


def _client_config(inputs: Inputs, world: World) -> dict[str, Any]:
    del inputs, world
    return {
        "clientId": naming.CLIENT,
        "objectId": naming.PRINCIPAL,
        "subscriptionId": naming.SUBSCRIPTION,
        "tenantId": naming.TENANT,
    }


def _client_token(inputs: Inputs, world: World) -> dict[str, Any]:
    del inputs, world
    raise LookupError(
        "the sandbox has no token to give: nobody is signed in to anything; leave the query out "
        "where the stack runs in the sandbox"
    )


def _find(inputs: Inputs, world: World, token: str) -> Made:
    id = naming.build(registry.kind_of(token), inputs.values, "_")
    made = resources.by_id(world, id)
    if made is None:
        raise LookupError(f"{id} doesn't exist in the sandbox; make it first")
    return made


def _storage_keys(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _find(inputs, world, storage.ACCOUNT)
    if Inputs(made.inputs).at("allowSharedKeyAccess") is False:
        raise LookupError(
            f"{made.id} allows no shared keys (allowSharedKeyAccess is false), so its keys open "
            "nothing; use a managed identity and a role"
        )
    keys = [
        {
            "keyName": name,
            "permissions": "FULL",
            "value": _secret(made.id, name),
            "creationTime": "",
        }
        for name in ("key1", "key2")
    ]
    return {"keys": keys}


def _workspace_keys(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _find(inputs, world, monitor.WORKSPACE)
    if Inputs(made.inputs).at("features.disableLocalAuth") is True:
        raise LookupError(
            f"{made.id} allows no keys (features.disableLocalAuth is true); use a managed identity"
        )
    return {
        "primarySharedKey": _secret(made.id, "primary"),
        "secondarySharedKey": _secret(made.id, "secondary"),
    }


def _secret(id: str, name: str) -> str:
    return f"not-a-real-key-{naming.digest(32, 'secret', id, name)}"


def _user_credentials(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _find(inputs, world, kubernetes.CLUSTER)
    return {"kubeconfigs": [entry(made, "clusterUser")]}


def _admin_credentials(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _find(inputs, world, kubernetes.CLUSTER)
    if Inputs(made.inputs).at("disableLocalAccounts") is True:
        raise LookupError(
            f"{made.id} has no local accounts (disableLocalAccounts is true); inputs "
            "listManagedClusterUserCredentials and sign in by Entra"
        )
    return {"kubeconfigs": [entry(made, "clusterAdmin")]}


def _registry_credentials(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _find(inputs, world, "azure-native:containerregistry:Registry")
    if Inputs(made.inputs).at("adminUserEnabled") is not True:
        raise LookupError(
            f"{made.id} has no admin user (adminUserEnabled is false); use a managed identity "
            "with the role AcrPull"
        )
    name = made.id.rpartition("/")[2]
    passwords = [
        {"name": each, "value": _secret(made.id, each)} for each in ("password", "password2")
    ]
    return {"username": name, "passwords": passwords}


def _network_watcher(inputs: Inputs, world: World) -> dict[str, Any]:
    """One that was made, or that Azure made by itself with the region's first network.

    Source: network-watcher/network-watcher-create.
    """
    group, name = (inputs.at(each) for each in ("resourceGroupName", "networkWatcherName"))
    for made in world.all("azure-native:network:VirtualNetwork"):
        region = resources.region_of(made)
        if (group, name) == ("NetworkWatcherRG", f"NetworkWatcher_{region}"):
            id = naming.build(registry.kind_of(WATCHER), inputs.values, "_")
            return {"id": id, "name": name, "location": region, "provisioningState": "Succeeded"}
    return _get(WATCHER, inputs, world)


_ANSWERS: Final[dict[str, Answer]] = {
    "azure-native:authorization:getClientConfig": _client_config,
    "azure-native:authorization:getClientToken": _client_token,
    "azure-native:network:getNetworkWatcher": _network_watcher,
    "azure-native:storage:listStorageAccountKeys": _storage_keys,
    "azure-native:operationalinsights:getSharedKeys": _workspace_keys,
    "azure-native:operationalinsights:getWorkspaceSharedKeys": _workspace_keys,
    "azure-native:containerservice:listManagedClusterUserCredentials": _user_credentials,
    "azure-native:containerservice:listManagedClusterAdminCredentials": _admin_credentials,
    "azure-native:containerregistry:listRegistryCredentials": _registry_credentials,
}
