"""Azure's rules on generated groups, services and demands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import UNKNOWN, Context, FindingKind, Requirement, Resource, Stack
from falaj.policies.reading.types import azure
from falaj.policies.rules.zero_trust.public_services import public_access
from falaj.policies.rules.zero_trust.security_groups import open_admin_ports, open_inbound

WORLD = st.sampled_from(
    [
        "*",
        "0.0.0.0/0",
        "::/0",
        "Internet",
        "INTERNET",
        "Any",
        "<nw>/0",
        " * ",
        "0.0.0.0/00",
        "0::/0",
    ]
)
PRIVATE = st.sampled_from(["10.0.0.0/8", "VirtualNetwork", "AzureLoadBalancer", "192.168.1.7"])
ADMIN = st.sampled_from(["22", "3389", "20-30", "*", "0-65535", "5432", "1-1024"])
GROUP = "azure-native:network:NetworkSecurityGroup"


def security_rule(source: str, ports: Any, many: bool, access: str = "Allow") -> dict[str, Any]:
    shape: dict[str, Any] = (
        {"sourceAddressPrefixes": [source], "destinationPortRanges": [ports]}
        if many
        else {"sourceAddressPrefix": source, "destinationPortRange": ports}
    )
    return {"access": access, "direction": "Inbound", "protocol": "Tcp", **shape}


def kinds_found(check: Any, properties: dict[str, Any], kind: str = GROUP) -> set[FindingKind]:
    return {each.kind for each in check(Resource(kind, "it", properties), Context())}


@given(
    st.lists(st.builds(security_rule, PRIVATE, ADMIN, st.booleans()), max_size=4),
    st.builds(security_rule, WORLD, ADMIN, st.booleans()),
    st.data(),
)
def test_the_one_open_rule_is_found_wherever_it_stands(
    closed: list[dict[str, Any]], opened: dict[str, Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(closed)))
    rules = [*closed[:at], opened, *closed[at:]]
    found = list(
        open_admin_ports.check(Resource(GROUP, "it", {"securityRules": rules}), Context())
    )
    assert [each.kind for each in found] == [FindingKind.VIOLATION]
    assert found[0].path.startswith(f"securityRules[{at}].sourceAddress")
    single = kinds_found(open_admin_ports.check, opened, "azure-native:network:SecurityRule")
    assert single == {FindingKind.VIOLATION}


@given(st.lists(st.builds(security_rule, PRIVATE, ADMIN, st.booleans()), max_size=5))
def test_private_sources_and_denials_are_fine(closed: list[dict[str, Any]]) -> None:
    denial = security_rule("*", "22", False, "Deny")
    for check in (open_admin_ports.check, open_inbound.check):
        assert not kinds_found(check, {"securityRules": [*closed, denial]})


@given(st.builds(security_rule, WORLD, ADMIN, st.booleans()), st.integers(101, 4096))
def test_a_denial_of_everything_that_comes_first_closes(rule: dict[str, Any], later: int) -> None:
    everything = {
        **security_rule("*", "*", False, "Deny"),
        "protocol": "*",
        "destinationAddressPrefix": "*",
    }
    first, second = {**everything, "priority": 100}, {**rule, "priority": later}
    assert not kinds_found(open_admin_ports.check, {"securityRules": [second, first]})
    first["priority"] = later + 1
    assert kinds_found(open_admin_ports.check, {"securityRules": [second, first]})


@pytest.mark.parametrize("kind", sorted(public_access.types))
def test_every_service_is_open_by_default_and_closed_by_its_switch(kind: str) -> None:
    """Unknown switches of any service never pass."""
    silent = Resource(kind, "it", {}, urn="urn:it")
    context = Context(stack=Stack((silent,)))
    (found,) = public_access.check(silent, context)
    assert found.kind is FindingKind.VIOLATION
    for value, wanted in (("Disabled", set()), (UNKNOWN, {FindingKind.INDETERMINATE})):
        properties: Any = value
        for key in reversed(found.path.split(".")):
            properties = {key: properties}
        given_ = Resource(kind, "it", properties, urn="urn:it")
        assert {each.kind for each in public_access.check(given_, context)} == wanted


def test_former_modules_are_known() -> None:
    assert azure("redis:Redis") == {"azure-native:redis:Redis", "azure-native:cache:Redis"}
    assert azure("storage:StorageAccount") == {"azure-native:storage:StorageAccount"}


def test_requirements_speak_of_lists_item_by_item() -> None:
    row = Requirement("a.b", ("true",), "false", each="pools")
    pools = [{"a": {"b": True}}, {"a": {}}, UNKNOWN, {"a": {"b": False}}]
    found = list(row.findings({"pools": pools}))
    assert [(each.path, each.kind) for each in found] == [
        ("pools[1].a.b", FindingKind.VIOLATION),
        ("pools[2]", FindingKind.INDETERMINATE),
        ("pools[3].a.b", FindingKind.VIOLATION),
    ]
    promised = list(row.findings({"pools": pools[:2]}, absence_is_fine=True))
    assert not promised
