"""Runs go to an MLflow tracking server, once, whatever breaks off, and to nobody abroad."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import record as records
from falaj.workloads.training import tracking
from falaj.workloads.training.command import main
from falaj.workloads.training.tracking import Destination, following, sync
from falaj.workloads.training.tracking_store import TrackingError
from tests.workloads.inference.serving import Pki
from tests.workloads.training.tracking_server import Store, serving

_DIGEST = "cb1f" * 16
RECORD: dict[str, Any] = {
    "task": "classification", "ended": "all epochs are done", "epochs": 2,
    "dataset": {
        "digest": _DIGEST, "rows": {"train": 8, "held_out": 2}, "seed": 0,
        "source": {"kind": "table", "name": "churn.csv"},
    },
    "model": {"parameters": 7, "choice": {"kept": "network"}},
    "metrics": {
        "held_out": {"accuracy": 0.5, "per_class": {"Al Ain": {"f1": 1.0}}, "confusion": [[1]]},
        "validation": {"loss": 0.25, "epoch": 2},
    },
    "timings": {"training_seconds": 3.5}, "utilisation": {"samples": 1},
    "environment": {"torch": "2.15", "cpu_flags": ["avx", "avx2"], "gpus": []},
    "code": {"version": "1", "digest": "c0de"},
    "start": {"digest": "57a7", "before": {"accuracy": 0.1}},
}  # fmt: skip


def _begin(output: Path, epochs: int = 2) -> Path:
    output.mkdir()
    records.begin(output, "1d" * 32, {"epochs": 2, "options": {"a": "b" * 900}}, _DIGEST)
    for epoch in range(1, epochs + 1):
        _epoch(output, epoch)
    return output


def _epoch(output: Path, epoch: int) -> None:
    records.add_metrics(output, {"epoch": epoch, "loss": 1 / epoch, "seconds": 1.5 * epoch})


def _finish(output: Path) -> None:
    (output / records.MODEL).write_bytes(b"weights")
    (output / records.RECORD).write_text(json.dumps(RECORD))


def _nobody(event: str, message: str) -> None:
    del event, message


@pytest.mark.parametrize(("url", "reason"), [
    ("http://mlflow.example.ae", "an address that starts with https"),
    ("http://10.0.0.7:5000", "an address that starts with https"),
    ("ftp://127.0.0.1", "an address that starts with https"),
    ("https://", "an address that starts with https"),
    ("https://me:word@mlflow.example.ae", "without a name or password"),
    ("https://mlflow.example.ae/?token=word", "without a name or password"),
    ("https://mlflow.example.ae:x", "--tracking is"),
    ("https://8.8.8.8", "--tracking-allow if it is in the country"),
])  # fmt: skip
def test_an_address_that_nothing_may_be_sent_to(url: str, reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason) as raised:
        Destination(url).check()
    assert "me:word" not in str(raised.value)


def test_a_name_of_ones_own_networks_may_not_lead_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def abroad(*_: object, **__: object) -> list[Any]:
        return [(2, 1, 6, "", ("8.8.8.8", 443))]

    monkeypatch.setattr("socket.getaddrinfo", abroad)
    output = _begin(tmp_path / "run")
    with pytest.raises(TrackingError, match=r"stands for 8\.8\.8\.8"):
        sync(output, Destination("https://mlflow.internal"))


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a" * 201, "a'b"])
def test_a_name_of_an_experiment_that_cannot_be(name: str) -> None:
    with pytest.raises(WorkloadError, match="--tracking-experiment"):
        Destination("https://10.0.0.7", name).check()


@pytest.mark.parametrize("tag", ["a", "=b", "mlflow.user=x", "a'b=c"])
def test_a_tag_that_cannot_be(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["track", "--run", str(tmp_path), "--tracking-file", str(tmp_path / "a.db")]
    assert main([*words, "--tracking-tag", tag]) == 2
    assert "allowed is NAME=VALUE" in capsys.readouterr().err


def test_options_of_a_server_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--dataset", "d", "--output", "o", "--tracking-experiment", "e"]
    assert main(words) == 2
    assert "name that as well (--tracking)" in capsys.readouterr().err


def test_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["track", "--run", str(tmp_path), "--tracking", "http://127.0.0.1:1"]) == 2
    assert "holds no run" in capsys.readouterr().err


@pytest.mark.parametrize("secret", [None, "", "two\nlines", "لا"])
def test_a_secret_that_is_none(tmp_path: Path, server: str, secret: str | None) -> None:
    path = tmp_path / "secret"
    if secret is not None:
        path.write_text(secret)
        path.chmod(0o600)
    with pytest.raises(TrackingError, match=str(path)):
        sync(_begin(tmp_path / "run"), Destination(server, secret=path))


def test_a_secret_that_others_can_read(tmp_path: Path, store: Store, server: str) -> None:
    path = tmp_path / "secret"
    path.write_text("word")
    path.chmod(0o640)
    with pytest.raises(TrackingError, match=f"chmod 600 {path}"):
        sync(_begin(tmp_path / "run"), Destination(server, secret=path))
    assert store.authorizations == []


@pytest.mark.parametrize(
    ("secret", "header"), [("word\n", "Bearer word"), ("me:word", "Basic bWU6d29yZA==")]
)
def test_a_secret_goes_into_a_header_alone(
    tmp_path: Path, store: Store, server: str, secret: str, header: str
) -> None:
    path, output = tmp_path / "secret", _begin(tmp_path / "run")
    path.write_text(secret)
    path.chmod(0o600)
    sync(output, Destination(server, secret=path))
    assert set(store.authorizations) == {header}
    assert "word" not in (output / records.TRACKING).read_text()


def test_a_deleted_experiment_is_told(tmp_path: Path, store: Store, server: str) -> None:
    store.experiments["falaj"], store.deleted = "1", True
    with pytest.raises(TrackingError, match="was deleted there"):
        sync(_begin(tmp_path / "run"), Destination(server))


def test_a_run_is_sent_as_it_goes(tmp_path: Path, store: Store, server: str) -> None:
    output, destination = _begin(tmp_path / "run", epochs=1), Destination(server)
    name = sync(output, destination)
    run = store.runs[name]
    assert run["status"] == "RUNNING"
    assert run["params"]["epochs"] == "2"
    assert len(run["params"]["options"]) == 500
    assert {(key, step, value) for key, step, _, value in run["metrics"]} == {
        ("loss", 1, 1.0), ("seconds", 1, 1.5),
    }  # fmt: skip
    with (output / records.METRICS).open("a") as stream:
        stream.write('{"epoch": 2, "lo')  # is just being written
    sync(output, destination)
    assert len(run["metrics"]) == 2
    records.rewrite_metrics(output, [{"epoch": 1, "loss": 1.0, "seconds": 1.5}])
    _epoch(output, 2)
    _finish(output)
    assert sync(output, destination) == name
    found = {(key, step): (at - run["start"], value) for key, step, at, value in run["metrics"]}
    assert found["loss", 2] == (3000, 0.5)
    assert found["held_out.accuracy", 2] == (3500, 0.5)
    assert (run["status"], run["end"] - run["start"]) == ("FINISHED", 3500)
    assert run["inputs"] == {("churn.csv", _DIGEST[:36])}
    tags = run["tags"]
    assert tags["falaj.model.sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert tags["falaj.environment.cpu_flags"] == "avx avx2"
    assert (tags["falaj.code.digest"], tags["falaj.start.digest"]) == ("c0de", "57a7")
    assert tags["falaj.dataset"] == tags["falaj.dataset.digest"] == _DIGEST
    # What classes are called is of the data.
    assert "Al Ain" not in json.dumps([tags, sorted(map(str, run["metrics"]))])


@pytest.mark.parametrize("calls", range(11))
def test_whatever_breaks_off_a_run_is_there_once(
    tmp_path: Path, store: Store, server: str, calls: int
) -> None:
    output, destination = _begin(tmp_path / "run"), Destination(server)
    _finish(output)
    store.fail_after = calls
    told: list[str] = []
    is_whole = tracking.deliver(output, destination, lambda event, _: told.append(event))
    assert told == ([] if is_whole else ["untracked"])
    # It was done, but nobody noted it.
    (output / records.TRACKING).write_text(json.dumps({
        key: value for key, value in json.loads((output / records.TRACKING).read_text()).items()
        if key in {"attempt", "begun", "server", "experiment"}
    } | {"epoch": 0, "status": ""}))  # fmt: skip
    store.fail_after = None
    sync(output, destination)
    (run,) = store.runs.values()
    assert run["status"] == "FINISHED"
    assert sum(key == "loss" for key, *_ in run["metrics"]) == 2
    before = len(store.calls)
    sync(output, destination)
    assert len(store.calls) == before


def test_a_server_that_is_away_ends_no_training(tmp_path: Path, store: Store) -> None:
    output, told = _begin(tmp_path / "run"), list[tuple[str, str]]()

    def say(event: str, message: str) -> None:
        told.append((event, message))

    with serving(Store()) as gone:
        pass
    with following(output, Destination(gone), say):
        _finish(output)
    assert [event for event, _ in told] == ["untracked"]
    assert "its record is kept" in told[0][1]
    with serving(store) as url:
        assert main(["track", "--run", str(output), "--tracking", url, "--json"]) == 0
    assert [run["status"] for run in store.runs.values()] == ["FINISHED"]


def test_a_failed_run_is_one_and_goes_on(tmp_path: Path, store: Store, server: str) -> None:
    output, destination = _begin(tmp_path / "run", epochs=1), Destination(server)

    def fail() -> None:
        with following(output, destination, _nobody):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    (run,) = store.runs.values()
    assert run["status"] == "FAILED"
    with following(output, destination, _nobody):
        pass
    assert run["status"] == "KILLED"
    sync(output, destination)
    assert run["status"] == "RUNNING"
    assert len(store.runs) == 1


def test_another_server_gets_all_of_it(tmp_path: Path, store: Store, server: str) -> None:
    output, other = _begin(tmp_path / "run"), Store()
    sync(output, Destination(server))
    with serving(other) as url:
        sync(output, Destination(url))
    (one,), (two,) = store.runs.values(), other.runs.values()
    assert one["metrics"] == two["metrics"]


def test_a_server_of_an_authority_of_ones_own(tmp_path: Path, store: Store) -> None:
    output, pki, other = _begin(tmp_path / "run"), Pki(tmp_path / "a"), Pki(tmp_path / "b")
    _finish(output)
    with serving(store, pki) as url:
        for authority in (None, other.folder / "ca.crt"):
            with pytest.raises(TrackingError, match="certificate"):
                sync(output, Destination(url, authority=authority))
        with pytest.raises(TrackingError, match=r"none\.crt can't be read"):
            sync(output, Destination(url, authority=tmp_path / "none.crt"))
        assert store.calls == []
        sync(output, Destination(url, authority=pki.folder / "ca.crt"))
    assert [run["status"] for run in store.runs.values()] == ["FINISHED"]


@given(st.dictionaries(st.text(), st.floats() | st.integers(-(2**53), 2**53), max_size=6))
def test_figures_are_of_the_form_that_mlflow_takes(line: dict[str, float]) -> None:
    line = {key: value for key, value in line.items() if key not in {"seconds", "epoch"}}
    for each in tracking.figures({**line, "epoch": 3}, 1000):
        text = json.dumps(each, allow_nan=False)
        assert not re.search(r"[^A-Za-z0-9_. /-]", each["key"])
        value = float(json.loads(text)["value"])
        assert any(value == other or (math.isnan(value) and math.isnan(other))
                   for other in line.values())  # fmt: skip
