from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import Settings as PackSettings
from falaj.stacks.errors import SettingsError
from falaj.stacks.sandbox_guard import check_sandbox_guard
from falaj.stacks.settings import (
    BLUEPRINTS,
    EXISTING,
    CloudSettings,
    ClusterSettings,
    LocalSettings,
    SmbSettings,
    load_engine,
    load_file,
    validate,
)
from falaj.stacks.settings.cloud import OwnFoundation, PolicySettings
from falaj.stacks.settings.given import Given, nest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "stacks").glob("Pulumi.*-*.yaml"))

OWNED = {
    "falaj:tenant": "shop",
    "falaj:owner": "it@example.ae",
    "falaj:dataClass": "internal",
    "falaj:costCenter": "it",
}
FOUNDATION = {"falaj:platform": "azure", "falaj:blueprint": "foundation", **OWNED}
CLUSTER = {
    **FOUNDATION,
    "falaj:blueprint": "cluster",
    "falaj:cpuPools": {"system": {"system": True}},
}


def refused(values: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        validate(values, ROOT, stack="shop")
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"falaj:blueprint": None}, "falaj:blueprint: given nothing; allowed: foundation, clu"),
        ({"falaj:blueprint": "palace"}, "falaj:blueprint: given 'palace'; allowed: foundation"),
        ({"falaj:platform": "gcp"}, "falaj:platform: given 'gcp'; allowed: local, aws, azure"),
        ({"falaj:region": "westeurope"}, "falaj:region: "),
        ({"falaj:region": "me-central-1"}, "falaj:region: "),
        ({"falaj:region": "me-south-1"}, "falaj:region: "),
        ({"falaj:tenant": "Shop!"}, "falaj:tenant: given 'Shop!'; allowed: 2 to 20 lower"),
        ({"falaj:tenant": None}, "falaj:tenant: missing"),
        ({"falaj:dataClass": "secret"}, "falaj:dataClass: given 'secret'; allowed: public"),
        ({"falaj:environment": "staging"}, "falaj:environment: given 'staging'; allowed: "),
        ({"falaj:keys": {"rotationDays": 7}}, "falaj:keys.rotationDays: given 7; allowed: a wh"),
        ({"falaj:network": {"cdir": "x"}}, "falaj:network.cdir: unknown key; did you mean cidr?"),
        ({"falaj:storage": {"redundancy": "world"}}, "falaj:storage.redundancy: given 'world'"),
        ({"falaj:identity": {"members": {"king": []}}}, "falaj:identity.members.king"),
        ({"falaj:budget": {"monthlyUsd": 0, "emails": ["a@b.ae"]}}, "falaj:budget.monthlyUsd: g"),
        ({"falaj:budget": {"monthlyUsd": 5, "emails": []}}, "falaj:budget.emails: given []"),
        ({"falaj:placement": ["azure/uaenorth"]}, "falaj:platform: given 'azure' beside falaj:pl"),
    ],
)
def test_refused(changes: dict[str, Any], start: str) -> None:
    values = {k: v for k, v in {**FOUNDATION, **changes}.items() if v is not None}
    assert refused(values).startswith(start)


@pytest.mark.parametrize(
    ("pools", "start"),
    [
        ({"train": {"gpu": "H200"}}, "falaj:gpuPools.train.count: missing"),
        ({"train": {"gpu": "H200", "count": 8, "gpus": 1}}, "falaj:gpuPools.train.gpus: unknown"),
        ({"train": {"gpu": "H200", "count": 0}}, "falaj:gpuPools.train.count: given 0; allowed"),
        ({"train": {"gpu": "H200", "count": 8, "capacity": "free"}}, "falaj:gpuPools.train.capac"),
        ({"Train-1": {"gpu": "H200", "count": 8}}, "falaj:gpuPools.Train-1"),
        ([], "falaj:gpuPools: given []; allowed: a section of keys"),
    ],
)
def test_pools_are_refused_with_their_path(pools: Any, start: str) -> None:
    assert refused({**CLUSTER, "falaj:gpuPools": pools}).startswith(start)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["azure/westeurope"], "falaj:placement[0]: given 'azure/westeurope'; allowed: "),
        (["aws/us-east-1", "azure/uaenorth"], "falaj:placement[0]: given 'aws/us-east-1'; all"),
        (["gcp/me-central1"], "falaj:placement[0]: given 'gcp/me-central1'; allowed: "),
        (["kubernetes/lab"], "falaj:placement[0]: given 'kubernetes/lab'; allowed: "),
        ([""], "falaj:placement[0]: given ''"),
    ],
)
def test_places_abroad_are_refused(places: list[str], said: str) -> None:
    values = {k: v for k, v in FOUNDATION.items() if k != "falaj:platform"}
    assert refused({**values, "falaj:placement": places}).startswith(said)


