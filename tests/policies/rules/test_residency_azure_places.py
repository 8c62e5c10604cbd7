"""Where a resource of Azure is, and what a property refers to, however it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import UNKNOWN, Context, Provider, Resource, Settings, Stack
from falaj.policies.rules.residency.azure_places import azure_place_of, geo_copies_stay, refers_to

GROUP = "azure-native:resources:ResourceGroup"
ACCOUNT = "azure-native:storage:StorageAccount"
ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/there"


def made(kind: str, name: str, properties: dict[str, Any], **more: Any) -> Resource:
    return Resource(kind, name, properties, urn=f"urn:{name}", **more)


def place(*resources: Resource) -> str | None:
    return azure_place_of(resources[0], Context(stack=Stack(resources)))


@pytest.mark.parametrize(
    "written",
    [
        "there",
        ID,
        ID.upper(),
        f"{ID}/blobServices/default/containers/c",
        "https://there.blob.core.windows.net/",
        "https://there.dfs.core.windows.net/raw/2026",
        UNKNOWN,
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "account",
    [
        {"properties": {"accountName": "there"}},
        {"properties": {}, "id": ID, "outputs": {"name": "there"}},
    ],
    ids=["by name", "by id"],
)
def test_what_a_property_refers_to(written: Any, account: dict[str, Any]) -> None:
    target = made(ACCOUNT, "a", **account)
    other = made(ACCOUNT, "b", {"accountName": "other"})
    user = made(
        "azure-native:eventhub:EventHub",
        "h",
        {"target": written},
        dependencies={"target": ("urn:a",)},
    )
    context = Context(stack=Stack((user, other, target)))
    assert refers_to(user, "target", written, context) == [target]
    assert not refers_to(user, "target", written, Context())


@pytest.mark.parametrize("written", ["elsewhere", "", None, 7, ID.replace("there", "else"), [ID]])
def test_what_is_not_in_the_stack(written: Any) -> None:
    target = made(ACCOUNT, "a", {"accountName": "there"})
    user = made(ACCOUNT, "u", {"target": written})
    assert not refers_to(user, "target", written, Context(stack=Stack((user, target))))


def test_accounts_of_one_name_in_two_groups() -> None:
    here = made(ACCOUNT, "a", {"accountName": "there", "resourceGroupName": "g"})
    there = made(ACCOUNT, "b", {"accountName": "there", "resourceGroupName": "h"})
    user = made(ACCOUNT, "u", {})
    assert refers_to(user, "target", ID, Context(stack=Stack((user, here, there)))) == [here]


def test_children_that_carry_a_name_are_not_meant() -> None:
    account = made(ACCOUNT, "a", {"accountName": "there"})
    child = made("azure-native:storage:BlobContainer", "c", {"accountName": "there"})
    user = made(ACCOUNT, "u", {})
    assert refers_to(user, "target", "there", Context(stack=Stack((user, child, account)))) == [
        account
    ]


@pytest.mark.parametrize(
    ("kind", "key", "part"),
    [
        ("redisenterprise:RedisEnterprise", "clusterName", "Microsoft.Cache/redisEnterprise"),
        ("redis:Redis", "name", "Microsoft.Cache/Redis"),
        ("search:Service", "searchServiceName", "Microsoft.Search/searchServices"),
        ("compute:VirtualMachine", "vmName", "Microsoft.Compute/virtualMachines"),
        ("web:WebApp", "name", "Microsoft.Web/sites"),
        ("web:AppServicePlan", "name", "Microsoft.Web/serverfarms"),
        ("dbforpostgresql:Server", "serverName", "Microsoft.DBforPostgreSQL/flexibleServers"),
        ("monitor:ActionGroup", "actionGroupName", "Microsoft.Insights/actionGroups"),
        ("network:VirtualNetwork", "virtualNetworkName", "Microsoft.Network/virtualNetworks"),
    ],
)  # fmt: skip
def test_types_that_azure_calls_otherwise(kind: str, key: str, part: str) -> None:
    target = made(f"azure-native:{kind}", "a", {key: "there"})
    user = made(ACCOUNT, "u", {})
    context = Context(stack=Stack((user, target)))
    identity = f"/subscriptions/s/resourceGroups/g/providers/{part}/there"
    assert refers_to(user, "target", identity, context) == [target]
    assert not refers_to(user, "target", f"{identity}2", context)


def test_a_child_is_where_its_parent_is() -> None:
    rule = made(
        "azure-native:eventhub:NamespaceAuthorizationRule", "r", {"namespaceName": "there"}
    )
    space = made(
        "azure-native:eventhub:Namespace",
        "n",
        {"namespaceName": "there", "resourceGroupName": "g"},
    )
    group = made(GROUP, "g", {"resourceGroupName": "g", "location": "West Europe"})
    assert place(rule, space, group) == "westeurope"
    assert place(rule) is None


def test_the_provider_comes_before_the_group() -> None:
    provider = Provider("pulumi:providers:azure-native", {"location": "uaenorth"})
    account = made(ACCOUNT, "a", {"resourceGroupName": "g"}, provider=provider)
    group = made(GROUP, "g", {"resourceGroupName": "g", "location": "westeurope"})
    assert place(account, group) == "uaenorth"


def test_of_two_places_the_one_abroad_counts() -> None:
    account = made(
        ACCOUNT, "a", {"location": UNKNOWN}, dependencies={"location": ("urn:g", "urn:h")}
    )
    groups = [
        made(GROUP, "g", {"location": "uaenorth"}),
        made(GROUP, "h", {"location": "westeurope"}),
    ]
    assert place(account, *groups) == "westeurope"


def test_resources_that_name_each_other_end() -> None:
    kind = "azure-native:eventhub:NamespaceAuthorizationRule"
    rules = [
        made(
            kind,
            name,
            {"namespaceName": UNKNOWN},
            dependencies={"namespaceName": (f"urn:{other}",)},
        )
        for name, other in (("a", "b"), ("b", "a"))
    ]
    assert place(*rules) is None
    assert place(made(GROUP, "g", {"resourceGroupName": "g"})) is None


@given(st.sampled_from(["uaenorth", "UAE North", "(Middle East) UAE North", " uae-north "]))
def test_every_spelling_is_one_place(written: str) -> None:
    assert place(made(ACCOUNT, "a", {"location": written})) == "uaenorth"


@pytest.mark.parametrize(
    ("places", "wanted", "stay"),
    [
        (("azure/uaenorth", "azure/uaecentral"), "paired", True),
        (("azure/uaenorth", "azure/uaecentral"), "forbidden", False),
        (("azure/uaenorth",), "paired", False),
        (("azure/uaecentral", "aws/me-central-1"), "paired", False),
    ],
)
def test_copies_in_the_pair(places: tuple[str, ...], wanted: Any, stay: bool) -> None:
    settings = Settings(allowed_places=places, geo_redundancy=wanted)
    assert geo_copies_stay(Context(settings)) is stay
