"""What the foundation's components refuse, on either cloud; the reason says what to change."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pulumi
import pytest

from falaj.components.specification import (
    audit_trail,
    budget,
    identity,
    key_ring,
    network,
    object_store,
    registry,
    training_file_system,
    workload_identity,
)

AZURE_ONLY = {
    "key_identity_id": "identity",
    "key_ring_id": "ring",
    "endpoint_subnet_id": "subnet",
    "network_id": "network",
}

#: The least that each check takes, on both clouds.
LEAST: dict[ModuleType, dict[str, Any]] = {
    audit_trail: {
        "log_key_id": "key",
        "audit_bucket_name": "bucket",
        "audit_store_id": "store",
        **AZURE_ONLY,
    },
    budget: {"monthly_usd": 100, "emails": ["ops@acme.example"]},
    identity: {"bucket_ids": {}, "repository_ids": {}, "key_ids": {}, "key_ring_id": "ring"},
    key_ring: {},
    network: {"log_key_id": "key", "key_identity_id": "identity"},
    object_store: {
        "data_key_id": "key",
        "log_key_id": "key",
        "state_key_id": "key",
        "key_identity_id": "identity",
        "network_id": "network",
        "endpoint_subnet_id": "subnet",
    },
    registry: {
        "registry_key_id": "key",
        "key_identity_id": "identity",
        "key_ring_id": "ring",
        "network_id": "network",
        "endpoint_subnet_id": "subnet",
    },
    training_file_system: {
        "data_key_id": "key",
        "storage_subnet_ids": {"mec1-az1": "subnet", "1": "subnet"},
        "security_group_id": "group",
        **AZURE_ONLY,
    },
    workload_identity: {
        "cluster_id": "cluster",
        "issuer_url": "https://issuer.example",
        "namespace": "training",
        "service_account": "trainer",
        "duty": "trainer",
        "bucket_ids": {},
        "data_key_id": "key",
    },
}

#: Component, change of its arguments, argument that is refused, part of the reason. On both.
Case = tuple[ModuleType, dict[str, Any], str, str]
BOTH: list[Case] = [
    (audit_trail, {"retention_days": 29.5}, "retention_days", "whole number"),
    (audit_trail, {"retention_days": 0}, "retention_days", "allowed"),
    (audit_trail, {"threat_detection": "yes"}, "threat_detection", "true or false"),
    (audit_trail, {"alert_emails": ["ops"]}, "alert_emails[0]", "ops@example.ae"),
    (
        audit_trail,
        {"alert_emails": [f"a{number}@b.example" for number in range(11)]},
        "alert_emails",
        "given 11",
    ),
    (
        audit_trail,
        {"alert_emails": ["a@b.example"], "threat_detection": False},
        "alert_emails",
        "no findings",
    ),
    (budget, {"monthly_usd": 0}, "monthly_usd", "from 1"),
    (budget, {"monthly_usd": float("inf")}, "monthly_usd", "from 1"),
    (budget, {"monthly_usd": True}, "monthly_usd", "from 1"),
    (budget, {"monthly_usd": None}, "monthly_usd", "missing"),
    (budget, {"emails": []}, "emails", "given 0"),
    (budget, {"emails": "ops@acme.example"}, "emails", "list"),
    (budget, {"emails": ["a@b.example", "a@b.example"]}, "emails[1]", "only once"),
    (budget, {"alert_percent": [0]}, "alert_percent[0]", "1 to 1000"),
    (budget, {"alert_percent": []}, "alert_percent", "1 to 4"),
    (budget, {"alert_percent": [10, 20, 30, 40, 50]}, "alert_percent", "1 to 4"),
    (budget, {"alert_percent": [50, 50]}, "alert_percent", "only once"),
    (budget, {"alert_percent": 80}, "alert_percent", "list"),
    (budget, {"start": "2026-13"}, "start", "2026-11"),
    (identity, {"members": ["amal"]}, "members", "by duty"),
    (identity, {"members": {"boss": []}}, "members", "provisioner"),
    (identity, {"members": {"trainer": ["*"]}}, "members.trainer[0]", "allowed"),
    (identity, {"require_mfa": 1}, "require_mfa", "true or false"),
    (identity, {"session_minutes": 59}, "session_minutes", "60 to 720"),
    (identity, {"session_minutes": 721}, "session_minutes", "60 to 720"),
    (key_ring, {"purposes": ["backup"]}, "purposes[0]", "registry"),
    (key_ring, {"purposes": []}, "purposes", "at least one"),
    (key_ring, {"administrators": ["*"]}, "administrators[0]", "allowed"),
    (key_ring, {"rotation_days": 89}, "rotation_days", "90 to 2560"),
    (key_ring, {"rotation_days": 2561}, "rotation_days", "90 to 2560"),
    (key_ring, {"deletion_window_days": 6}, "deletion_window_days", "7 to 30"),
    (key_ring, {"deletion_window_days": 31}, "deletion_window_days", "7 to 30"),
    (key_ring, {"managed_hsm": "no"}, "managed_hsm", "true or false"),
    (network, {"log_key_id": None}, "log_key_id", "missing"),
    (network, {"cidr": "10.0.0.0/23"}, "cidr", "/16 to /22"),
    (network, {"cidr": "10.0.0.0/15"}, "cidr", "/16 to /22"),
    (network, {"cidr": "8.8.0.0/16"}, "cidr", "inside"),
    (network, {"cidr": "10.0.0.1/16"}, "cidr", "host bits"),
    (network, {"cidr": "fd00::/16"}, "cidr", "/16 to /22"),
    (network, {"cidr": 16}, "cidr", "/16 to /22"),
    (network, {"zones": []}, "zones", "at least one"),
    (network, {"zones": ["elsewhere"]}, "zones[0]", "allowed"),
    (network, {"egress_domains": ["*.models.example.ae"]}, "egress_domains[0]", "'*'"),
    (network, {"egress_domains": ["https://models.example.ae"]}, "egress_domains[0]", "scheme"),
    (network, {"egress_domains": ["192.0.2.1"]}, "egress_domains[0]", "address"),
    (network, {"egress_domains": [".ae"]}, "egress_domains[0]", "two labels"),
    (network, {"egress_domains": ["ae"]}, "egress_domains[0]", "two labels"),
    (
        network,
        {"egress_domains": ["Models.example.ae", "models.example.ae"]},
        "egress_domains[1]",
        "only once",
    ),
    (network, {"organization_id": "acme"}, "organization_id", "o-"),
    (network, {"purpose": "inference"}, "purpose", "cluster, serving"),
    (network, {"flow_log_days": 0}, "flow_log_days", "allowed"),
    (object_store, {"buckets": ["backups"]}, "buckets[0]", "checkpoints"),
    (object_store, {"buckets": []}, "buckets", "at least one"),
    (object_store, {"audit_retention_days": 0}, "audit_retention_days", "1 to 36500"),
    (object_store, {"old_version_days": 366}, "old_version_days", "1 to 365"),
    (object_store, {"redundancy": "global"}, "redundancy", "local, zone, geo"),
    (object_store, {"allowed_regions": ["eu-west-1"]}, "allowed_regions[0]", "eu-west-1"),
    (object_store, {"data_key_id": None}, "data_key_id", "missing"),
    (registry, {"repositories": ["Images"]}, "repositories[0]", "lower-case letters"),
    (registry, {"repositories": ["a"]}, "repositories[0]", "2 to 128"),
    (registry, {"repositories": []}, "repositories", "at least one"),
    (registry, {"upstreams": ["docker.io"]}, "upstreams[0]", "copy their images"),
    (registry, {"keep_images": 0}, "keep_images", "1 to 10000"),
    (registry, {"quarantine": 1}, "quarantine", "true or false"),
    (training_file_system, {"service": "nfs"}, "service", "lustre"),
    (training_file_system, {"zone": "elsewhere"}, "zone", "allowed"),
    (training_file_system, {"homes": "yes"}, "homes", "true or false"),
    (training_file_system, {"network_id": None}, "network_id", "missing"),
    (workload_identity, {"namespace": "Training"}, "namespace", "lower-case letters"),
    (workload_identity, {"namespace": "kube-system"}, "namespace", "cluster's"),
    (workload_identity, {"service_account": "default"}, "service_account", "of its own"),
    (workload_identity, {"service_account": "-a"}, "service_account", "not at either end"),
    (workload_identity, {"duty": "auditor"}, "duty", "trainer, deployer"),
]

ONE_CLOUD: list[tuple[str, ModuleType, dict[str, Any], str, str]] = [
    ("aws", audit_trail, {"retention_days": 8}, "retention_days", "14 is the next"),
    ("aws", audit_trail, {"detector_id": "d-1"}, "detector_id", "list-detectors"),
    (
        "aws",
        audit_trail,
        {"detector_id": "0" * 32, "threat_detection": False},
        "detector_id",
        "set threat_detection",
    ),
    ("azure", audit_trail, {"detector_id": "0" * 32}, "detector_id", "leave it out"),
    ("aws", audit_trail, {"dedicated_logs": True}, "dedicated_logs", "leave it out"),
    ("aws", key_ring, {"managed_hsm": True}, "managed_hsm", "choose Azure"),
    (
        "aws",
        network,
        {"purpose": "serving", "egress_domains": ["models.example.ae"]},
        "egress_domains",
        "only nodes use the firewall",
    ),
    ("aws", network, {"flow_log_days": 366}, "flow_log_days", "400 is the next"),
    ("aws", object_store, {"redundancy": "local"}, "redundancy", "several zones"),
    ("aws", object_store, {"redundancy": "geo"}, "redundancy", "one region"),
    ("aws", registry, {"upstreams": ["nvcr.io"]}, "upstreams[0]", "copy their images"),
    ("aws", training_file_system, {"service": "netapp"}, "service", "lustre"),
    (
        "aws",
        training_file_system,
        {"throughput_mbs_per_tib": 200},
        "throughput_mbs_per_tib",
        "125, 250, 500",
    ),
    (
        "aws",
        training_file_system,
        {"deployment_type": "persistent-1", "throughput_mbs_per_tib": 250},
        "throughput_mbs_per_tib",
        "allowed: 50, 100, 200; on deployment_type 'persistent-1'",
    ),
    ("aws", training_file_system, {"deployment_type": "scratch-2"}, "deployment_type", "-2"),
    (
        "azure",
        training_file_system,
        {"deployment_type": "persistent-2"},
        "deployment_type",
        "only FSx for Lustre",
    ),
    ("aws", training_file_system, {"capacity_gib": 1}, "capacity_gib", "1200"),
    ("azure", training_file_system, {"service": "lustre"}, "service", "unknown"),
    ("aws", training_file_system, {"capacity_gib": 3600}, "capacity_gib", "4800"),
    ("aws", training_file_system, {"homes_gib": 512}, "homes_gib", "grows by itself"),
    ("aws", training_file_system, {"zone": "mec1-az3"}, "zone", "name it in zones"),
    (
        "aws",
        identity,
        {"members": {"trainer": ["arn:aws:sts::000000000000:assumed-role/a/b"]}},
        "members.trainer[0]",
        "not a session",
    ),
    ("aws", registry, {"quarantine": True}, "quarantine", "leave it out"),
    ("aws", registry, {"first_key": True}, "first_key", "leave it out"),
    ("azure", registry, {"keep_images": 5}, "keep_images", "leave it out"),
    ("azure", identity, {"session_minutes": 60}, "session_minutes", "leave it out"),
    ("azure", identity, {"key_ring_id": None}, "key_ring_id", "on Azure"),
    ("azure", identity, {"members": {"trainer": ["amal"]}}, "members.trainer[0]", "GUID"),
    (
        "azure",
        key_ring,
        {
            "administrators": [
                "AAAAAAAA-0000-0000-0000-000000000000",
                "aaaaaaaa-0000-0000-0000-000000000000",
            ]
        },
        "administrators[1]",
        "only once",
    ),
    ("azure", audit_trail, {"retention_days": 29}, "retention_days", "30"),
    ("azure", audit_trail, {"key_identity_id": None}, "key_identity_id", "on Azure"),
    ("azure", network, {"key_identity_id": None}, "key_identity_id", "on Azure"),
    ("azure", network, {"api_callers": ["10.20.0.0/16"]}, "api_callers", "reach the API server"),
    ("azure", object_store, {"endpoint_subnet_id": None}, "endpoint_subnet_id", "on Azure"),
    ("azure", object_store, {"redundancy": "geo"}, "redundancy", "name it in allowed_regions"),
    ("azure", object_store, {"allowed_regions": ["uaecentral"]}, "allowed_regions", "uaenorth"),
    ("azure", registry, {"network_id": None}, "network_id", "on Azure"),
    ("azure", training_file_system, {"key_ring_id": None}, "key_ring_id", "on Azure"),
    ("azure", training_file_system, {"capacity_gib": 1500}, "capacity_gib", "whole TiB"),
    (
        "azure",
        training_file_system,
        {"throughput_mbs_per_tib": 250},
        "throughput_mbs_per_tib",
        "only Lustre",
    ),
    (
        "azure",
        training_file_system,
        {"service": "lustre", "capacity_gib": 12000},
        "capacity_gib",
        "multiples of 8192",
    ),
    (
        "azure",
        training_file_system,
        {"homes": False, "homes_gib": 256},
        "homes_gib",
        "without homes",
    ),
    ("azure", training_file_system, {"homes_gib": 99}, "homes_gib", "100"),
]

Refused = Callable[..., dict[str, str]]
Shared = Callable[[str], dict[str, Any]]


def _label(case: Case) -> str:
    return f"{case[0].__name__.rpartition('.')[2]}-{case[2]}"


def _root(path: str) -> str:
    return path.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0]


def _args(module: ModuleType, shared: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {**shared, **LEAST[module], **change}


@pytest.mark.parametrize("case", BOTH, ids=_label)
def test_is_refused_on_both_clouds(
    cloud: str, case: Case, shared: Shared, refused: Refused
) -> None:
    module, change, argument, reason = case
    found = refused(module.check, cloud, _args(module, shared(cloud), change))
    assert reason in found[argument]
    assert {_root(each) for each in found} == {_root(argument)}


@pytest.mark.parametrize("case", ONE_CLOUD, ids=lambda case: f"{case[0]}-{_label(case[1:])}")
def test_is_refused_on_one_cloud(
    case: tuple[str, ModuleType, dict[str, Any], str, str], shared: Shared, refused: Refused
) -> None:
    which, module, change, argument, reason = case
    found = refused(module.check, which, _args(module, shared(which), change))
    assert reason in found[argument]


@pytest.mark.parametrize("module", LEAST, ids=lambda module: module.__name__.rpartition(".")[2])
def test_shared_arguments_are_checked_everywhere(
    cloud: str, module: ModuleType, shared: Shared, refused: Refused
) -> None:
    change = {
        "tenant": "Acme!",
        "owner": "",
        "data_class": "secret",
        "cost_center": 7,
        "environment": "prod",
        "tennant": "acme",
    }
    found = refused(module.check, cloud, _args(module, shared(cloud), change))
    assert set(found) == set(change)
    assert "did you mean 'tenant'?" in found["tennant"]


@pytest.mark.parametrize("module", LEAST, ids=lambda module: module.__name__.rpartition(".")[2])
@pytest.mark.parametrize("region", ["eu-west-1", "westeurope", "me-south-1", ""])
def test_no_region_abroad(
    cloud: str, region: str, module: ModuleType, shared: Shared, refused: Refused
) -> None:
    found = refused(module.check, cloud, _args(module, shared(cloud), {"region": region}))
    assert list(found) == ["region"]


@pytest.mark.parametrize("module", LEAST, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_degraded_region_has_to_be_acknowledged_by_its_date(
    module: ModuleType, shared: Shared, refused: Refused
) -> None:
    change = {"acknowledge_degraded": "2026-01-01"}
    found = refused(module.check, "aws", _args(module, shared("aws"), change))
    assert list(found) == ["acknowledge_degraded"]
    assert "2026-04-30" in found["acknowledge_degraded"]


def test_an_output_is_no_plain_value(cloud: str, shared: Shared, refused: Refused) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULUMI_ERROR_OUTPUT_STRING", "0")
        change: dict[str, Any] = {"tenant": pulumi.Output.from_input("acme")}
        found = refused(network.check, cloud, _args(network, shared(cloud), change))
    assert "known before anything runs" in found["tenant"]


def test_every_problem_is_told_at_once(shared: Shared, refused: Refused) -> None:
    change = {"cidr": "10.0.0.0/8", "flow_log_days": 2, "egress_domains": ["ae"]}
    found = refused(network.check, "aws", _args(network, shared("aws"), change))
    assert set(found) == {"cidr", "flow_log_days", "egress_domains[0]"}