@given(st.text(max_size=30))
def test_no_region_but_the_countrys_is_ever_taken(region: str) -> None:
    try:
        found = validate({**FOUNDATION, "falaj:region": region}, ROOT, stack="shop")
    except SettingsError:
        return
    assert isinstance(found, CloudSettings)
    assert found.places[0] in ("azure/uaenorth", "azure/uaecentral")


def test_a_region_beside_places_is_refused() -> None:
    values = {k: v for k, v in FOUNDATION.items() if k != "falaj:platform"}
    message = refused({**values, "falaj:placement": ["azure/uaenorth"], "falaj:region": "x"})
    assert "remove it with: pulumi config rm falaj:region -s shop" in message


def test_places_keep_their_order() -> None:
    values = {k: v for k, v in FOUNDATION.items() if k != "falaj:platform"}
    places = ["azure/uaenorth", "aws/me-central-1"]
    found = validate({**values, "falaj:placement": places}, ROOT, stack="shop")
    assert isinstance(found, CloudSettings)
    assert found.places == tuple(places)


def test_dotted_keys_stand_for_nested_ones() -> None:
    values = {**FOUNDATION, "falaj:keys.rotationDays": "180", "falaj:network": {"cidr": "x"}}
    nested = {**FOUNDATION, "falaj:keys": {"rotationDays": 180}, "falaj:network": {"cidr": "x"}}
    assert validate(values, ROOT, stack="shop") == validate(nested, ROOT, stack="shop")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"a": {"b": 1}, "a.b": 2}, "falaj:a.b: given twice"),
        ({"a": 1, "a.b": 2}, "falaj:a.b: falaj:a is given as 1"),
    ],
)
def test_a_dotted_key_that_contradicts_is_refused(values: dict[str, Any], said: str) -> None:
    given = Given({f"falaj:{key}": value for key, value in values.items()})
    _, found = nest(given)
    assert [str(given.problem(each)).startswith(said) for each in found] == [True]


def test_nesting_leaves_what_it_was_given_alone() -> None:
    values = {"falaj:a": {"b": {"c": 1}}, "falaj:a.b.d": 2}
    assert nest(Given(values)) == ({"a": {"b": {"c": 1, "d": 2}}}, [])
    assert values == {"falaj:a": {"b": {"c": 1}}, "falaj:a.b.d": 2}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_stacks_are_valid_for_the_sandbox_only_where_they_must(path: Path) -> None:
    found = load_file(path, ROOT)
    assert isinstance(found, CloudSettings)
    check_sandbox_guard(found, sandboxed=True)
    degraded = "me-central-1" in found.places[0]
    if degraded or isinstance(found, SmbSettings | ClusterSettings):
        with pytest.raises(SettingsError, match="allowed: "):
            check_sandbox_guard(found, sandboxed=False)


@pytest.mark.parametrize(
    ("cloud", "said", "administrator"),
    [
        ("aws", r"on aws, ARNs of roles or users", "arn:aws:iam::000000000000:role/platform"),
        ("azure", r"on azure, object ids of Entra", "00000000-0000-0000-0000-00000000a1b2"),
    ],
)
def test_a_cluster_that_nobody_administers_is_for_the_sandbox_alone(
    cloud: str, said: str, administrator: str
) -> None:
    values: dict[str, Any] = {
        **FOUNDATION,
        "falaj:blueprint": "cluster",
        "falaj:platform": cloud,
        "falaj:region": "me-central-1" if cloud == "aws" else "uaenorth",
        "falaj:cpuPools": {"cpu": {"system": True}},
    }
    if cloud == "aws":
        accepted = {"region": "me-central-1", "asOf": "2026-04-30", "for": "deployment"}
        values["falaj:acknowledgeDegraded"] = accepted
    for cluster in ({}, {"administrators": []}, {"viewers": [administrator]}):
        found = validate({**values, "falaj:cluster": cluster}, ROOT, stack="shop")
        assert isinstance(found, ClusterSettings)
        check_sandbox_guard(found, sandboxed=True)
        with pytest.raises(SettingsError, match=f"falaj:cluster.administrators: missing.*{said}"):
            check_sandbox_guard(found, sandboxed=False)
    named = {**values, "falaj:cluster": {"administrators": [administrator]}}
    found = validate(named, ROOT, stack="shop")
    assert isinstance(found, ClusterSettings)
    check_sandbox_guard(found, sandboxed=False)


def test_who_calls_the_api_is_said_by_the_stack_of_the_network() -> None:
    path = next(each for each in SHIPPED if each.name == "Pulumi.aws-cluster.yaml")
    values = yaml.safe_load(path.read_text("utf-8"))["config"]
    values["falaj:network"] = {"apiCallers": ["10.20.0.0/16"]}
    said = r"network\.apiCallers: given .*is of stack aws-foundation; write it there"
    with pytest.raises(SettingsError, match=said):
        validate(values, ROOT, stack="aws-cluster")


