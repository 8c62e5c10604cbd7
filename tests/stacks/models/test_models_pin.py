"""``falaj models pin``: an alias is resolved into a stack's file, once, with all that it takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.errors import StackError
from falaj.stacks.models.pinning import Pin, pinned, service_of
from tests.stacks.images.registries import Registry, crane
from tests.stacks.models.published import MODEL, Publisher, answer, run

STACKS = Path(__file__).resolve().parents[3] / "stacks"
STACK = "onprem-workloads"
ONE = Pin(7, "sha256:" + "a" * 64, "sha256:" + "b" * 64, 100)


def canary(weight: int, version: int = 9) -> Pin:
    return Pin(version, ONE.package_digest, ONE.keys_digest, weight)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one of the shipped stacks; its file."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    file = tmp_path / "stacks" / f"Pulumi.{STACK}.yaml"
    shutil.copy(STACKS / file.name, file)
    monkeypatch.chdir(tmp_path)
    return file


def versions(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text())["config"]["falaj:inferenceServices"]["credit"][
        "versions"
    ]


def pin(publisher: Publisher, home: Registry, *more: str) -> int:
    return run(
        "pin", home.address, MODEL, "--verify-key", publisher.verify_key, "--stack", STACK, *more
    )


def promoted(publisher: Publisher, home: Registry, count: int) -> None:
    for number in range(1, count + 1):
        publisher.publish(f"run {number}")
        assert publisher.push(home.address) == 0
    arguments = ("--version", str(count), "--keyring", str(publisher.keyring.path))
    assert run("promote", home.address, MODEL, *arguments) == 0


def test_an_alias_is_written_as_its_digests(
    publisher: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(publisher, home, 2)
    before = project.read_text()
    assert pin(publisher, home, "--alias", "production", "--dry-run") == 0
    assert project.read_text() == before
    capsys.readouterr()
    assert pin(publisher, home, "--alias", "production") == 0
    said = capsys.readouterr().out
    digest = home.digest(f"{home.address}/models/{MODEL}:v2")
    keys = home.digest(f"{home.address}/models/{MODEL}:v2.keys.1")
    assert versions(project) == [
        {"version": 2, "weight": 100, "packageDigest": digest, "keysDigest": keys}
    ]
    assert f"stacks/Pulumi.{STACK}.yaml:" in said
    assert digest in said
    # All else in the file stays, comments too.
    assert before.partition("falaj:inferenceServices")[0] in project.read_text()
    assert pin(publisher, home, "--alias", "production") == 0
    assert "says so already" in capsys.readouterr().out
    # After a rotation the keys are others, and the package is the same.
    publisher.rotate()
    assert publisher.push(home.address) == 0
    assert pin(publisher, home, "--alias", "production") == 0
    (only,) = versions(project)
    assert only["packageDigest"] == digest
    assert only["keysDigest"] == home.digest(f"{home.address}/models/{MODEL}:v2.keys.2")


def test_a_canary_takes_its_share_from_the_largest(
    publisher: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(publisher, home, 1)
    done = answer(
        capsys, "pin", home.address, MODEL, "--verify-key", publisher.verify_key,
        "--stack", STACK, "--alias", "production", "--weight", "5",
    )  # fmt: skip
    assert [(each["version"], each["weight"]) for each in done["versions"]] == [
        (7, 85), (8, 10), (1, 5),
    ]  # fmt: skip
    assert versions(project) == done["versions"]
    assert versions(project)[1]["header"] == "next"


def test_what_cannot_be_pinned_leaves_the_file_as_it_is(
    publisher: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(publisher, home, 1)
    before = project.read_text()

    def refused(*more: str) -> str:
        capsys.readouterr()
        assert pin(publisher, home, *more) != 0
        assert project.read_text() == before
        return capsys.readouterr().err

    assert "has no version 9" in refused("--version", "9")
    assert "has no alias 'candidate'" in refused("--alias", "candidate")
    assert "services with model 'credit': credit" in refused("--service", "churn")
    assert "allowed: up to 90" in refused("--weight", "95")
    crane("delete", f"{home.address}/models/{MODEL}:v1.keys.1")
    assert "has no keys of version 1" in refused()
    capsys.readouterr()
    assert run("pin", home.address, MODEL, "--verify-key", publisher.verify_key) == 2
    assert "--stack NAME is needed" in capsys.readouterr().err


def test_services_are_found_by_their_model() -> None:
    services: dict[str, Any] = {
        "one": {"model": "credit", "packageName": "models/credit"},
        "two": {"model": "churn", "packageName": "models/churn"},
        "three": {"model": "churn", "packageName": "models/churn"},
        "moved": {"model": "fraud", "packageName": "other/fraud"},
        "damaged": None,
    }
    assert service_of(services, "credit", None) == "one"
    assert service_of(services, "churn", "two") == "two"
    with pytest.raises(StackError, match=r"2 services have model 'churn' \(three, two\)"):
        service_of(services, "churn", None)
    with pytest.raises(StackError, match="no service has model 'none'"):
        service_of(services, "none", None)
    with pytest.raises(StackError, match="sent to models/fraud"):
        service_of(services, "fraud", None)
    with pytest.raises(StackError, match="services with model 'credit': one"):
        service_of(services, "credit", "two")


@given(
    weights=st.dictionaries(st.integers(1, 20), st.integers(0, 100), max_size=4),
    wanted=st.integers(1, 20), weight=st.integers(0, 100),
)  # fmt: skip
def test_shares_add_up_and_nobody_else_is_lost(
    weights: dict[int, int], wanted: int, weight: int
) -> None:
    entries = [{"version": key, "weight": value} for key, value in weights.items()]
    kept = json.dumps(entries)
    try:
        found = pinned(entries, canary(weight, wanted))
    except StackError:
        others = sorted(value for key, value in weights.items() if key != wanted)
        assert weight < 100
        assert not others or sum(others[:-1]) + weight > 100
        return
    finally:
        assert json.dumps(entries) == kept
    assert {each["version"]: each["weight"] for each in found}[wanted] == weight
    assert len({each["version"] for each in found}) == len(found)
    assert sum(each["weight"] for each in found) == 100
    if weight < 100:
        assert {each["version"] for each in found} == {*weights, wanted}


def test_what_the_file_says_besides_stays() -> None:
    entries = [{"version": 7, "weight": 100, "header": "next", "packageDigest": "old"}]
    (found,) = pinned(entries, ONE)
    assert found["header"] == "next"
    assert found["packageDigest"] == ONE.package_digest
    with pytest.raises(StackError, match="the only version takes 100"):
        pinned(entries, canary(50, 7))
    assert pinned([], canary(100))[0]["weight"] == 100
    assert pinned([None, "7"], canary(100))[0]["version"] == 9
