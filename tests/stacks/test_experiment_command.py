"""``falaj experiment``: which version is the candidate, of whose server, and what is refused."""

from __future__ import annotations

import json
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
    """The registry of a stack whose server has an experiment; of two versions, 2 serves."""
    return make_registry(
        tmp_path, monkeypatch, experiment={"key": "x-customer", "alias": "candidate"}
    )


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document))


def test_a_candidate_is_started_stopped_and_promoted(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["experiment", "promote"]) == 2
    assert "has no candidate; versions there are: 1, 2" in capfd.readouterr().err
    assert command.main(["experiment", "start", "2"]) == 2
    assert "which is the one that serves; allowed: 1" in capfd.readouterr().err
    assert command.main(["experiment", "start", "1"]) == 0
    assert aliases_of(store) == {"production": 2, "candidate": 1}
    assert command.main(["experiment", "stop"]) == 0
    assert aliases_of(store) == {"production": 2}
    assert command.main(["experiment", "start", "1"]) == 0
    assert command.main(["experiment", "promote"]) == 0
    assert aliases_of(store) == {"production": 1}


@pytest.mark.parametrize("word", ["experiment", "shadow"])
@pytest.mark.parametrize("dataset", ["digits", "text.txt", "talk.jsonl"])
def test_a_server_without_a_second_version_says_what_can_be_done(
    store: Store,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    word: str,
    dataset: str,
) -> None:
    """Of a language model nothing is advised that its stack's file would be refused for."""
    path = next(store.root.parent.glob("service/*/service.json"))
    document = json.loads(path.read_text())
    del document["experiment"]
    _write(path, document)
    project = _project(tmp_path / "project", dataset)
    assert command.main([word, "start", "1", "--project", str(project)]) == 2
    said = capfd.readouterr().err
    if dataset == "digits":
        assert f"config set falaj:service.{word}." in said
    else:
        assert "config set" not in said
        assert "serves a language model" in said
        assert "allowed: a stack of a table, of pictures or of digits" in said


def test_a_watch_of_a_language_model_isnt_advised(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    del store
    project = _project(tmp_path / "project", "text.txt")
    assert command.main(["watch", "--once", "--project", str(project)]) == 2
    said = capfd.readouterr().err
    assert "config set" not in said
    assert "no drift is told" in said


def test_the_end_of_an_update_tells_a_candidate_from_a_version_that_was_rolled_back(
    store: Store,
) -> None:
    path = next(store.root.parent.glob("service/*/service.json"))
    Path(json.loads(path.read_text())["state"]).write_text('{"version": 2}')
    outputs = {"serviceConfig": str(path), "version": 1}
    stack = StackFile("local", Project.find(None))
    assert "which doesn't serve" in summary.served(outputs, stack)
    assert command.main(["experiment", "start", "1"]) == 0
    said = summary.served(outputs, stack)
    assert said.startswith("2 (the figures below are those of version 1, its candidate, which")
    assert said.endswith("falaj experiment promote)")


def _project(folder: Path, dataset: str) -> Path:
    """A project of a stack with this dataset."""
    (folder / "stacks").mkdir(parents=True)
    root = Project.find(None).root
    (folder / "Pulumi.yaml").write_text((root / "Pulumi.yaml").read_text())
    (folder / "stacks" / "Pulumi.local.yaml").write_text(
        f"config:\n  falaj:platform: local\n  falaj:dataset: {dataset}\n"
    )
    (folder / dataset).write_text("a text\n" * 100)
    return folder


def test_status_says_how_both_arms_fare() -> None:
    arm = {"requests": 1_200, "errors": 1, "refused": 2, "mean_seconds": 0.00123}
    facts: dict[str, Any] = {
        "version": 2, "state": "ready", "share": 12.5, "key": "x-customer", "error": None,
        "arms": {"live": arm, "candidate": arm | {"requests": 0, "mean_seconds": None}},
        "fallbacks": {"slow": 3, "away": 0},
    }  # fmt: skip
    assert service.experiment(facts) == [
        (
            "experiment", "version 2: ready",
            "12.5 % of the values of x-customer; answered by the version that serves: 3 slow",
        ),
        ("arm live", "1,200 requests", "1 errors, 2 refused, 1.23 ms in the mean"),
        ("arm candidate", "0 requests", "1 errors, 2 refused"),
    ]  # fmt: skip
    for more, says in (
        ({"labelled": 40, "wrong": 3}, "7.5% wrong of 40 labelled rows"),
        ({"labelled": 40, "rmse": 1.23456}, "an RMSE of 40 labelled rows of 1.235"),
        ({"labelled": 40, "rmse": None}, "an RMSE of 40 labelled rows of none"),
    ):
        rows = service.experiment(facts | {"arms": {"live": arm | more}})
        assert rows[1][2].endswith(says)
    failed = facts | {"state": "failed", "error": "it has another signature"}
    assert service.experiment(failed) == [
        ("experiment", "version 2: failed", "it has another signature")
    ]