def test_a_stack_of_each_kind_is_shipped_for_each_platform() -> None:
    names = {path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in SHIPPED}
    in_clouds = {f"{cloud}-{kind}" for cloud in ("aws", "azure") for kind in BLUEPRINTS}
    assert names == in_clouds | {f"onprem-{kind}" for kind in EXISTING}


def test_a_stack_for_the_sandbox_is_refused_by_the_real_cloud() -> None:
    found = validate({**FOUNDATION, "falaj:sandbox": "true"}, ROOT, stack="shop")
    assert isinstance(found, CloudSettings)
    with pytest.raises(SettingsError, match="falaj:sandbox: given true, but this engine would"):
        check_sandbox_guard(found, sandboxed=False)
    check_sandbox_guard(found, sandboxed=True)


def test_an_unquoted_date_is_refused(tmp_path: Path) -> None:
    # The engine makes `2026-04-30 00:00:00 +0000 UTC` of it, which accepts nothing.
    path = tmp_path / "Pulumi.shop.yaml"
    accepted = {"region": "uaenorth", "for": "deployment"}
    config = {**FOUNDATION, "falaj:acknowledgeDegraded": accepted}
    text = yaml.safe_dump({"config": config})
    path.write_text(text.replace("for: deployment", "for: deployment\n    asOf: 2026-04-30"))
    with pytest.raises(SettingsError, match="asOf: given 2026-04-30 without quotes, read as a po"):
        load_file(path, ROOT)
    path.write_text(text.replace("for: deployment", 'for: deployment\n    asOf: "2026-04-30"'))
    found = load_file(path, ROOT)
    assert isinstance(found, CloudSettings)
    assert found.acknowledge_degraded is not None
    assert found.acknowledge_degraded.as_of == "2026-04-30"


def test_file_and_engine_give_the_same_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "stacks" / "Pulumi.azure-cluster.yaml"
    config = yaml.safe_load(path.read_text())["config"]
    handed = {
        key: json.dumps(value) if isinstance(value, dict | list) else str(value)
        for key, value in config.items()
    }
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(handed))
    found = load_engine("azure-cluster", ROOT)
    assert found == load_file(path, ROOT)
    assert isinstance(found, ClusterSettings)
    assert found.gpu_pools["h200"].count == 8


def test_a_projects_own_values_are_defaults_of_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text(
        "name: x\nconfig:\n  falaj:platform: {value: local}\n  falaj:retain: true\n  own: 5\n"
    )
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  falaj:retain: false\n")
    found = load_file(tmp_path / "Pulumi.dev.yaml", tmp_path)
    assert isinstance(found, LocalSettings)
    assert not found.retain


def test_a_stack_can_say_all_that_the_packs_can_be_told() -> None:
    own = {"data_class", "environment"}  # keys of every stack
    assert set(PolicySettings.model_fields) - {"packs"} == set(PackSettings.model_fields) - own


def test_what_the_packs_would_refuse_is_refused_first() -> None:
    given = FOUNDATION | {"falaj:policies": {"allowedPlaces": ["aws/eu-west-1"]}}
    assert refused(given).startswith(
        "falaj:policies.allowedPlaces[0]: given 'aws/eu-west-1'; allowed: aws/me-central-1"
    )
    given = FOUNDATION | {"falaj:policies": {"allowedSites": ["eu-west-1"]}}
    assert "falaj:policies.allowedSites: eu-west-1 can't be one's own site" in refused(given)
    given = FOUNDATION | {"falaj:policies": {"allowedServices": {"aws:*": "a"}}}
    assert "falaj:policies.allowedServices: aws:* can't be allowed: rules know the" in refused(
        given
    )
    given = FOUNDATION | {"falaj:policies": {"allowedServices": {"acmedns": "a"}}}
    assert "allowed: a type of resources, where '*' after the package stands" in refused(given)
    given = FOUNDATION | {"falaj:policies": {"allowedAccounts": [1402433619]}}
    assert "allowed: an AWS account's 12 digits in quotes" in refused(given)


def test_optional_switches_can_be_turned_on() -> None:
    made = validate(FOUNDATION | {"falaj:audit": {"dedicatedLogs": True}}, ROOT, stack="shop")
    assert isinstance(made, OwnFoundation)
    assert made.audit.dedicated_logs is True


def test_no_switch_counts_as_a_number() -> None:
    said = refused(FOUNDATION | {"falaj:audit": {"retentionDays": True}})
    assert said.startswith("falaj:audit.retentionDays")
