"""``falaj runs``: real runs and made ones, whole, under way, damaged; and names that are wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command.__main__ import main
from falaj.stacks.errors import StackError
from falaj.stacks.runs import Run, differences, find, in_folder, merged, of_site
from falaj.workloads.training import record as records
from tests.stacks.models.published import Publisher
from tests.workloads.optimization.conftest import trained

EPOCHS = 3
IDENTITIES = ("aa11" * 16, "aa22" * 16, "bb33" * 16)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was trained."""
    folder = tmp_path_factory.mktemp("real")
    return trained(folder, "--source", "digits", epochs=EPOCHS).path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stack ``local``."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "stacks" / "local"


def called(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["runs", *arguments]) == status
    said = capsys.readouterr()
    return said.out if status == 0 else said.err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(called(capsys, *arguments, "--json"))


def begun(folder: Path, identity: str, epochs: int, **parameters: Any) -> Path:
    """A run that didn't come to its record."""
    folder.mkdir(parents=True)
    asked = {"identity": identity, "dataset": "d" * 64, "parameters": {"epochs": 9, **parameters}}
    (folder / records.PARAMETERS).write_text(json.dumps(asked))
    with (folder / records.METRICS).open("w") as file:
        for epoch in range(1, epochs + 1):
            line = {"epoch": epoch, "loss": 2 / epoch, "validation_accuracy": 0.5}
            file.write(json.dumps(line) + "\n")
    return folder


def publish(
    publisher: Publisher, run: str, accuracy: float, *, content: str = "", **more: Any
) -> int:
    """A version with a manifest such as an optimisation makes."""
    fields: dict[str, Any] = {
        "dataset": {"digest": "d" * 64, "rows": 1797, "source": "digits"},
        "lineage": {"run": run, "dataset": "d" * 64},
        "inputs": [],
        "outputs": [],
        "parameters": {"epochs": 9, "learning_rate": 0.01, **more},
        "code": {"version": "1", "digest": "c" * 64},
        "metrics": {
            "held_out": {"accuracy": accuracy, "rows": 360, "per_class": {}},
            "validation": {"loss": 0.5, "epoch": 4},
            "served": {"metric_name": "accuracy", "accuracy": accuracy},
            "card": {
                "model": "network",
                "class": None,
                "trained": f"2026-11-2{int(accuracy * 9)}",
            },
        },
    }
    files = {"model.onnx": f"{run}{content}".encode(), "card.md": b"# digits\n"}
    done = publisher.store.publish("digits", files, fields, publisher.keyring)
    publisher.store.promote("digits", done.version)
    return done.version


