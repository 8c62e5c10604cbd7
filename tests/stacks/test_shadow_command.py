"""``falaj shadow``: which version gets copies, of whose server, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command import __main__ as command
from falaj.stacks.command import service
from falaj.stacks.command.project import Project, StackFile
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.workloads.inference import models


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The registry of a stack whose server copies requests; of two versions, 2 serves."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    monkeypatch.delenv("PULUMI_STACK", raising=False)
    site = StackFile("local", Project.find(None)).site
    keyring = KeyRing.create(site / "keyring")
    found = Store(site / "registry", keyring)
    content = models.echo({"x": 1})
    for run in ("one", "two"):
        made = found.publish(
            "digits", {"model.onnx": content}, models.fields(content, run), keyring
        )
        found.promote("digits", made.version)
    folder = site / "service" / "digits"
    folder.mkdir(parents=True)
    document: dict[str, Any] = {
        "registry": str(found.root), "keyring": str(site / "keyring"), "model": "digits",
        "alias": "production", "state": str(folder / "state.json"),
        "shadow": {"percent": 10, "alias": "shadow"},
    }  # fmt: skip
    (folder / "service.json").write_text(json.dumps(document))
    return found


def _versions(store: Store) -> dict[str, int]:
    return {name: alias.version for name, alias in store.aliases("digits").items()}


def test_a_shadow_is_started_and_stopped(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["shadow", "start", "1"]) == 0
    assert "shadow of digits: version 1, before: nothing" in capfd.readouterr().out
    assert _versions(store) == {"production": 2, "shadow": 1}
    assert command.main(["shadow", "stop"]) == 0
    assert "nothing any more, before: version 1" in capfd.readouterr().out
    assert _versions(store) == {"production": 2}
    assert command.main(["shadow", "stop"]) == 2
    assert "has no shadow; versions there are: 1, 2" in capfd.readouterr().err


def test_a_shadow_is_promoted(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["shadow", "promote"]) == 2
    assert "has no shadow" in capfd.readouterr().err
    assert command.main(["shadow", "start", "1"]) == 0
    assert command.main(["shadow", "promote"]) == 0
    assert _versions(store) == {"production": 1}


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2", "VERSION: given 2, which is the one that serves; allowed: another one of 1, 2"),
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
    assert _versions(store) == {"production": 2}


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
