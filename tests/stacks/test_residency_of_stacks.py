"""A platform's stack lets into its cluster what it makes itself, and what its packs allow."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.stacks.errors import SettingsError
from falaj.stacks.image_digests import digests
from falaj.stacks.settings import InClusterSettings, validate
from falaj.stacks.validation import validate_in_cluster
from tests.stacks.in_mocks import ROOT, declare, shipped

CLASS = {
    "provisioner": "rook-ceph.rbd.csi.ceph.com",
    "parameters": {
        "clusterID": "rook-ceph", "pool": "fast",
        "encrypted": "true", "encryptionKMSID": "openbao",
    },
}  # fmt: skip


def stack(**changes: Any) -> dict[str, Any]:
    """The shipped stack of an existing cluster without what takes long, with other values."""
    config = shipped("onprem-cluster")
    for key in ("falaj:queues", "falaj:gateway", "falaj:tenants"):
        del config[key]
    return {**config, **changes}


def residency(config: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the stack's `Residency`."""
    (found,) = declare(config).of_type("falaj-kubernetes:index:Residency")
    return dict(found.inputs)


def test_what_packs_allow_the_cluster_takes() -> None:
    config = stack()
    found = residency(config)
    packs = config["falaj:policies"]
    assert found["allowedRegistries"] == packs["allowedRegistries"]
    assert found["allowedHosts"] == packs["allowedHosts"]
    assert found["systemNamespaces"] == ["rook-ceph"]


def test_classes_of_the_stack_are_those_that_may_be_claimed() -> None:
    config = stack()
    config["falaj:storage"]["classes"]["fast"] = CLASS
    assert residency(config)["storageClasses"] == ["falaj-block", "falaj-files", "fast"]


def test_what_the_stack_says_of_its_admission_comes_first() -> None:
    own = {"allowedHosts": ["login.example.ae"], "storageClasses": ["falaj-block"]}
    found = residency(stack(**{"falaj:residency": own}))
    assert found["allowedHosts"] == ["login.example.ae"]
    assert found["storageClasses"] == ["falaj-block"]


def test_without_packs_own_settings_nothing_more_is_allowed() -> None:
    config = stack()
    kept = {"packs", "allowedSites"}
    config["falaj:policies"] = {k: v for k, v in config["falaj:policies"].items() if k in kept}
    assert not {"allowedRegistries", "allowedHosts"} & residency(config).keys()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("allowedRegistries", ["docker.io"], "registries in the country"),
        ("allowedHosts", ["api.eu-west-1.amazonaws.com"], "aws/eu-west-1"),
    ],
)
def test_what_packs_allow_is_in_the_country(key: str, value: list[str], said: str) -> None:
    """The cluster refuses it by the same facts, whatever the packs were told."""
    config = stack()
    config["falaj:policies"][key] = value
    found = validate(config, ROOT, stack="dev")
    assert isinstance(found, InClusterSettings)
    with pytest.raises(SettingsError, match=said):
        validate_in_cluster(found, digests(found, ROOT, sandboxed=True).by_name)
