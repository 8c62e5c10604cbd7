"""A sweep is a run of a tracking server, and its trials are runs below it, whatever breaks off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.training import command, tracking
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import record as records
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.sweep_tracking import (
    BROKEN_OFF,
    RUNS,
    Best,
    SweepTracking,
    trial_folder,
)
from falaj.workloads.training.tracking import PARENT, Destination
from falaj.workloads.training.tracking_store import TrackingError
from tests.workloads.training.test_tracking import RECORD
from tests.workloads.training.tracking_server import Store, serving

BEST = Best(1, 0.25, {"width": 8})


def trial(sweep: Path, index: int, *, done: bool) -> None:
    folder = trial_folder(sweep, index)
    folder.mkdir(parents=True)
    records.begin(folder, f"{index:064x}", {"width": 8 + index}, "ab" * 32)
    records.add_metrics(folder, {"epoch": 1, "loss": 0.5, "seconds": 1.5})
    if done:
        (folder / records.MODEL).write_bytes(b"weights")
        (folder / records.RECORD).write_text(json.dumps(RECORD))


def tracked(sweep: Path, url: str) -> SweepTracking:
    made = SweepTracking(sweep, Destination(url), "loss", {"search.width": "8..16", "seed": 3})
    for index, state in enumerate(("fail", "complete", "pruned", BROKEN_OFF, RUNS, "fail")):
        made.note(index, state)
    made.note_best(BEST)
    return made


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep-1"
    # The last one failed before it began, and has nothing to send.
    for index in range(5):
        trial(folder, index, done=index == 1)
    return folder


def outer(store: Store) -> dict[str, Any]:
    (found,) = [each for each in store.runs.values() if PARENT not in each["tags"]]
    return found


def inner(store: Store) -> dict[str, dict[str, Any]]:
    return {
        each["tags"]["falaj.trial"]: each
        for each in store.runs.values() if PARENT in each["tags"]
    }  # fmt: skip


def test_trials_are_below_the_sweep_which_says_which_is_the_best(
    sweep: Path, store: Store, server: str
) -> None:
    made = tracked(sweep, server)
    made.send(tracking.RUNNING)
    parent, trials = outer(store), inner(store)
    (identifier,) = [name for name, each in store.runs.items() if each is parent]
    assert {each["tags"][PARENT] for each in trials.values()} == {identifier}
    assert {name: each["status"] for name, each in trials.items()} == {
        "0": "FAILED", "1": "FINISHED", "2": "KILLED", "3": "KILLED", "4": "RUNNING",
    }  # fmt: skip
    assert trials["2"]["tags"]["falaj.trial.ended"] == "pruned"
    assert "falaj.trial.ended" not in trials["4"]["tags"]
    assert parent["params"] == {"search.width": "8..16", "seed": "3"}
    assert (parent["status"], parent["tags"]["falaj.sweep"]) == ("RUNNING", "sweep-1")
    best = parent["tags"]
    assert store.runs[best["falaj.best.run"]] is trials["1"]
    assert (best["falaj.best.trial"], best["falaj.best.loss"]) == ("1", "0.25")
    assert best["falaj.best.width"] == "8"
    made.note(4, "complete")
    (trial_folder(sweep, 4) / records.RECORD).write_text(json.dumps(RECORD))
    made.note_best(Best(4, 0.125, {"width": 9}))
    made.send(tracking.FINISHED)
    assert store.runs[best["falaj.best.run"]] is trials["4"]
    assert (parent["status"], trials["4"]["status"]) == ("FINISHED", "FINISHED")
    assert parent["end"] >= parent["start"]
    assert len(store.runs) == 6


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_whatever_breaks_off_each_run_is_there_once(
    sweep: Path, store: Store, server: str, calls: int
) -> None:
    store.fail_after = calls
    with pytest.raises(TrackingError):
        tracked(sweep, server).send(tracking.FINISHED)
    store.fail_after = None
    # Another process, that knows what is noted alone.
    tracked(sweep, server).send(tracking.FINISHED)
    assert (outer(store)["status"], sorted(inner(store))) == ("FINISHED", [*"01234"])
    before = len(store.calls)
    tracked(sweep, server).send(tracking.FINISHED)
    assert len(store.calls) == before


def test_a_trial_that_cannot_be_read_keeps_no_other_back(
    sweep: Path, store: Store, server: str
) -> None:
    (trial_folder(sweep, 0) / records.PARAMETERS).write_text("{")
    made = tracked(sweep, server)
    made.begin()
    made.end(tracking.FINISHED)
    event, message = made.says.get_nowait()
    assert (event, made.says.empty()) == ("untracked", True)
    assert str(trial_folder(sweep, 0)) in message
    assert sorted(inner(store)) == [*"1234"]
    assert outer(store)["status"] == "RUNNING"


def test_another_server_gets_all_of_it(sweep: Path, store: Store, server: str) -> None:
    other = Store()
    tracked(sweep, server).send(tracking.FINISHED)
    with serving(other) as url:
        tracked(sweep, url).send(tracking.FINISHED)
    assert len(other.runs) == len(store.runs) == 6


# -- the command ---------------------------------------------------------------------------


@pytest.fixture
def words(mixed_dataset: Dataset, tmp_path: Path) -> list[str]:
    snapshot = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    return [
        "sweep", "--dataset", str(snapshot), "--output", str(tmp_path / "sweep"),
        "--search", "width=4|8", "--trials", "2", "--pruner", "none",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--", "--tracking", "https://10.0.0.7"], "give --tracking before it to `sweep`"),
        (["--", "--tra=https://10.0.0.7"], "`sweep`, which sends them below a run of its own"),
        (["--tracking", "http://10.0.0.7"], "allowed is an address that starts with https://"),
        (["--tracking-experiment", "e"], "name that as well (--tracking)"),
    ],
)
def test_what_is_no_server_of_a_sweep(
    words: list[str], more: list[str], reason: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
    assert command.main([*words, *more]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_a_trial_that_a_cluster_does_is_sent_by_itself(
    words: list[str], store: Store, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
    given = words[1:]
    at = given.index("--trials")
    del given[at : at + 2]
    every = ["--", "--model", "network", "--epochs", "1", "--threads", "1", "--tracking", server]
    assert command.main(["trial", "--index", "1", *given, *every]) == 0
    (run,) = store.runs.values()
    folder = Path(given[given.index("--output") + 1])
    tags = run["tags"]
    assert (run["status"], tags["falaj.trial"]) == ("FINISHED", "1")
    assert (tags["falaj.sweep"], PARENT in tags) == (folder.name, False)


@pytest.mark.slow
def test_a_server_that_is_away_ends_no_sweep_and_gets_it_later(
    words: list[str], store: Store, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
    with serving(Store()) as gone:
        pass
    every = ["--", "--model", "network", "--epochs", "1", "--threads", "1"]
    assert command.main([*words, "--tracking", gone, *every]) == 0
    said = capsys.readouterr().out
    # Once while it lasts, if that takes as long, and once at its end.
    assert said.count("doesn't have all of this sweep") in (1, 2)
    assert "sent when the same sweep is asked for again" in said
    with serving(store) as url:
        assert command.main([*words, "--progress", "json", "--tracking", url, *every]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["trial", "trial", "tracked", "study"]
    best, trials = told[-1]["best"], inner(store)
    assert [each["status"] for each in trials.values()] == ["FINISHED"] * 2
    assert outer(store)["status"] == "FINISHED"
    assert outer(store)["params"]["search.width"] == "4|8"
    assert outer(store)["tags"]["falaj.best.trial"] == str(best["trial"])
    assert trials[str(best["trial"])]["params"]["width"] == str(best["parameters"]["width"])
