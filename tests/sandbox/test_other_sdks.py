"""Packages that the sandbox has no model of, by the SDK that a program brings."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox import activation, models, refusals, sdks
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.prediction import Prediction
from falaj.sandbox.refusals import RefusalLog
from falaj.sandbox.schema import Package
from falaj.sandbox.serving import SandboxServicer
from falaj.sandbox.store import Store, copy_without_faults
from falaj.wire import UNKNOWN, has_unknown
from tests.brought_sdk import environment

THING = "acme:index/thing:Thing"
URN = f"urn:pulumi:dev::shop::{THING}::one"


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with a program's packages, named as a stand-in gets it."""
    packages = environment(tmp_path / "venv")
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    # The SDK's own modules name each other in circles, which Python resolves in its own table.
    importlib.import_module("pulumi.runtime")
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name, value in sdks.variables(tmp_path / "venv").items():
        monkeypatch.setenv(name, value)
    return packages


def test_our_own_environment_needs_no_variable(tmp_path: Path) -> None:
    assert sdks.variables(Path(sys.prefix)) == {}
    assert sdks.variables(tmp_path) == {}


def test_another_programs_environment_is_never_taken(brought: Path, tmp_path: Path) -> None:
    other = {"A": "1", sdks.VARIABLE: "/another/programs"}
    assert sdks.for_program(other, Path(sys.prefix)) == {"A": "1"}
    assert sdks.for_program(other, tmp_path / "venv") == {"A": "1", sdks.VARIABLE: str(brought)}


def test_an_sdk_is_read_where_the_program_has_it(brought: Path) -> None:
    found = Package("acme")
    assert (found.module, found.version) == ("pulumi_acme", "1.2.3")
    assert found.folder == brought / "pulumi_acme"
    assert found.resource_class(THING).__module__ == "pulumi_acme.thing"
    assert "acme" not in sdks.installed({})
    with pytest.raises(EngineError, match=r"'gcp' is no cloud .* has no SDK where the program"):
        Package("gcp")


def test_the_sdk_of_a_cloud_is_the_programs_own_as_well(brought: Path) -> None:
    assert Package("kubernetes").version != "0.0.1"
    (brought / "pulumi_kubernetes").mkdir()
    (brought / "pulumi_kubernetes" / "pulumi-plugin.json").write_text(
        '{"resource": true, "name": "kubernetes", "version": "0.0.1"}'
    )
    assert Package("kubernetes").version == "0.0.1"


@pytest.mark.parametrize(
    "said",
    [
        "{",
        "[]",
        '{"resource": false}',
        '{"resource": true, "parameterization": {"a": 1}}',
        # They are parts of paths and of a script.
        '{"resource": true, "name": "acme; true", "version": "1.2.3"}',
        '{"resource": true, "name": "../acme", "version": "1.2.3"}',
        '{"resource": true, "name": "acme", "version": "1/../../2"}',
    ],
)
def test_what_no_plugin_answers_for_is_passed_over(brought: Path, said: str) -> None:
    (brought / "pulumi_acme" / "pulumi-plugin.json").write_text(said)
    assert sdks.installed() == {}


def test_its_stand_in_is_where_the_engine_looks(brought: Path, tmp_path: Path) -> None:
    base = {"PATH": os.defpath, "FALAJ_HOME": str(tmp_path / "home"), **os.environ}
    base |= {"FALAJ_HOME": str(tmp_path / "home")}
    found = activation.activated(activation.left(base) | {sdks.VARIABLE: str(brought)})
    folder = Path(found["PULUMI_HOME"]) / "plugins" / "resource-acme-v1.2.3"
    assert (folder / "pulumi-resource-acme").is_file()
    real = tmp_path / "bin" / "pulumi-resource-acme"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    with pytest.raises(EngineError, match="would be taken instead"):
        activation.activated({**found, "PATH": str(real.parent)})


def test_inputs_are_checked_and_outputs_are_not_guessed(brought: Path) -> None:
    cloud = Cloud(models.load("acme"), Store(":memory:"))
    _, problems = cloud.check(URN, {"size": "large", "sise": 1}, {})
    assert [each.path for each in problems] == ["sise", "size"]
    assert not cloud.is_modelled
    assert cloud.preview_create(URN, {"size": 1}) == {
        "size": 1, "label": UNKNOWN, "endpoint": UNKNOWN,
    }  # fmt: skip
    assert cloud.invoke("acme:index/getZone:getZone", {"name": "a"}) == {
        "name": "getZone-name", "servers": [],
    }  # fmt: skip


