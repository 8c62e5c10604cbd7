"""Azure's registry is made with a key of its own first, and moved to the stack's by the next."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest
import yaml

from falaj.policies.model import PolicyError
from falaj.policies.rules import all_rules
from falaj.policies.waivers import read_waivers
from falaj.sandbox.inprocess import SandboxMocks
from falaj.stacks.cloud_program import declare_in_cloud
from falaj.stacks.command import first_key, judged
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.sandbox_guard import FIRST_KEY, STORES
from falaj.stacks.settings import CloudSettings, FoundationSettings, validate
from tests.loops import own_loop
from tests.stacks.in_mocks import ROOT, shipped

OWN = "urn:pulumi:s::falaj::falaj-azure:index:Registry$azure-native:containerregistry:Registry::r"
ANOTHERS = "urn:pulumi:s::falaj::azure-native:containerregistry:Registry::mine"
CLUSTER = {"type": "falaj-azure:index:Cluster", "urn": "c"}


CLIENT = "11111111-2222-3333-4444-555555555555"


def registry(
    asked: str, urn: str = OWN, *, answered: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """One in a state. Default: Azure answers what it was asked."""

    def of(identity: Mapping[str, Any]) -> dict[str, Any]:
        of_key = {"keyIdentifier": "https://v.vault.azure.net/keys/k", **identity}
        return {"encryption": {"status": "enabled", "keyVaultProperties": of_key}}

    given = {"identity": asked}
    outputs = of(given if answered is None else answered)
    kind = "azure-native:containerregistry:Registry"
    return {"urn": urn, "type": kind, "inputs": of(given), "outputs": outputs, **more}


class Engine:
    """What an engine's state holds."""

    def __init__(self, *state: dict[str, Any]) -> None:
        self._state = list(state)

    def resources(self) -> list[dict[str, Any]]:
        return self._state


def settings(stack: str, **changes: Any) -> CloudSettings:
    given = {**shipped(stack), **{f"falaj:{key}": each for key, each in changes.items()}}
    own = {key: each for key, each in given.items() if each is not None}
    found = validate(own, ROOT, stack=stack)
    assert isinstance(found, CloudSettings)
    return found


def phase(of: CloudSettings, *state: dict[str, Any]) -> str | None:
    return first_key.phase(of, cast(Pulumi, Engine(*state)))


BOTH = f"{STORES},{FIRST_KEY}"


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ((), BOTH),
        ((registry(CLIENT),), BOTH),
        ((registry("system", ANOTHERS),), BOTH),
        ((registry("system"),), None),
        # What Azure answers of a registry's own identity isn't documented.
        ((registry("system", answered={}),), None),
        ((registry("system", answered={"identity": None}),), None),
        ((registry("system", answered={"identity": CLIENT}),), None),
        # A person moved it (az acr encryption rotate-key), and `refresh` read that.
        ((registry(CLIENT, answered={"identity": "system"}),), None),
        # Another takes its place, which is about to be deleted.
        ((registry("system", delete=True), registry(CLIENT)), BOTH),
        # What stands is never taken down for it.
        ((CLUSTER,), FIRST_KEY),
    ],
)
def test_it_is_made_so_until_it_reads_the_stacks_key_as_itself(
    state: tuple[dict[str, Any], ...], asked: str | None
) -> None:
    assert phase(settings("azure-foundation"), *state) == asked
    assert phase(settings("azure-smb"), *state) == asked
    assert phase(settings("azure-cluster", foundation=None), *state) == asked


@pytest.mark.parametrize("stack", ["aws-foundation", "aws-smb", "azure-cluster", "azure-platform"])
def test_stacks_without_such_a_registry_need_no_update_before(stack: str) -> None:
    assert phase(settings(stack)) is None


def kinds(of: CloudSettings, **phases: bool) -> set[str]:
    with own_loop():
        mocks = SandboxMocks()
        pulumi.runtime.set_mocks(mocks, project="falaj", stack="s", preview=False)

        @pulumi.runtime.test
        def program() -> None:
            declare_in_cloud(of, sandboxed=True, **phases)

        program()
    return {f"{each.type.rpartition(':')[2]} {each.name}" for each in mocks.resources}


def test_the_first_update_of_a_cluster_makes_what_it_stands_on() -> None:
    found = kinds(settings("azure-cluster", foundation=None), stores=True, first_key=True)
    assert {"Vault registry-first", "Registry registry-registry"} <= found
    assert not any(each.startswith("ManagedCluster") for each in found)


def test_what_the_first_update_is_allowed(tmp_path: Path) -> None:
    """Its waivers are good ones, are about one vault, hold for a day, and come beside others."""
    day = datetime.date(2026, 11, 26)
    file = tmp_path / "waivers.yaml"
    file.write_text(yaml.safe_dump({"waivers": first_key.waivers(day)}))
    found = read_waivers(file, all_rules(), day).waivers
    assert [each.rule for each in found] == ["zero-trust-azure-public-access"]
    assert all(each.urn.endswith("$azure-native:keyvault:Vault::registry-first") for each in found)
    assert all((each.expires - day).days == 1 for each in found)

    own = {"id": "W-1", "rule": "zero-trust-azure-defender", "urn": "*::audit-plan",
           "reason": "another stack's", "approver": "ciso@acme.ae",
           "expires": day}  # fmt: skip
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"waivers": [own]}))
    stack = StackFile("azure-foundation", Project.find(tmp_path))
    of = settings("azure-foundation")
    of = of.model_copy(update={"policies": of.policies.model_copy(update={"waivers": "own.yaml"})})
    both = judged.with_more_waivers(
        stack, cast(FoundationSettings, of), first_key.waivers(day), tmp_path
    )
    assert [each.id for each in read_waivers(both, all_rules(), day).waivers] == [
        "W-1",
        "first-key-1",
    ]

    # They never stand for waivers that can't be read, which would be gone without a word.
    (tmp_path / "own.yaml").write_text("waivers: {W-1: later}\n")
    with pytest.raises(PolicyError, match="expected a list under the key 'waivers'"):
        judged.with_more_waivers(stack, of, first_key.waivers(day), tmp_path)
    (tmp_path / "own.yaml").unlink()
    with pytest.raises(PolicyError, match=r"own\.yaml can't be read: .*No such file"):
        judged.with_more_waivers(stack, of, first_key.waivers(day), tmp_path)
