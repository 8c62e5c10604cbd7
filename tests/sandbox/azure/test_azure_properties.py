"""For any inputs: the model doesn't fail, and its ids are Resource Manager's."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falaj.sandbox.clouds.azure import MODEL, kinds, naming, queries, registry
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.store import Store
from falaj.wire import UNKNOWN
from tests.examples import examples

TOKENS = [kind.token for kind in kinds.all_kinds()]
OTHERS = ["azure-native:redis:Redis", "azure-native:no:Such", "other", "azure-native:cdn:Endpoint"]
ID = re.compile(
    r"/subscriptions/[^/]+(/resourceGroups/[^/]+)?(/providers/[^/]+(/[^/]+/[^/]+)+)*"
    r"|(/[^/]+)+/providers/[^/]+(/[^/]+/[^/]+)+"
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 100000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.just(UNKNOWN),
    st.sampled_from(
        ["uaenorth", "10.0.0.0/16", "https://v.vault.azure.net/keys/k", "/subscriptions/x", "Spot",
         "Premium", "/subscriptions/0/resourceGroups/r/providers/A.B/c/d", "P1D", "::/0", "1"]
    ),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
EASY = settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def survive(token: str, inputs: dict[str, Any], world: Store) -> None:
    urn = f"urn:pulumi:s::p::{token}::name"
    config = {"location": "uaenorth"}
    whole = {**inputs, **MODEL.defaults(token, "name", inputs, config, urn)}
    MODEL.problems(token, whole, config)
    id = MODEL.identity(token, "name", whole, config, urn)
    assert ID.fullmatch(id), id
    assert id == MODEL.identity(token, "name", whole, config, urn)
    MODEL.conflicts(token, whole, config, world, None)
    outputs = MODEL.outputs(token, id, whole, config, world)
    made = Made(urn, token, id, whole, outputs, "", "s")
    MODEL.delete_blockers(token, made, world)
    queries.entry(made, "clusterUser")


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before] if before else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        found += paths(item, (*before, key))
    return found


@EASY
@given(token=st.sampled_from([*TOKENS, *OTHERS]), data=st.data())
def test_no_inputs_make_the_model_fail(all_samples: Any, token: str, data: st.DataObject) -> None:
    names = sorted(
        {*registry.kind_of(token).parameters, "location", "tags", "identity", "resourceGroupName"}
    )
    keys = st.one_of(st.sampled_from(names), st.text(max_size=6))
    inputs = data.draw(st.dictionaries(keys, values, max_size=6))
    survive(token, inputs, all_samples.sandbox.store)


@EASY
@given(data=st.data())
def test_no_value_put_anywhere_makes_the_model_fail(all_samples: Any, data: st.DataObject) -> None:
    made = all_samples.made[data.draw(st.sampled_from(sorted(all_samples.made)))]
    inputs = copy.deepcopy(made.inputs)
    *steps, last = data.draw(st.sampled_from(paths(inputs)))
    target: Any = inputs
    for step in steps:
        target = target[step]
    target[last] = data.draw(values)
    survive(made.token, inputs, all_samples.sandbox.store)


@given(text=st.text(max_size=40))
def test_any_text_is_an_id_or_none(text: str) -> None:
    found = naming.parse(text)
    assert found is None or found.id == text


@given(first=st.text(min_size=1, max_size=10), second=st.text(min_size=1, max_size=10))
def test_ids_are_told_apart_by_their_names(first: str, second: str) -> None:
    token = "azure-native:keyvault:Vault"
    one, two = (
        MODEL.identity(token, "n", {"resourceGroupName": "r", "vaultName": name}, {}, "u")
        for name in (first, second)
    )
    assert (one == two) == (first == second)


@pytest.mark.parametrize(
    ("token", "pattern"),
    [
        ("azure-native:keyvault:Vault", r"name[0-9a-f]{8}"),
        ("azure-native:keyvault:Key", "name"),
        ("azure-native:redis:Redis", r"name[0-9a-f]{8}"),
        (
            "azure-native:authorization:RoleAssignment",
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        ),
    ],
)
def test_a_missing_name_is_made_as_the_vendor_makes_it(token: str, pattern: str) -> None:
    own = registry.kind_of(token).own_name
    first, again, other = (
        MODEL.defaults(token, "name", {}, {}, urn)[own or ""] for urn in ("a", "a", "b")
    )
    assert re.fullmatch(pattern, first)
    assert first == again
    assert (first == other) == (pattern == "name")


def test_a_given_name_and_region_are_left_alone() -> None:
    token = "azure-native:keyvault:Vault"
    given_inputs = {"vaultName": "v", "location": "uaecentral"}
    assert MODEL.defaults(token, "name", given_inputs, {"location": "uaenorth"}, "u") == {}
    assert MODEL.defaults(token, "name", {"vaultName": "v"}, {"location": "uaenorth"}, "u") == {
        "location": "uaenorth"
    }


@pytest.mark.parametrize(
    ("token", "some"),
    [
        ("resources:ResourceGroup", {"location", "resourceGroupName"}),
        ("containerservice:ManagedCluster", {"dnsPrefix", "nodeResourceGroup", "resourceName",
                                             "networkProfile.networkPlugin"}),
        ("containerservice:AgentPool", {"vmSize", "gpuInstanceProfile", "osDiskType",
                                        "availabilityZones", "vnetSubnetID", "agentPoolName"}),
        ("storage:StorageAccount", {"isHnsEnabled", "location", "accountName",
                                    "encryption.requireInfrastructureEncryption"}),
        ("keyvault:Vault", {"vaultName", "properties.tenantId"}),
        ("network:PrivateEndpoint", {"subnet"}),
        ("cdn:Endpoint", {"profileName", "endpointName", "resourceGroupName"}),
    ],
)  # fmt: skip
def test_changes_that_replace(token: str, some: set[str]) -> None:
    found = MODEL.replacements(f"azure-native:{token}")
    assert some <= found
    assert not {"tags", "count", "minCount", "maxCount", "sku"} & found
