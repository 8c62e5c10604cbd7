"""Queries: answered from what exists, and refused as Azure would."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from falaj.sandbox.clouds.azure import MODEL

GROUP = {"resourceGroupName": "rg"}


def ask(samples: Any, token: str, **args: Any) -> Any:
    world = samples.sandbox.store
    return MODEL.invoke(f"azure-native:{token}", args, {"location": "uaenorth"}, world)


@pytest.mark.parametrize(
    ("token", "args", "words"),
    [
        ("authorization:getClientToken", {}, "no token to give"),
        ("storage:listStorageAccountKeys", {**GROUP, "accountName": "datasets1"}, "shared keys"),
        ("storage:listStorageAccountKeys", {**GROUP, "accountName": "none"}, "doesn't exist"),
        (
            "containerservice:listManagedClusterAdminCredentials",
            {**GROUP, "resourceName": "cluster"},
            "no local accounts",
        ),
        (
            "containerregistry:listRegistryCredentials",
            {**GROUP, "registryName": "images1"},
            "AcrPull",
        ),
        ("keyvault:getVault", {**GROUP, "vaultName": "none"}, "doesn't exist"),
        ("compute:listNothing", {}, "no answer to the query"),
        ("nonsense", {}, "no answer to the query"),
    ],
)  # fmt: skip
def test_a_query_that_is_refused(
    all_samples: Any, token: str, args: dict[str, Any], words: str
) -> None:
    with pytest.raises(LookupError, match=words):
        ask(all_samples, token, **args)


def test_who_deploys(all_samples: Any) -> None:
    found = ask(all_samples, "authorization:getClientConfig")
    assert found["subscriptionId"] == "00000000-0000-0000-0000-000000000000"
    assert set(found) == {"clientId", "objectId", "subscriptionId", "tenantId"}


@pytest.mark.parametrize(
    ("key", "token", "args"),
    [
        ("rg", "resources:getResourceGroup", {}),
        ("vnet", "network:getVirtualNetwork", {"virtualNetworkName": "vnet"}),
        ("nodes", "network:getSubnet", {"virtualNetworkName": "vnet", "subnetName": "nodes"}),
        ("vault", "keyvault:getVault", {"vaultName": "vault-1"}),
        ("key", "keyvault:getKey", {"vaultName": "vault-1", "keyName": "disks"}),
        ("cluster", "containerservice:getManagedCluster", {"resourceName": "cluster"}),
        ("identity", "managedidentity:getUserAssignedIdentity", {"resourceName": "identity"}),
    ],
)
def test_a_resource_answers_with_its_outputs(
    all_samples: Any, key: str, token: str, args: dict[str, Any]
) -> None:
    found = ask(all_samples, token, **GROUP, **args)
    assert found["id"] == all_samples.id(key)
    assert found["type"] == all_samples.out(key, "type")


def test_azures_own_network_watcher_comes_with_the_first_network(all_samples: Any) -> None:
    own = {"resourceGroupName": "NetworkWatcherRG"}
    found = ask(
        all_samples, "network:getNetworkWatcher", **own,
        networkWatcherName="NetworkWatcher_uaenorth",
    )  # fmt: skip
    assert found["location"] == "uaenorth"
    with pytest.raises(LookupError, match="doesn't exist"):
        ask(
            all_samples, "network:getNetworkWatcher", **own,
            networkWatcherName="NetworkWatcher_westeurope",
        )  # fmt: skip


def test_a_subnet_that_its_network_declared(all_samples: Any) -> None:
    found = ask(
        all_samples, "network:getSubnet", **GROUP, virtualNetworkName="vnet2", subnetName="inline"
    )
    assert found["addressPrefix"] == "10.1.0.0/24"


def test_a_cluster_hands_out_a_kubeconfig(all_samples: Any) -> None:
    found = ask(
        all_samples,
        "containerservice:listManagedClusterUserCredentials",
        **GROUP,
        resourceName="cluster",
    )
    document = json.loads(base64.b64decode(found["kubeconfigs"][0]["value"]))
    cluster = document["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://{all_samples.out('cluster', 'privateFQDN')}:443"
    assert base64.b64decode(cluster["certificate-authority-data"]).startswith(b"-----BEGIN")
    assert document["users"][0]["user"]["exec"]["command"] == "kubelogin"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_an_account_with_shared_keys_gives_keys_that_open_nothing(all_samples: Any) -> None:
    found = ask(all_samples, "storage:listStorageAccountKeys", **GROUP, accountName="homes1")
    assert [each["keyName"] for each in found["keys"]] == ["key1", "key2"]
    assert all(each["value"].startswith("not-a-real-key") for each in found["keys"])


def test_a_workspace_gives_keys_that_open_nothing(all_samples: Any) -> None:
    found = ask(all_samples, "operationalinsights:getSharedKeys", **GROUP, workspaceName="logs")
    assert found["primarySharedKey"] != found["secondarySharedKey"]