def test_nothing_is_predicted_of_what_there_is_no_model_of(tmp_path: Path) -> None:
    copy_without_faults(tmp_path / "cloud.sqlite", tmp_path / "copy.sqlite")
    environ = {"FALAJ_SANDBOX_PREDICT": str(tmp_path / "copy.sqlite")}
    assert Prediction.of("acme", environ) is None
    assert Prediction.of("kubernetes", environ) is not None


CACHE = "aws:appsync/graphQLApi:GraphQLApi"


def test_what_a_type_without_a_model_gives_is_not_called_empty(tmp_path: Path) -> None:
    """An empty mapping would end a program that takes an entry of it."""
    copy_without_faults(tmp_path / "cloud.sqlite", tmp_path / "copy.sqlite")
    found = Prediction.of("aws", {"FALAJ_SANDBOX_PREDICT": str(tmp_path / "copy.sqlite")})
    assert found is not None
    found.configure({"region": "me-central-1"})
    given = {"authenticationType": "API_KEY", "name": "a", "region": "me-central-1"}
    made = found.create(f"urn:pulumi:dev::shop::{CACHE}::a", given)
    assert made is not None
    assert made[1]["uris"] is UNKNOWN


SUBNET = "aws:ec2/subnet:Subnet"
AT = f"urn:pulumi:dev::shop::{SUBNET}::a"


def test_a_check_notes_what_is_refused_and_goes_on(tmp_path: Path) -> None:
    cloud = Cloud(models.load("aws"), Store(":memory:"))
    copy_without_faults(tmp_path / "cloud.sqlite", tmp_path / "copy.sqlite")
    prediction = Prediction.of("aws", {"FALAJ_SANDBOX_PREDICT": str(tmp_path / "copy.sqlite")})
    notes = RefusalLog.of({refusals.VARIABLE: str(tmp_path)})
    servicer = SandboxServicer(cloud, lambda _: None, prediction, refusals=notes)
    given = {"vpcId": "vpc-0123456789abcdef0", "cidrBlock": "10.0.0.0/99"}

    async def work() -> None:
        await servicer.configure({"region": "me-central-1"})
        for _ in range(2):
            checked, failures = await servicer.check(AT, given, {})
            assert failures == []
        id, outputs = await servicer.create(AT, checked, preview=True, seconds=0)
        assert id == ""
        assert outputs["arn"] is UNKNOWN

    asyncio.run(work())
    said = [str(each) for each in refusals.read(tmp_path)]
    assert len(said) == len(set(said)) > 0
    assert all(each.startswith(f"{SUBNET} a: ") for each in said)
    assert any("cidrBlock" in each for each in said)


SERVICE = "kubernetes:core/v1:Service"


def test_what_only_the_program_knows_of_is_noted_and_read_all_the_same(tmp_path: Path) -> None:
    notes = RefusalLog.of({refusals.VARIABLE: str(tmp_path)})
    at = f"urn:pulumi:dev::shop::{SERVICE}::theirs"
    for asked in (notes, None):
        cloud = Cloud(models.load("kubernetes"), Store(":memory:"))
        servicer = SandboxServicer(cloud, lambda _: None, refusals=asked)
        found = asyncio.run(servicer.read(at, "default/shop", {}, {}))
        if asked is None:
            assert found is None
        else:
            assert found is not None
            # The engine refuses unknowns in what is read.
            assert not has_unknown(found[0])
            assert found[0]["metadata"] == {"name": "shop", "namespace": "default"}
    (said,) = refusals.read(tmp_path)
    assert str(said).startswith(f"{SERVICE} theirs: 'default/shop' doesn't exist in the sandbox")


def test_a_release_says_what_it_is_called() -> None:
    cloud = Cloud(models.load("kubernetes"), Store(":memory:"))
    given = {"chart": "wordpress", "namespace": "blog", "name": "ours"}
    _, outputs = cloud.create("urn:pulumi:dev::shop::kubernetes:helm.sh/v3:Release::a", given)
    assert (outputs["status"]["name"], outputs["status"]["namespace"]) == ("ours", "blog")
