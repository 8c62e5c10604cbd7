"""Values of lists in another letter case are taken, and answered in Azure's own spelling."""

from __future__ import annotations

from typing import Any

from falaj.sandbox.clouds.azure import MODEL, checks, spelling
from falaj.sandbox.inprocess import Sandbox

RULE = "azure-native:network:SecurityRule"


def lower(value: Any) -> Any:
    """The same, with every text in lower case that is a value of one of the type's lists."""
    if isinstance(value, dict):
        return {name: lower(item) for name, item in value.items()}
    if isinstance(value, list):
        return [lower(item) for item in value]
    return value.lower() if isinstance(value, str) else value


def test_a_rules_protocol_is_taken_in_lower_case_and_answered_in_azures(
    new_sandbox: Sandbox,
) -> None:
    new_sandbox.create("azure-native:resources:ResourceGroup", "g", {"resourceGroupName": "g"})
    new_sandbox.create(
        "azure-native:network:NetworkSecurityGroup",
        "n",
        {"resourceGroupName": "g", "networkSecurityGroupName": "n"},
    )
    _, outputs = new_sandbox.create(
        RULE,
        "r",
        {
            "resourceGroupName": "g",
            "networkSecurityGroupName": "n",
            "securityRuleName": "r",
            "access": "allow",
            "direction": "INBOUND",
            "protocol": "tcp",
            "priority": 200,
            "sourceAddressPrefix": "*",
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            "destinationPortRange": "443",
        },
    )
    found = [outputs[name] for name in ("access", "direction", "protocol")]
    assert found == ["Allow", "Inbound", "Tcp"]


def test_no_sample_is_refused_for_the_letter_case_of_its_lists_values(all_samples: Any) -> None:
    """Each value that one of the type's lists has, in lower case: the rules take it as well."""
    for key, resource in all_samples.made.items():
        spelt = spelling.canonical(resource.token, lower(resource.inputs))
        given = merged(resource.inputs, lower(resource.inputs), spelt)
        found = MODEL.problems(resource.token, given, {"location": "uaenorth"})
        found += MODEL.conflicts(
            resource.token,
            given,
            {"location": "uaenorth"},
            all_samples.sandbox.store,
            resource.id,
        )
        assert found == [], key


def merged(given: Any, lowered: Any, spelt: Any) -> Any:
    """The inputs, with lower case only where the spelling of a list comes back for it."""
    if isinstance(given, dict):
        return {name: merged(given[name], lowered[name], spelt[name]) for name in given}
    if isinstance(given, list):
        return [merged(*each) for each in zip(given, lowered, spelt, strict=True)]
    return lowered if lowered != spelt else given


def test_the_tables_lists_take_any_letter_case_at_any_depth() -> None:
    token = "azure-native:network:VirtualNetwork"
    path = "subnets[*].delegations[*].serviceName"
    value = checks.enumerated_paths(token)[path][0]
    given = {"subnets": [{"delegations": [{"serviceName": value.upper()}]}, {}]}
    spelt = spelling.canonical(token, given)
    assert spelt["subnets"] == [{"delegations": [{"serviceName": value}]}, {}]
    assert spelling.canonical(token, {"subnets": "x"}) == {"subnets": "x"}
