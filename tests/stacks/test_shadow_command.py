"""``falaj shadow``: which version gets copies, of whose server, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command import __main__ as command
from falaj.stacks.command import service, summary
from falaj.stacks.command.project import Project, StackFile
from falaj.workloads.registry.store import Store
from tests.stacks.two_versions import aliases_of, make_registry


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The registry of a stack whose server copies requests; of two versions, 2 serves."""
    return make_registry(tmp_path, monkeypatch, shadow={"percent": 10, "alias": "shadow"})


def test_a_shadow_is_started_and_stopped(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["shadow", "start", "1"]) == 0
    assert "shadow of digits: version 1, before: nothing" in capfd.readouterr().out
    assert aliases_of(store) == {"production": 2, "shadow": 1}
    assert command.main(["shadow", "stop"]) == 0
    assert "nothing any more, before: version 1" in capfd.readouterr().out
    assert aliases_of(store) == {"production": 2}
    assert command.main(["shadow", "stop"]) == 2
    assert "has no shadow; versions there are: 1, 2" in capfd.readouterr().err


def test_a_shadow_is_promoted(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["shadow", "promote"]) == 2
    assert "has no shadow" in capfd.readouterr().err
    assert command.main(["shadow", "start", "1"]) == 0
    assert command.main(["shadow", "promote"]) == 0
    assert aliases_of(store) == {"production": 1}


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2", "VERSION: given 2, which is the one that serves; allowed: 1"),
        ("7", "has no version 7 of digits; it has: 1, 2"),
        ("0", "0 is not in the range"),
        ("new", "'new' is not a valid integer"),
    ],
)
def test_versions_that_cant_be_a_shadow(
    store: Store, capfd: pytest.CaptureFixture[str], version: str, says: str
) -> None:
    assert command.main(["shadow", "start", version]) == 2
    assert says in capfd.readouterr().err
    assert aliases_of(store) == {"production": 2}


def test_the_only_version_cant_be_a_shadow(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    store.rollback("digits")
    shutil.rmtree(store.root / "digits" / "versions" / "2")
    assert command.main(["shadow", "start", "1"]) == 2
    said = capfd.readouterr().err
    assert "given 1, which is the one that serves; there is no other one so far" in said


def test_the_end_of_an_update_tells_a_shadow_from_a_version_that_was_rolled_back(
    store: Store, tmp_path: Path
) -> None:
    stack = StackFile("local", Project.find(None))
    path = next(store.root.parent.glob("service/*/service.json"))
    config = json.loads(path.read_text())
    Path(config["state"]).write_text('{"version": 2}')
    outputs = {"serviceConfig": str(path), "version": 1}
    assert summary.served(outputs, stack) == (
        "2 (the figures below are those of version 1, which doesn't serve)"
    )
    assert command.main(["shadow", "start", "1"]) == 0
    said = summary.served(outputs, stack)
    assert said.startswith("2 (the figures below are those of version 1, its shadow, which serves")
    assert said.endswith("falaj shadow promote)")
    del config["shadow"]
    path.write_text(json.dumps(config))
    assert "rolled back" in summary.served(outputs, stack)
    assert summary.served(outputs | {"version": 2}, stack) == "2"


def test_a_server_that_copies_nothing_says_what_to_do(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    path = next(store.root.parent.glob("service/*/service.json"))
    document = json.loads(path.read_text())
    del document["shadow"]
    path.write_text(json.dumps(document))
    assert command.main(["shadow", "start", "1"]) == 2
    said = capfd.readouterr().err
    assert "copies no requests" in said
    assert "config set falaj:service.shadow.percent 10" in said


def test_of_a_server_with_an_experiment_what_has_to_go_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_registry(tmp_path, monkeypatch, experiment={"key": "x-a", "alias": "candidate"})
    assert command.main(["shadow", "start", "1"]) == 2
    first, then = capfd.readouterr().err.split("config set falaj:service.shadow.percent 10")
    assert "config rm falaj:service.experiment" in first
    assert "config rm" not in then


def test_status_says_what_came_of_the_copies() -> None:
    facts: dict[str, Any] = {
        "version": 2, "state": "ready", "percent": 12.5, "error": None, "rows": 2_000,
        "agreement": 0.987, "requests": {"compared": 1_999, "failed": 1, "refused": 0},
    }  # fmt: skip
    assert service.beside(facts) == (
        "version 2: ready",
        "98.7% of 2,000 rows agree, 1,999 compared, 1 failed; 12.5 % of the requests are copied",
    )
    begun = {"version": 2, "state": "starting", "percent": 1, "requests": {}, "agreement": None}
    assert service.beside(begun) == ("version 2: starting", "1 % of the requests are copied")
    failed = begun | {"state": "failed", "error": "it isn't what was published"}
    assert service.beside(failed) == ("version 2: failed", "it isn't what was published")
