"""Each argument of the foundation's components on Azure that isn't left at its default."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.components.azure import (
    AuditTrail,
    Budget,
    Identity,
    ObjectStore,
    RegionProvider,
    Registry,
    TrainingFileSystem,
    WorkloadIdentity,
)
from falaj.components.azure._component import compact, dashed, titled
from falaj.components.azure._ids import bucket_id
from falaj.components.azure._roles import Permissions
from falaj.components.azure._storage import vault_of
from falaj.components.specification import audit_trail
from falaj.components.specification import placed as placed_module
from falaj.components.specification.argument_errors import ArgumentErrors
from tests.components.azure.conftest import NETWORK, PLACED, SOMEBODY, USER, VAULT, Deployed, key
from tests.components.azure.conftest import deploy as deploy_now
from tests.components.azure.foundation import Foundation

Deploy = Callable[..., Deployed]
SUBNET = f"{NETWORK}/subnets/endpoints"
REACHED = {"network_id": NETWORK, "endpoint_subnet_id": SUBNET, "key_identity_id": USER}
STORE = {
    **REACHED,
    "data_key_id": key("data"),
    "log_key_id": key("logs"),
    "state_key_id": key("state"),
}
FILES = {
    **REACHED,
    "key_ring_id": VAULT,
    "data_key_id": key("data"),
    "storage_subnet_ids": dict.fromkeys("123", SUBNET),
    "security_group_id": "rules",
}
TRAIL = {
    **REACHED,
    "key_ring_id": VAULT,
    "log_key_id": key("logs"),
    "audit_bucket_name": "audit",
    "audit_store_id": "store",
}
IMAGES = {**REACHED, "registry_key_id": key("registry"), "key_ring_id": VAULT}
PEOPLE = {
    "bucket_ids": {"datasets": "x"},
    "repository_ids": {"training": "x"},
    "key_ids": {},
    "key_ring_id": VAULT,
}
MONEY = {"monthly_usd": 10, "emails": ["finance@acme.ae"]}
PODS = {
    "cluster_id": "cluster",
    "issuer_url": "https://issuer",
    "namespace": "training",
    "service_account": "jobs",
    "duty": "trainer",
    "bucket_ids": {"datasets": "x"},
    "data_key_id": key("data"),
}


@pytest.mark.parametrize(
    ("kind", "least", "changes", "reason"),
    [
        (ObjectStore, STORE, {"redundancy": "geo"}, "copied to uaecentral: name it in allowed"),
        (ObjectStore, STORE, {"redundancy": "world"}, "local, zone, geo"),
        (ObjectStore, STORE, {"allowed_regions": ["uaecentral"]}, "with uaenorth among them"),
        (ObjectStore, STORE, {"allowed_regions": ["uaenorth", "westeurope"]}, "westeurope"),
        (ObjectStore, STORE, {"region": "uaecentral", "redundancy": "zone"}, "has no zones"),
        (ObjectStore, STORE, {"buckets": ["data"]}, r"buckets\[0\]"),
        (ObjectStore, STORE, {"audit_retention_days": 0}, "audit_retention_days"),
        (ObjectStore, STORE, {"old_version_days": 400}, "from 1 to 365"),
        (ObjectStore, STORE, {"network_id": None}, "network_id: missing; needed on Azure"),
        (ObjectStore, STORE, {"endpoint_subnet_id": None}, "endpoint_subnet_id: missing"),
        (ObjectStore, STORE, {"key_identity_id": None}, "key_identity_id: missing"),
        (Registry, IMAGES, {"keep_images": 10}, "counts no images"),
        (Registry, IMAGES, {"upstreams": ["docker.io"]}, r"upstreams\[0\]"),
        (Registry, IMAGES, {"upstreams": ["nvcr.io"]}, "copy their images"),
        (Registry, IMAGES, {"repositories": ["Training"]}, r"repositories\[0\]"),
        (Registry, IMAGES, {"quarantine": 1}, "true or false"),
        (TrainingFileSystem, FILES, {"service": "lustre"}, "unknown; take 'netapp'"),
        (TrainingFileSystem, FILES, {"service": "efs"}, "netapp, lustre"),
        (TrainingFileSystem, FILES, {"throughput_mbs_per_tib": 250}, "only Lustre has it"),
        (TrainingFileSystem, FILES, {"capacity_gib": 1500}, "whole TiB"),
        (TrainingFileSystem, FILES, {"zone": "9"}, "zone"),
        (TrainingFileSystem, FILES, {"homes": False, "homes_gib": 512}, "without homes"),
        (TrainingFileSystem, FILES, {"homes_gib": 50}, "from 100"),
        (TrainingFileSystem, FILES, {"key_ring_id": None}, "key_ring_id: missing"),
        (Identity, PEOPLE, {"session_minutes": 60}, "Privileged Identity Management"),
        (Identity, PEOPLE, {"key_ring_id": None}, "key_ring_id: missing; needed on Azure"),
        (Identity, PEOPLE, {"members": {"auditor": ["soc"]}}, "object id"),
        (Identity, PEOPLE, {"members": {"boss": [SOMEBODY]}}, "provisioner, trainer"),
        (
            Identity,
            PEOPLE,
            {"members": {"trainer": [SOMEBODY], "auditor": [SOMEBODY]}},
            "is trainer and auditor",
        ),
        (AuditTrail, TRAIL, {"network_id": None}, "network_id: missing; needed on Azure"),
        (AuditTrail, TRAIL, {"retention_days": 1000}, "from 30 to 730"),
        (AuditTrail, TRAIL, {"alert_emails": ["soc"]}, "alert_emails"),
        (
            AuditTrail,
            TRAIL,
            {"alert_emails": ["a@acme.ae"], "threat_detection": False},
            "no findings to tell",
        ),
        (AuditTrail, TRAIL, {"dedicated_logs": "no"}, "true or false"),
        (Budget, MONEY, {"monthly_usd": 0}, "US dollars"),
        (Budget, MONEY, {"emails": []}, "emails"),
        (Budget, MONEY, {"alert_percent": [10, 20, 30, 40, 50]}, "1 to 4"),
        (Budget, MONEY, {"start": "2026"}, "a month: year"),
        (WorkloadIdentity, PODS, {"duty": "auditor"}, "trainer, deployer"),
        (WorkloadIdentity, PODS, {"namespace": "kube-system"}, "of your own"),
        (WorkloadIdentity, PODS, {"service_account": "default"}, "of its own"),
    ],
)
def test_refuses(
    deploy: Deploy, kind: Any, least: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    args = {k: v for k, v in {**PLACED, **least, **changes}.items() if v is not None}
    with pytest.raises(pulumi.InputPropertiesError, match=reason):
        deploy(lambda opts: kind("it", args, opts))


def test_a_region_abroad_has_no_provider() -> None:
    with pytest.raises(pulumi.InputPropertyError, match="westeurope"):
        RegionProvider("abroad", {"region": "westeurope"})


def test_the_provider_is_pinned(deploy: Deploy) -> None:
    made = deploy(lambda opts: Budget("money", {**PLACED, **MONEY}, opts))  # type: ignore[typeddict-item]
    provider = made.one("azure") if made.of_type("azure") else made.named("azure")
    assert provider.inputs["location"] == "uaenorth"
    assert provider.inputs["subscriptionId"]
    assert provider.inputs["disablePulumiPartnerId"] in (True, "true")


def chosen(opts: pulumi.ResourceOptions) -> dict[str, Any]:
    """A small foundation in which every argument is chosen."""
    foundation = Foundation(opts, environment="test", data_class="internal")
    store = foundation.store(
        buckets=["datasets", "audit"],
        redundancy="geo",
        allowed_regions=["uaenorth", "uaecentral"],
        old_version_days=7,
    )
    trail = foundation.trail(threat_detection=False, retention_days=90, dedicated_logs=True)
    registry = foundation.registry(quarantine=True, log_destination_id=trail.log_destination_id)
    files = foundation.files(zone="2", capacity_gib=4096, homes=False)
    foundation.people(members={"auditor": [SOMEBODY]})
    foundation.budget(start="2026-11", alert_percent=[90], monthly_usd=500.5)
    values = {"store": store, "trail": trail, "registry": registry, "files": files}
    return {
        f"{name}.{output}": value
        for name, part in values.items()
        for output, value in vars(part).items()
        if isinstance(value, pulumi.Output)
    }


WARNED: list[str] = []


@pytest.fixture(scope="module", name="made")
def _made() -> Deployed:
    def warn(message: str, *_: object) -> None:
        WARNED.append(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulumi.log, "warn", warn)
        return deploy_now(chosen)


@pytest.mark.usefixtures("made")
def test_a_cluster_of_logs_comes_with_a_warning() -> None:
    (warning,) = WARNED
    assert "dedicated_logs" in warning
    assert "set dedicated_logs to false" in warning


def test_outside_of_production_all_of_it_goes(made: Deployed) -> None:
    own = [each for each in made.resources if each.type.startswith("azure-native:")]
    assert len(own) > 80
    assert [each.name for each in own if made.kept(each.name)] == []
    assert not made.of_type("authorization:ManagementLockByScope")
    audit = made.named("store-audit-account").inputs
    assert "immutableStorageWithVersioning" not in audit, "it could not be deleted"


@pytest.mark.parametrize(
    ("placed", "dedicated"),
    [
        ({"data_class": "restricted"}, True),
        ({"data_class": "internal"}, False),
        ({"data_class": "public", "dedicated_logs": True}, True),
        ({"data_class": "restricted", "dedicated_logs": False}, False),
    ],
)
def test_whose_logs_are_in_a_cluster_of_their_own(placed: dict[str, Any], dedicated: bool) -> None:
    args: Any = {**PLACED, **TRAIL, **placed}
    assert audit_trail.check("azure", "it", args).dedicated_logs is dedicated


def test_people_take_a_duty_up_with_a_second_factor(made: Deployed) -> None:
    eligible = made.of_type("authorization:PimRoleEligibilitySchedule")
    audit = made.named("store-audit-account").id
    subscription = "/".join(audit.split("/")[:3])
    assert {each.inputs["scope"] for each in eligible} == {audit, subscription}
    for each in eligible:
        assert each.inputs["principalId"] == SOMEBODY
        expiration = each.inputs["scheduleInfo"]["expiration"]
        assert expiration == {"type": "AfterDuration", "duration": "P365D"}
    given = made.of_type("authorization:RoleAssignment")
    assert SOMEBODY not in {each.inputs["principalId"] for each in given}


def test_geo_redundancy_stays_in_the_country(made: Deployed) -> None:
    for name in ("store-data-account", "store-audit-account"):
        assert made.named(name).inputs["sku"] == {"name": "Standard_GZRS"}


def test_only_the_buckets_that_are_asked_for(made: Deployed) -> None:
    assert list(made.outputs["store.bucket_names"]) == ["datasets", "audit"]
    assert "store-state-account" not in {each.name for each in made.resources}


def test_days_of_old_versions(made: Deployed) -> None:
    service = made.named("store-data-objects").inputs
    assert service["deleteRetentionPolicy"]["days"] == 7
    [rule] = made.named("store-data-lifecycle").inputs["policy"]["rules"]
    version = rule["definition"]["actions"]["version"]["delete"]
    assert version == {"daysAfterCreationGreaterThan": 7}


def test_no_threat_detection(made: Deployed) -> None:
    plans = made.of_type("security:Pricing")
    assert {each.inputs["pricingTier"] for each in plans} == {"Free"}
    assert not any({"subPlan", "extensions"} & set(each.inputs) for each in plans)
    assert all(made.request(each.name).retainOnDelete for each in plans)
    for before, after in pairwise(plans):
        assert any(
            urn.endswith(f"::{before.name}") for urn in made.request(after.name).dependencies
        ), "one after the other"
    assert len(plans) == 5
    assert not made.of_type("security:SecurityContact")


def test_a_cluster_of_logs_and_their_days(made: Deployed) -> None:
    assert made.of_type("operationalinsights:Cluster")
    assert made.one("operationalinsights:Workspace").inputs["retentionInDays"] == 90


def test_quarantine_and_the_registrys_own_log(made: Deployed) -> None:
    policies = made.one("containerregistry:Registry").inputs["policies"]
    assert policies["quarantinePolicy"] == {"status": "enabled"}
    log = made.named("images-logs").inputs
    assert log["workspaceId"] == made.outputs["trail.log_destination_id"]
    assert log["resourceUri"] == made.outputs["registry.registry_id"]


def test_files_without_homes_in_a_zone_of_choice(made: Deployed) -> None:
    volume = made.one("netapp:CapacityPoolVolume").inputs
    assert volume["zones"] == ["2"]
    assert volume["usageThreshold"] == 4096 * 1024**3
    assert not made.of_type("storage:FileShare")
    assert made.outputs["files.homes_id"] is None
    assert made.outputs["files.homes_address"] is None


def test_a_budget_from_a_month_on(made: Deployed) -> None:
    budget = made.one("consumption:Budget")
    assert budget.inputs["timePeriod"] == {"startDate": "2026-11-01T00:00:00Z"}
    assert budget.inputs["amount"] == 500.5
    assert set(budget.inputs["notifications"]) == {"actual-90", "forecast"}
    assert made.ignored(budget.name) == []


def test_a_duty_whose_bucket_is_missing_is_named() -> None:
    async def look_up() -> Any:
        return await bucket_id({"datasets": "x"}, "models").future()

    with pytest.raises(pulumi.RunError, match="has no 'models', only datasets"):
        asyncio.run(look_up())


def test_managed_lustre_where_the_catalogue_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = catalogue.Place.service

    def sold(self: catalogue.Place, name: str) -> catalogue.Service:
        return dataclasses.replace(known(self, name), available=True)

    monkeypatch.setattr(catalogue.Place, "service", sold)
    made = deploy_now(
        lambda opts: Foundation(opts, environment="test").files(
            service="lustre", throughput_mbs_per_tib=500, homes_gib=512
        )
    )
    lustre = made.one("storagecache:AmlFilesystem").inputs
    assert lustre["sku"] == {"name": "AMLFS-Durable-Premium-500"}
    assert lustre["storageCapacityTiB"] == 4
    assert lustre["filesystemSubnet"].endswith("/subnets/nodes")
    settings = lustre["encryptionSettings"]["keyEncryptionKey"]
    assert "/keys/data/" in settings["keyUrl"], "a version"
    assert made.one("storage:FileShare").inputs["shareQuota"] == 512


def test_keys_of_a_module_are_refused_where_a_service_takes_none() -> None:
    with pytest.raises(ValueError, match="leave managed_hsm"):
        vault_of("https://acme-hsm.managedhsm.azure.net/keys/data")


@pytest.mark.parametrize("operation", ["*", " * ", "*/write", "*/delete"])
def test_a_role_never_allows_everything(operation: str) -> None:
    with pytest.raises(ValueError, match="allows everything"):
        Permissions("all", actions=(operation,))
    with pytest.raises(ValueError, match="allows everything"):
        Permissions("all", data_actions=(operation,))


_TENANT = st.from_regex(r"[a-z][a-z0-9-]{0,18}[a-z0-9]", fullmatch=True)
_TITLE = st.from_regex(r"[a-zA-Z][a-zA-Z0-9._-]{0,60}", fullmatch=True)


@given(_TENANT, _TITLE, _TITLE)
def test_names_are_what_azure_takes(tenant: str, stack: str, title: str) -> None:
    errors = ArgumentErrors("Test")
    placed = placed_module.check_placed("azure", {**PLACED, "tenant": tenant}, errors)
    assert placed
    pulumi.runtime.settings.configure(
        pulumi.runtime.settings.Settings(project="falaj", stack=stack)
    )
    vault = dashed(placed, title)
    assert 3 <= len(vault) <= 24
    assert vault[0].isalpha()
    assert "--" not in vault
    assert vault[-1] != "-"
    for kind, limit in (("storage", 24), ("registry", 50)):
        name = compact(placed, kind, title)
        assert 5 <= len(name) <= limit
        assert name.isalnum()
        assert name == name.lower()
    assert len(titled(placed, title, "firewall")) <= 50


def test_dedicated_logs_are_in_a_cluster_under_our_key(made: Deployed) -> None:
    cluster = made.one("operationalinsights:Cluster")
    key = cluster.inputs["keyVaultProperties"]
    assert (key["keyName"], key["keyVersion"]) == ("logs", "")
    assert cluster.inputs["isDoubleEncryptionEnabled"] is True
    assert cluster.inputs["sku"] == {"name": "CapacityReservation", "capacity": 100}
    link = made.one("operationalinsights:LinkedService").inputs
    assert link["writeAccessResourceId"] == cluster.id
