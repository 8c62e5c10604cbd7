"""What the foundation's components take by default, and the shared rules of names and zones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.specification import (
    audit_trail,
    budget,
    identity,
    key_ring,
    network,
    object_store,
    registry,
    training_file_system,
)
from falaj.components.specification.identity import CONFLICTS, DUTIES, conflict
from falaj.components.specification.names import physical_name, unique_name

Shared = Callable[[str], dict[str, Any]]
AZURE = {"key_identity_id": "i", "key_ring_id": "r", "network_id": "n", "endpoint_subnet_id": "s"}


def test_a_network_takes_zones_that_are_sound(shared: Shared) -> None:
    on_aws = network.check("aws", "n", {**shared("aws"), "log_key_id": "k"})
    assert on_aws.cidr == "10.64.0.0/16"
    assert on_aws.zones == ("mec1-az1",)
    assert on_aws.plan.zones == ("mec1-az1", "mec1-az2", "mec1-az3")
    assert on_aws.egress_domains == ()
    assert on_aws.flow_log_days == 365
    assert on_aws.purpose == "cluster"
    given = {**shared("azure"), "log_key_id": "k", "key_identity_id": "i"}
    on_azure = network.check("azure", "n", given)
    assert on_azure.zones == ("1", "2", "3")
    assert on_azure.plan.zones == ("regional",)
    without = network.check("azure", "n", {**given, "region": "uaecentral"})
    assert without.zones == ("regional",)


def test_a_network_for_serving_may_have_a_way_out_on_azure_alone(shared: Shared) -> None:
    given = {**shared("azure"), "log_key_id": "k", "key_identity_id": "i", "purpose": "serving"}
    found = network.check("azure", "n", {**given, "egress_domains": ["models.example.ae"]})
    assert (found.purpose, found.egress_domains) == ("serving", ("models.example.ae",))


def test_zones_come_in_the_regions_order_whatever_is_written(shared: Shared) -> None:
    args = {**shared("aws"), "log_key_id": "k", "zones": ["mec1-az3", "mec1-az1"]}
    assert network.check("aws", "n", args).zones == ("mec1-az1", "mec1-az3")


def test_keys_are_kept_longest_in_production(cloud: str, shared: Shared) -> None:
    for environment, days in (("production", 30), ("test", 7), ("development", 7)):
        found = key_ring.check(cloud, "k", {**shared(cloud), "environment": environment})
        assert found.deletion_window_days == days
        assert found.purposes == ("data", "disks", "cluster", "logs", "registry", "state")
        assert found.rotation_days == 365
        assert found.placed.retained is (environment == "production")


def test_numbers_of_other_languages_are_whole(cloud: str, shared: Shared) -> None:
    args = {**shared(cloud), "rotation_days": 90.0, "purposes": ["state", "data"]}
    found = key_ring.check(cloud, "k", args)
    assert found.rotation_days == 90
    assert isinstance(found.rotation_days, int)
    assert found.purposes == ("data", "state")


@pytest.mark.parametrize(
    ("cloud", "change", "redundancy"),
    [
        ("aws", {}, "zone"),
        ("azure", {}, "zone"),
        ("azure", {"region": "uaecentral"}, "local"),
        (
            "azure",
            {"redundancy": "geo", "allowed_regions": ["uaenorth", "uaecentral"]},
            "geo",
        ),
    ],
)
def test_redundancy_stays_where_data_may_be(
    cloud: str, change: dict[str, Any], redundancy: str, shared: Shared
) -> None:
    keys = {"data_key_id": "k", "log_key_id": "k", "state_key_id": "k"}
    args = {**shared(cloud), **keys, **AZURE, **change}
    if cloud == "azure":
        del args["key_ring_id"]
    else:
        args = {key: value for key, value in args.items() if key not in AZURE}
    found = object_store.check(cloud, "s", args)
    assert found.redundancy == redundancy
    assert found.placed.region in found.allowed_regions
    assert found.buckets == ("datasets", "models", "checkpoints", "audit", "state")


@pytest.mark.parametrize(
    ("cloud", "change", "service", "capacity"),
    [
        ("aws", {}, "lustre", 1200),
        ("azure", {}, "netapp", 2048),
    ],
)
def test_the_smallest_file_system_is_the_default(
    cloud: str, change: dict[str, Any], service: str, capacity: int, shared: Shared
) -> None:
    args = {
        **shared(cloud),
        **AZURE,
        "data_key_id": "k",
        "storage_subnet_ids": {},
        "security_group_id": "g",
        **change,
    }
    found = training_file_system.check(cloud, "f", args)
    assert (found.service, found.capacity_gib) == (service, capacity)
    assert found.zone == found.zones[0]
    assert found.homes is True


def test_registry_trail_and_budget_have_defaults(cloud: str, shared: Shared) -> None:
    args = {**shared(cloud), "key_identity_id": "i", "network_id": "n", "endpoint_subnet_id": "s"}
    images = registry.check(cloud, "r", {**args, "registry_key_id": "k", "key_ring_id": "r"})
    assert images.repositories == ("training", "inference", "platform")
    assert images.upstreams == ()
    logs = {"log_key_id": "k", "audit_bucket_name": "b", "audit_store_id": "s"}
    trail = audit_trail.check(cloud, "t", {**args, **logs, "key_ring_id": "r"})
    assert trail.retention_days == 365
    assert trail.threat_detection is True
    told = {**shared(cloud), "monthly_usd": 9.999, "emails": ["a@b.example"]}
    month = budget.check(cloud, "b", told)
    assert month.monthly_usd == 10.0
    assert month.alert_percent == (50, 80, 100)
    assert month.start is None


def test_tags_say_whose_it_is(cloud: str, shared: Shared) -> None:
    placed = key_ring.check(cloud, "k", shared(cloud)).placed
    sign = {"aws": ":", "azure": "-"}[cloud]
    assert placed.tags("keys") == {
        f"falaj{sign}owner": "platform@acme.example",
        f"falaj{sign}tenant": "acme",
        f"falaj{sign}data-class": "restricted",
        f"falaj{sign}cost-center": "ai-42",
        f"falaj{sign}environment": "production",
        f"falaj{sign}component": "keys",
    }


def test_only_provisioner_and_deployer_go_together() -> None:
    together = [pair for pair in combinations(DUTIES, 2) if frozenset(pair) not in CONFLICTS]
    assert together == [("provisioner", "deployer")]
    assert conflict(("provisioner", "deployer")) is None
    clash = conflict(("provisioner", "deployer", "trainer"))
    assert clash is not None
    assert clash[2]


MEMBERS = st.dictionaries(
    st.sampled_from(DUTIES),
    st.lists(
        st.sampled_from([f"arn:aws:iam::000000000000:user/u{number}" for number in range(4)]),
        unique=True,
    ),
)


@given(MEMBERS)
def test_whoever_is_let_in_holds_no_two_duties_that_conflict(
    members: dict[str, list[str]],
) -> None:
    args: Any = {
        "region": "me-central-1",
        "acknowledge_degraded": "2026-04-30",
        "tenant": "acme",
        "owner": "o",
        "data_class": "internal",
        "cost_center": "c",
        "bucket_ids": {},
        "repository_ids": {},
        "key_ids": {},
        "members": members,
    }
    held: dict[str, set[str]] = {}
    for duty, principals in members.items():
        for principal in principals:
            held.setdefault(principal, set()).add(duty)
    clash = any(pair <= duties for duties in held.values() for pair in CONFLICTS)
    try:
        found = identity.check("aws", "i", args)
    except Exception as error:
        assert clash
        assert "give one of the duties to somebody else" in str(error)
    else:
        assert not clash
        assert {duty for duty, who in found.members.items() if who} == {
            duty for duty, who in members.items() if who
        }


PARTS = st.lists(st.text(max_size=40), min_size=1, max_size=4).filter(
    lambda parts: any(any(c.isascii() and c.isalnum() for c in part) for part in parts)
)


@given(PARTS, st.integers(20, 64))
def test_names_fit_and_are_the_same_in_each_run(parts: list[str], limit: int) -> None:
    name = physical_name(*parts, limit=limit)
    assert 1 <= len(name) <= limit
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name == physical_name(*parts, limit=limit)


@given(st.lists(PARTS, min_size=2, max_size=2, unique_by=tuple), st.integers(20, 64))
def test_unique_names_tell_look_alikes_apart(pair: list[list[str]], limit: int) -> None:
    one, other = pair
    assert unique_name(*one, limit=limit) != unique_name(*other, limit=limit)
