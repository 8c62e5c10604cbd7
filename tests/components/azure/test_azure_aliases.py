"""Aliases of types under which nothing of ours was ever made are left out, and no others."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_azure_native as azure_native
import pytest

from falaj.components.azure import Budget
from falaj.components.azure._component import component_options
from tests.components.azure.conftest import PLACED, Deployed, deploy

FORMER = "urn:pulumi:dev::falaj::falaj-azure:index:Budget::former"


class _Group(pulumi.ComponentResource):
    """A component with two resources: one whose type was renamed, one with aliases given."""

    def __init__(self, opts: pulumi.ResourceOptions) -> None:
        super().__init__("test:index:Group", "group", {}, component_options(opts))
        group = azure_native.resources.ResourceGroup(
            "around", location="uaenorth", opts=pulumi.ResourceOptions(parent=self)
        )
        for name, aliases in (("plain", None), ("given", [FORMER, pulumi.Alias(name="old")])):
            azure_native.privatedns.PrivateZone(
                name,
                private_zone_name=f"{name}.acme.internal",
                resource_group_name=group.name,
                location="global",
                opts=pulumi.ResourceOptions(parent=self, aliases=aliases),
            )


@pytest.fixture(scope="module", name="group")
def _group() -> Deployed:
    return deploy(_Group)


def aliases(made: Deployed, name: str) -> list[Any]:
    """Of the types or, where there is none, the names and URNs that a resource had before."""
    request = made.request(name)
    return [each.urn or each.spec.type or each.spec.name for each in request.aliases]


def test_types_of_renamed_modules_stay(group: Deployed) -> None:
    assert aliases(group, "plain") == ["azure-native:network:PrivateZone"]


def test_aliases_that_were_given_stay(group: Deployed) -> None:
    assert aliases(group, "given") == [FORMER, "old", "azure-native:network:PrivateZone"]


def test_components_leave_dated_types_out() -> None:
    def program(opts: pulumi.ResourceOptions) -> Budget:
        args: Any = {**PLACED, "monthly_usd": 20_000, "emails": ["finance@acme.ae"]}
        own = pulumi.ResourceOptions(aliases=[FORMER])
        return Budget("budget", args, pulumi.ResourceOptions.merge(opts, own))

    made = deploy(program)
    assert aliases(made, "budget") == [FORMER]
    assert aliases(made, "budget-budget") == []
