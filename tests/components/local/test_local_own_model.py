"""A team's own model through the provider: its code decides the run, and is refused early."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from falaj.components.local.machine import InvalidInputsError, LocalError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.handler import Context
from falaj.components.local.provider.resources.training_run import TrainingRunHandler, run_digest
from falaj.wire.values import UNKNOWN

NAME = "mine.network:Network"


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "network.py").write_text("class Network: ...\n")
    return {
        "site": str(tmp_path / "site"), "dataset": "/d", "datasetDigest": "abc", "model": NAME,
        "code": str(folder.parent), "options": {"width": 8, "act": "relu", "sizes": [1, 2]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"code": None}, "code", "missing; a model of one's own needs 'model'"),
        ({"model": None}, "model", "missing; a model of one's own needs"),
        ({"model": None, "code": None}, "model", "missing; a model of one's own needs"),
        ({"code": "models"}, "code", "allowed: an absolute path"),
        ({"code": "/absent"}, "code", "no folder /absent: there is none"),
        ({"model": "mine.network:Other"}, "code", "mine/network.py has no class 'Other'"),
        ({"model": "mobilenet"}, "code", "is of a model of one's own, and mobilenet is Falaj's"),
        ({"model": "auto", "code": None}, "options", "is of a model of one's own, and auto is"),
        ({"options": {"width": {"a": 1}}}, "options", "a map from names to numbers, texts"),
        ({"options": {"width": [[1]]}}, "options", "a map from names to numbers, texts"),
        ({"options": {"my-width": 1}}, "code", "option 'my-width': allowed are letters"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_preview(
    given: dict[str, Any], change: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        TrainingRunHandler().check({**given, **change}, {})
    assert words in {each.property: each.reason for each in caught.value.errors}[key]


@pytest.mark.parametrize("word", ["network", "mobilenet"])
def test_a_word_is_a_model_of_falaj_s_and_no_class(given: dict[str, Any], word: str) -> None:
    plain = {key: value for key, value in given.items() if key not in ("code", "options")}
    checked = TrainingRunHandler().check({**plain, "model": word}, {})
    assert (checked["model"], "codeSha256" in checked) == (word, False)
    assert run_digest(checked) != run_digest({**checked, "model": "efficientnet"})


def test_changed_code_is_another_run_and_unchanged_code_is_none(
    given: dict[str, Any], tmp_path: Path
) -> None:
    handler = TrainingRunHandler()
    (tmp_path / "record.json").write_text("{}")
    before = handler.check({**given, "codeSha256": "made up"}, {})
    state = {**before, "path": str(tmp_path)}
    assert len(str(before["codeSha256"])) == 64
    os.utime(tmp_path / "models/mine/network.py", (1, 1))
    assert handler.diff(state, handler.check(given, {})) == {}
    (tmp_path / "models").rename(tmp_path / "moved")
    moved = handler.check({**given, "code": str(tmp_path / "moved")}, {})
    assert {k: c.replaces for k, c in handler.diff(state, moved).items()} == {"code": False}
    assert run_digest(moved) == run_digest(before)
    (tmp_path / "moved/mine/network.py").write_text("class Network: ''\n")
    edited = handler.check({**given, "code": str(tmp_path / "moved")}, {})
    assert handler.diff(state, edited)["codeSha256"].replaces
    optioned = handler.check({**given, "code": str(tmp_path / "moved"), "options": {}}, {})
    assert len({run_digest(each) for each in (before, edited, optioned)}) == 3


def test_an_unknown_option_leaves_the_run_unknown(given: dict[str, Any]) -> None:
    checked = TrainingRunHandler().check({**given, "options": {"width": UNKNOWN}}, {})
    assert checked["codeSha256"] is UNKNOWN
    assert TrainingRunHandler().preview(checked, None)["path"] is UNKNOWN


def test_a_training_that_ended_without_a_record_is_none(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `os._exit(0)` in the code, which no error tells of."""
    checked = TrainingRunHandler().check(given, {})
    monkeypatch.setattr(workloads, "run", lambda *_, **__: {"event": "epoch"})
    with pytest.raises(LocalError, match="the training ended without a record"):
        TrainingRunHandler().create(Context("run"), checked)


def test_code_that_changed_after_the_preview_is_not_trained(
    given: dict[str, Any], tmp_path: Path
) -> None:
    checked = TrainingRunHandler().check(given, {})
    (tmp_path / "models/mine/network.py").write_text("class Network: ''\n")
    with pytest.raises(LocalError, match="was changed since this training was planned: run again"):
        TrainingRunHandler().create(Context("run"), checked)