def test_a_stack_that_trained_nothing_says_so(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(capsys, "list") == "stack local has no runs yet\n"
    assert answer(capsys, "list") == []
    assert "no runs yet" in called(capsys, "show", "1", status=2)


def test_a_real_run_is_told_with_its_figures_and_epochs(
    real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [listed] = answer(capsys, "list", "--folder", str(real.parent))
    told = answer(capsys, "show", listed["run"], "--folder", str(real.parent))
    assert {**listed, "history": told["history"]} == told
    record = json.loads((real / records.RECORD).read_text())
    assert told["run"] == record["identity"]
    assert told["state"] == "trained"
    assert told["kind"] == "network"
    assert told["figures"]["accuracy"] == record["metrics"]["held_out"]["accuracy"]
    assert told["parameters"]["epochs"] == told["epochs"] == len(told["history"]) == EPOCHS
    shown = called(capsys, "show", told["run"][:6].upper(), "--folder", str(real.parent))
    assert f"epochs ({EPOCHS})" in shown
    assert "validation accuracy" in shown
    assert f"{100 * told['figures']['accuracy']:.2f} %" in shown


def test_a_run_of_others_parameters_is_set_beside_it(
    real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = Path(shutil.copytree(real, tmp_path / "runs" / "one"))
    other = Path(shutil.copytree(real, tmp_path / "runs" / "two"))
    for name in (records.PARAMETERS, records.RECORD):
        changed = json.loads((other / name).read_text())
        changed["identity"] = IDENTITIES[0]
        changed["parameters"]["learning_rate"] = 0.5
        (other / name).write_text(json.dumps(changed))
    mine = json.loads((copied / records.RECORD).read_text())["identity"]
    names = (mine[:8], IDENTITIES[0][:8])
    told = called(capsys, "compare", *names, "--folder", str(tmp_path / "runs"))
    lines = told.splitlines()
    assert any(each.split()[0] == "learning_rate" and each.endswith("0.5") for each in lines)
    assert not any(each.split()[:1] == ["epochs"] for each in lines)
    assert "the same: " in told
    assert "seed" in told.partition("the same: ")[2]
    everything = called(capsys, "compare", *names, "--all", "--folder", str(tmp_path / "runs"))
    assert any(each.split()[:1] == ["seed"] for each in everything.splitlines())
    values = answer(capsys, "compare", *names, "--folder", str(tmp_path / "runs"))
    assert list(values["differ"]["parameters"]) == ["learning_rate"]
    assert values["differ"]["figures"] == {}


def test_what_a_run_began_with_is_told(
    real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_with = {"digest": "ab" * 32, "run": IDENTITIES[1]}
    other = Path(shutil.copytree(real, tmp_path / "runs" / "two"))
    record = json.loads((other / records.RECORD).read_text())
    record["start"] = {**begun_with, "parameters": 7}
    (other / records.RECORD).write_text(json.dumps(record))
    folder = ("--folder", str(tmp_path / "runs"))
    assert answer(capsys, "show", record["identity"], *folder)["start"] == begun_with
    shown = called(capsys, "show", record["identity"], *folder)
    assert f"began with digest  {'ab' * 32}" in shown
    assert f"began with run     {IDENTITIES[1]}" in shown


def test_versions_are_told_of_after_their_folder_is_gone(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(site)
    publish(publisher, IDENTITIES[0], 0.5)
    publish(publisher, IDENTITIES[1], 0.9, learning_rate=0.02)
    begun(site / "runs" / "x", IDENTITIES[2], 4)
    newest, older, stopped = (find(of_site(site), each) for each in ("2", "1", "bb33"))
    assert [each.state for each in (newest, older, stopped)] == [
        "published",
        "published",
        "stopped",
    ]
    assert newest.aliases == ("production",)
    assert newest.figures["served_accuracy"] == 0.9
    listed = called(capsys, "list")
    assert "digits:2 (production)" in listed
    assert "accuracy 90.00 %" in listed
    assert "stopped, epoch 4 of 9" in listed
    told = called(capsys, "compare", "digits:1", "@production")
    assert "learning_rate" in told
    assert "0.01" in told
    assert "0.02" in told
    assert "gone: the package has its figures" in called(capsys, "show", "@production")


def test_a_run_published_twice_is_one_and_its_folder_adds_to_it(site: Path) -> None:
    publisher = Publisher(site)
    publish(publisher, IDENTITIES[0], 0.5)
    publish(publisher, IDENTITIES[0], 0.6, content="int8")
    begun(site / "runs" / "x", IDENTITIES[0], 2)
    [run] = of_site(site)
    assert run.versions == (2, 1)
    assert run.figures["served_accuracy"] == 0.6
    assert len(run.history) == 2
    # Its record was lost, so that it is done again.
    assert run.state == "stopped"


def test_a_run_under_way_is_told_by_its_process(site: Path) -> None:
    folder = begun(site / "runs" / "x", IDENTITIES[0], 1)
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert sleeper.stdout is not None
    try:
        # While it becomes Python, Linux may not tell its command line yet.
        assert sleeper.stdout.readline() == b"\n"
        pid = folder.with_name("x.pid")
        pid.write_text(f"{sleeper.pid}\n")
        [run] = in_folder(site / "runs")
        assert (run.state, run.epochs) == ("training", 1)
        # A stranger that got the same id is none.
        pid.write_text(f"{os.getpid()}\n")
        assert in_folder(site / "runs")[0].state == "stopped"
    finally:
        sleeper.communicate(b"\n")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (records.PARAMETERS, "not json"),
        (records.PARAMETERS, "[1]"),
        (records.PARAMETERS, "{}"),
        (records.RECORD, "{"),
        (records.RECORD, '{"metrics": [1], "model": "x", "timings": null, "parameters": 3}'),
        (records.METRICS, '{"epoch": "one"}\n{"epoch": 1'),
        (records.METRICS, "\x00\n[]\n1\n"),
    ],
)
def test_damaged_files_are_told_and_hide_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: str
) -> None:
    whole = begun(tmp_path / "whole", IDENTITIES[0], 2)
    broken = begun(tmp_path / "broken", IDENTITIES[1], 2)
    (broken / file).write_text(content)
    found = answer(capsys, "list", "--folder", str(tmp_path))
    assert len(found) == 2
    assert str(whole) in [each["folder"] for each in found]
    listed = called(capsys, "list", "--folder", str(tmp_path))
    for each in found:
        assert not each["error"] or each["error"] in listed


def test_a_version_that_is_not_what_was_signed_is_damaged(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(site)
    publish(publisher, IDENTITIES[0], 0.5)
    publish(publisher, IDENTITIES[1], 0.9)
    manifest = publisher.store.path("digits", 1) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"0.5", b"0.99"))
    forged = find(of_site(site), "1")
    assert forged.state == "damaged"
    assert forged.figures == {}
    listed = called(capsys, "list")
    assert "99" not in listed
    assert forged.error in listed
    shutil.rmtree(site / "keyring")
    assert "can't be verified" in called(capsys, "list", status=2)


def test_names_of_runs_that_are_none_or_several(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(site)
    publish(publisher, IDENTITIES[0], 0.5)
    begun(site / "runs" / "x", IDENTITIES[1], 2)
    for given in (
        "2",
        "digits:7",
        "other:1",
        "digits:x",
        "@canary",
        "bb",
        "aa",
        "zz11",
        "",
        ":",
        "@",
    ):
        said = called(capsys, "show", given, status=2)
        assert f"given {given!r}" in said
        assert "digits:1" in said
    short = IDENTITIES[0][:4]
    assert find(of_site(site), short).versions == (1,)
    twins = [
        Run(f"abcd{number}", "trained", model=f"m{number}", versions=(1,)) for number in (1, 2)
    ]
    for given in ("abcd", "1"):
        with pytest.raises(StackError, match=r"which are several: m1:1 \(run abcd1\), m2:1"):
            find(twins, given)
    assert find(twins, "m2:1") is twins[1]
    assert "two or more" in called(capsys, "compare", "1", "1", status=2)
    assert "two or more" in called(capsys, "compare", "1", status=2)


def test_stacks_in_a_cloud_have_their_runs_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    said = called(capsys, "list", "--stack", "aws-workloads", status=2)
    assert "whose runs are in a cluster" in said
    assert "falaj pipelines" in said


def test_links_are_not_followed_and_folders_not_without_end(tmp_path: Path) -> None:
    begun(tmp_path / "a" / "b" / "c", IDENTITIES[0], 1)
    begun(tmp_path / "a" / "b" / "d" / "e", IDENTITIES[1], 1)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [each.identity for each in in_folder(tmp_path)] == [IDENTITIES[0]]


def test_values_that_one_lacks_differ() -> None:
    one, two = (
        Run(identity, "trained", parameters=parameters)
        for identity, parameters in (("1", {"a": 1, "b": None}), ("2", {"a": 1, "c": 0}))
    )
    differ, same = differences([one, two], lambda each: each.parameters)
    assert differ == {"c": (None, 0)}
    assert same == ["a", "b"]
    assert merged([one, two, one])[0].identity in ("1", "2")
