"""Datasets and training runs through the provider: digests, progress, stopping, going on."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime import proto

from falaj.components.local import machine
from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.handler import Context, Site
from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.components.local.provider.resources.model_package import served_version
from falaj.components.local.provider.resources.training_run import TrainingRunHandler, run_digest
from falaj.wire.values import UNKNOWN, encode
from tests.waiting import alive, wait_for


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small table with something to learn."""
    path = tmp_path / "rows.csv"
    rows = [
        f"{i % 7},{'red' if i % 3 else 'blue'},{'yes' if i % 7 > 3 else 'no'}" for i in range(120)
    ]
    path.write_text("size,colour,answer\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"source": "rows.csv"}, "source", "allowed: digits, or the absolute path"),
        ({"source": "/nowhere/rows.csv"}, "source", "there is no file /nowhere/rows.csv"),
        ({"source": "/etc/hostname"}, "source", "allowed: digits, or the absolute path of a .csv"),
        ({"target": None}, "target", "missing; a table needs the name of the column"),
        ({"holdout": 0.9}, "holdout", "given 0.9; allowed: a number from 0.05 to 0.5"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(
    table: Path, site: Path, change: dict[str, Any], key: str, words: str
) -> None:
    given = {"site": str(site), "source": str(table), "target": "answer", **change}
    with pytest.raises(InvalidInputsError) as caught:
        DatasetHandler().check(given, {})
    assert words in {r.property: r.reason for r in caught.value.errors}[key]


def test_a_changed_file_is_another_dataset(table: Path, site: Path) -> None:
    given: dict[str, Any] = {"site": str(site), "source": str(table), "target": "answer"}
    handler = DatasetHandler()
    before = handler.check(given, {})
    table.write_text(table.read_text() + "9,red,yes\n")
    after = handler.check(given, {})
    path = site / "datasets" / "x"
    path.mkdir(parents=True)
    (path / "dataset.json").write_text("{}")
    changes = handler.diff({**before, "path": str(path)}, after)
    assert set(changes) == {"sourceSha256"}
    assert changes["sourceSha256"].replaces


def test_a_text_needs_no_column_and_a_changed_one_is_another_dataset(
    site: Path, tmp_path: Path
) -> None:
    path = tmp_path / "notes.MD"
    given: dict[str, Any] = {"site": str(site), "source": str(path)}
    with pytest.raises(InvalidInputsError) as caught:
        DatasetHandler().check(given, {})
    assert "there is no file" in caught.value.errors[0].reason
    path.write_text("words", encoding="utf-8")
    before = DatasetHandler().check(given, {})["sourceSha256"]
    path.write_text("other words", encoding="utf-8")
    assert DatasetHandler().check(given, {})["sourceSha256"] != before


@pytest.mark.parametrize(
    ("held_out", "metric"),
    [
        ({"accuracy": 0.5, "nats_per_character": 1.5}, "nats_per_character"),
        ({"accuracy": 0.5, "macro_f1": 0.4}, "accuracy"),
        ({"rmse": 2.0}, "rmse"),
    ],
)
def test_the_figure_of_a_run_is_that_of_its_task(
    site: Path, held_out: dict[str, float], metric: str
) -> None:
    run = site / "runs" / "x"
    run.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps({"metrics": {"held_out": held_out}}))
    read = TrainingRunHandler().read("x", {"site": str(site), "path": str(run)})
    assert read is not None
    assert (read["metricName"], read["score"]) == (metric, held_out[metric])


def test_a_changed_picture_of_a_folder_is_another_dataset(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shapes"
    (folder / "circle").mkdir(parents=True)
    (folder / "circle" / "one.png").write_bytes(b"1")
    given: dict[str, Any] = {"site": str(site), "source": str(folder)}
    seen = [DatasetHandler().check(given, {})["sourceSha256"]]
    (folder / ".DS_Store").write_bytes(b"hidden")
    assert DatasetHandler().check(given, {})["sourceSha256"] == seen[0]
    (folder / "circle" / "one.png").rename(folder / "circle" / "two.png")
    seen.append(DatasetHandler().check(given, {})["sourceSha256"])
    (folder / "circle" / "two.png").write_bytes(b"2")
    seen.append(DatasetHandler().check(given, {})["sourceSha256"])
    (folder / "circle").rename(folder / "square")
    seen.append(DatasetHandler().check(given, {})["sourceSha256"])
    assert len(set(seen)) == 4


def test_a_digest_that_a_person_gives_is_not_believed(site: Path) -> None:
    checked = DatasetHandler().check({"site": str(site), "sourceSha256": "made up"}, {})
    assert checked["sourceSha256"] == "built in"


def test_bad_rows_are_refused_in_a_preview_in_plain_words(
    provider: Any, table: Path, site: Path
) -> None:
    table.write_text("a,answer\n1,5\n2,5\n3,5\n")
    with pytest.raises(grpc.RpcError) as caught:
        provider.create(
            "Dataset",
            {"site": str(site), "source": str(table), "target": "answer"},
            preview=True,
        )
    assert "constant" in caught.value.details()
    assert "Traceback" not in caught.value.details()
    assert not caught.value.details().startswith("error:")
    assert list(site.iterdir()) == []


def test_dataset_life(provider: Any, table: Path, site: Path) -> None:
    inputs = {"site": str(site), "source": str(table), "target": "answer"}
    _, expected = provider.create("Dataset", inputs, preview=True)
    made, state = provider.create("Dataset", inputs)
    assert expected == {key: state[key] for key in expected}
    assert made == state["digest"][:16]
    assert state["resolvedTask"] == "classification"
    assert state["classes"] == ["no", "yes"]
    assert (state["rows"], state["features"]) == (120, 2)
    assert provider.diff("Dataset", made, state, inputs).changes == proto.DiffResponse.DIFF_NONE
    assert provider.read("Dataset", made, state)[1]["digest"] == state["digest"]
    again, _ = provider.create("Dataset", inputs)
    assert again == made
    # That was a later incarnation of the same snapshot: the first one no longer owns it.
    provider.delete("Dataset", made, state)
    assert Path(state["path"]).is_dir()
    provider.delete("Dataset", made, {**state, "claim": claim_of(site)})
    assert not Path(state["path"]).exists()
    assert provider.read("Dataset", made, state)[0] == ""


def claim_of(site: Path) -> str:
    (place,) = (site / ".claims").iterdir()
    return place.read_text()


INPUTS: dict[str, Any] = {
    "site": "/s", "dataset": "/d", "datasetDigest": "abc", "epochs": 3, "processes": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"shard": 0}, "shard", "given 0; allowed: a whole number from 1 to 1024"),
        ({"tensor": 257}, "tensor", "given 257; allowed: a whole number from 1 to 256"),
        ({"pipeline": 0}, "pipeline", "given 0; allowed: a whole number from 1 to 256"),
        ({"recompute": "all"}, "recompute", "given 'all'; allowed: none, layers"),
        ({"compile": "maybe"}, "compile", "given 'maybe'; allowed: auto, always, never"),
        ({"compile": "always", "tensor": 2}, "compile", "given 'always' beside tensor 2; allowed"),
        ({"compression": "zip"}, "compression", "given 'zip'; allowed: none, float16, bfloat16"),
        (
            {"shard": 4, "tensor": 2},
            "processes",
            "given shard 4 x tensor 2 x pipeline 1 = 8, but the training has 4 process(es); allow",
        ),
        ({"shard": 2, "processes": None}, "processes", "but the training has 1 process(es)"),
        (
            {"shard": 2, "compression": "float16"},
            "compression",
            "given 'float16' beside shard 2; allowed: none there",
        ),
        (
            {"processes": None, "compression": "bfloat16"},
            "compression",
            "but the training has 1 process, which exchanges nothing",
        ),
    ],
)
def test_a_division_that_cannot_be_is_refused(
    change: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        TrainingRunHandler().check({**INPUTS, **change}, {})
    assert words in {each.property: each.reason for each in caught.value.errors}[key]


def test_a_division_that_is_not_known_yet_is_not_refused() -> None:
    checked = TrainingRunHandler().check({**INPUTS, "processes": UNKNOWN, "shard": 3}, {})
    assert checked["shard"] == 3


def test_what_divides_nothing_is_no_change_of_an_earlier_run(tmp_path: Path) -> None:
    handler = TrainingRunHandler()
    (tmp_path / "record.json").write_text("{}")
    usual = {
        "shard": 1,
        "tensor": 1,
        "pipeline": 1,
        "recompute": "none",
        "compile": "auto",
        "compression": "none",
    }
    before = {**INPUTS, "retain": False, "path": str(tmp_path)}  # as made before there was any
    assert handler.diff(before, handler.check({**INPUTS, **usual}, {})) == {}
    assert run_digest(handler.check({**INPUTS, **usual}, {})) == run_digest(INPUTS)


def test_the_trainer_is_told_of_a_division(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []

    def run(_context: Any, _module: str, arguments: list[str], **_options: Any) -> None:
        told.append(arguments)

    monkeypatch.setattr("falaj.components.local.provider.workloads.run", run)
    asked = {"shard": 2, "tensor": 2, "recompute": "layers", "compile": "never"}
    handler = TrainingRunHandler()
    for given in ({**INPUTS, **asked}, {**INPUTS, "compression": "float16"}):
        with pytest.raises(machine.LocalError, match="ended without a record"):
            handler.create(Context("run"), handler.check({**given, "site": str(site)}, {}))
    divided, compressed = (" ".join(words) for words in told)
    assert "--shard 2 --tensor 2 --recompute layers --compile never" in divided
    assert "--pipeline" not in divided
    assert "--compression" not in divided
    assert "--compression float16" in compressed
    assert "--shard" not in compressed


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 4},
        {"learningRate": 0.01},
        {"seed": 1},
        {"datasetDigest": "def"},
        {"width": 8},
        {"compression": "powersgd"},
        {"prune": 0.5},
        {"quantisationAware": True},
    ],
)
def test_another_hyperparameter_is_another_run(change: dict[str, Any], tmp_path: Path) -> None:
    handler = TrainingRunHandler()
    (tmp_path / "record.json").write_text("{}")
    before, after = handler.check(INPUTS, {}), handler.check({**INPUTS, **change}, {})
    changes = handler.diff({**before, "path": str(tmp_path)}, after)
    assert [entry.replaces for entry in changes.values()] == [True]
    assert run_digest(before) != run_digest(after)


@pytest.mark.parametrize(
    "change",
    [
        {"checkpointEvery": 5},
        {"accumulation": 2},
        {"readAhead": 8},
        {"tune": True},
        {"keyring": "/k"},
        {"dataset": "/e"},
        {"shard": 2},
        {"tensor": 2},
        {"pipeline": 4},
        {"recompute": "layers"},
        {"compile": "always"},
    ],
)
def test_what_decides_nothing_trains_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    handler = TrainingRunHandler()
    (tmp_path / "record.json").write_text("{}")
    before, after = handler.check(INPUTS, {}), handler.check({**INPUTS, **change}, {})
    changes = handler.diff({**before, "path": str(tmp_path)}, after)
    assert [entry.replaces for entry in changes.values()] == [False]
    assert run_digest(before) == run_digest(after)


def test_a_lost_run_is_done_again(tmp_path: Path) -> None:
    state = {**TrainingRunHandler().check(INPUTS, {}), "path": str(tmp_path)}
    changes = TrainingRunHandler().diff(state, TrainingRunHandler().check(INPUTS, {}))
    assert changes["path"].replaces


def test_an_unknown_dataset_leaves_the_run_unknown() -> None:
    inputs = {**TrainingRunHandler().check(INPUTS, {}), "datasetDigest": UNKNOWN}
    assert TrainingRunHandler().preview(inputs, None)["path"] is UNKNOWN


@pytest.mark.thorough
@pytest.mark.slow
def test_cancelling_leaves_a_checkpoint_that_the_next_run_goes_on_from(
    own_provider: Any, provider: Any, table: Path, site: Path
) -> None:
    source = {"site": str(site), "source": str(table), "target": "answer"}
    _, dataset = provider.create("Dataset", source)
    inputs = {
        "site": str(site),
        "dataset": dataset["path"],
        "datasetDigest": dataset["digest"],
        "epochs": 60,
        "patience": 100,
        "threads": 1,
    }
    checked, _ = own_provider.check("TrainingRun", inputs)
    request = proto.CreateRequest(urn=own_provider.urn("TrainingRun"), properties=encode(checked))
    failures: list[Any] = []

    def create() -> None:
        try:
            own_provider.stub.Create(request, timeout=120)
        except grpc.RpcError as error:
            failures.append(error)

    waiting = threading.Thread(target=create)
    waiting.start()

    def epochs() -> list[str]:
        return [text for _, text, _ in own_provider.engine.messages if text.startswith("epoch ")]

    wait_for(lambda: len(epochs()) >= 2, "two epochs")
    own_provider.stub.Cancel(empty_pb2.Empty())
    waiting.join(timeout=120)
    (failure,) = failures
    assert failure.details() == (
        "the training was stopped on request; what it had is kept, and the next `pulumi up` "
        "resumes from there"
    )
    folder = site / "runs" / run_digest(checked)[:16]
    assert (folder / "checkpoint").is_file()
    assert not (folder / "record.json").exists()
    assert machine.find_processes(("falaj.workloads.training", str(site))) == []
    assert not folder.with_name(f"{folder.name}.pid").exists()

    made, state = provider.create("TrainingRun", inputs)
    assert made == folder.name
    assert any("going on" in text for _, text, _ in provider.engine.messages)
    assert state["metricName"] == "accuracy"
    assert (
        state["score"]
        == json.loads((folder / "record.json").read_text())["metrics"]["held_out"]["accuracy"]
    )
    provider.delete("TrainingRun", made, state)
    assert not folder.exists()


@pytest.mark.slow
def test_a_killed_provider_leaves_no_trainer(
    own_provider: Any, provider: Any, table: Path, site: Path
) -> None:
    source = {"site": str(site), "source": str(table), "target": "answer"}
    _, dataset = provider.create("Dataset", source)
    checked, _ = own_provider.check(
        "TrainingRun",
        {
            "site": str(site),
            "dataset": dataset["path"],
            "datasetDigest": dataset["digest"],
            "epochs": 5000,
            "patience": 5000,
        },
    )
    call = own_provider.stub.Create.future(
        proto.CreateRequest(urn=own_provider.urn("TrainingRun"), properties=encode(checked))
    )
    words = ("falaj.workloads.training", str(site))
    wait_for(lambda: machine.find_processes(words), "the trainer")
    wait_for(lambda: any(own_provider.engine.messages), "the first word of the trainer")
    (trainer, *_) = machine.find_processes(words)
    own_provider.process.kill()
    wait_for(lambda: not machine.is_process_running(trainer, words), "the trainer's end")
    assert machine.find_processes(words) == []
    # One that is about to end has no command line any more, and is there for a moment.
    wait_for(lambda: not alive(trainer), "nothing of the trainer")
    call.cancel()


def test_a_package_of_no_known_dataset_is_compared_without_one(tmp_path: Path) -> None:
    """One that was published by hand need not say what it was made from."""
    folder = tmp_path / "registry" / "shop" / "versions" / "4"
    folder.mkdir(parents=True)
    aliases = {"production": {"version": 4, "history": [], "changed": ""}}
    (folder.parents[1] / "aliases.json").write_text(json.dumps(aliases))
    (folder / "manifest.json").write_text(json.dumps({"dataset": {}}))
    assert served_version(Site(tmp_path), "shop") == {"served": str(folder)}
    snapshot = tmp_path / "datasets" / ("ab" * 8)
    snapshot.mkdir(parents=True)
    (snapshot / "dataset.json").write_text("{}")
    (folder / "manifest.json").write_text(json.dumps({"dataset": {"digest": "ab" * 32}}))
    assert served_version(Site(tmp_path), "shop")["served-dataset"] == str(snapshot)


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"prune": 0.95}, "prune", "allowed: a number from 0 to 0.9"),
        ({"quantisationAware": "yes"}, "quantisationAware", "given 'yes'"),
        ({"tune": "yes"}, "tune", "given 'yes'"),
        ({"tune": True, "shard": 2, "processes": 2}, "tune", "and here one is divided"),
        ({"readAhead": 0}, "readAhead", "allowed: a whole number from 1 to"),
        ({"distilWeight": 0.5}, "distilWeight", "is of a teacher's answers, and 'teacher' is"),
        ({"distilTemperature": 2.0}, "distilTemperature", "is of a teacher's answers"),
        ({"teacher": "/nowhere"}, "teacher", "given /nowhere, which holds no finished run: No"),
        (
            {"prune": 0.5, "shard": 2, "processes": 2},
            "prune",
            "is of networks that each process has whole, and here one is divided",
        ),
        (
            {"quantisationAware": True, "model": "mine.network:Network", "code": "/c"},
            "quantisationAware",
            "is of Falaj's own networks; leave it out",
        ),
    ],
)
def test_what_makes_networks_smaller_is_refused_where_it_can_not(
    change: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        TrainingRunHandler().check({**INPUTS, **change}, {})
    assert words in {each.property: each.reason for each in caught.value.errors}[key]


def test_what_makes_nothing_smaller_is_no_change_of_an_earlier_run(tmp_path: Path) -> None:
    handler = TrainingRunHandler()
    (tmp_path / "record.json").write_text("{}")
    usual = {"prune": 0.0, "quantisationAware": False, "tune": False, "teacher": None}
    before = {**INPUTS, "retain": False, "path": str(tmp_path)}
    assert handler.diff(before, handler.check({**INPUTS, **usual}, {})) == {}
    assert run_digest(handler.check({**INPUTS, **usual}, {})) == run_digest(INPUTS)


def told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command lines of workloads, which aren't run."""
    told: list[str] = []

    def run(_context: Any, _module: str, arguments: list[str], **_options: Any) -> None:
        told.append(" ".join(arguments))

    monkeypatch.setattr("falaj.components.local.provider.workloads.run", run)
    return told


@pytest.mark.parametrize(("processes", "told"), [(1, False), (2, True)])
def test_settings_are_measured_once_for_a_site(
    processes: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, words = TrainingRunHandler(), told_to_nobody(monkeypatch)
    place = tmp_path / "site"
    asked = {"tune": True, "processes": processes, "site": str(place), "accumulation": 2}
    inputs = handler.check({**INPUTS, **asked}, {})
    with pytest.raises(machine.LocalError, match="without a record"):
        handler.create(Context("create"), inputs)
    assert f"--tune --measured {place / 'measured'}" in words[0]
    assert ("--processes" in words[0]) is told
    assert "--accumulation 2" in words[0]
    assert run_digest(inputs) == run_digest({**inputs, "tune": None, "accumulation": None})


def test_another_teacher_is_another_run_of_which_the_trainer_is_told(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_to_nobody(monkeypatch)
    handler, asked = TrainingRunHandler(), {"prune": 0.5, "quantisationAware": True}
    given = {**INPUTS, "site": str(site), "teacher": str(tmp_path), "distilWeight": 0.5, **asked}
    digests: list[str] = []
    for record in ("{}", '{"identity": "other"}'):
        (tmp_path / "record.json").write_text(record)
        digests.append(run_digest(handler.check(given, {})))
    assert len(set(digests)) == 2
    with pytest.raises(machine.LocalError, match="ended without a record"):
        handler.create(Context("run"), handler.check(given, {}))
    for words in (f"--teacher {tmp_path}", "--distil-weight 0.5", "--prune 0.5"):
        assert words in told[0]
    assert "--quantisation-aware --adopt" in told[0]
    assert handler.check({**INPUTS, "teacher": UNKNOWN}, {})["teacherSha256"] is UNKNOWN


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"loraRank": 0}, "loraRank", "given 0; allowed: a whole number from 1 to 1024"),
        ({"loraMatrices": "norms"}, "loraMatrices", "given 'norms'; allowed: all, attention, un"),
        ({"loraRank": 4}, "loraRank", "is of low ranks, and 'start' is missing"),
        ({"loraAlpha": 4.0}, "loraAlpha", "is of low ranks, and 'loraRank' is missing"),
        ({"loraMatrices": "units"}, "loraMatrices", "is of low ranks, and 'loraRank' is missing"),
        (
            {"start": "/nowhere", "loraRank": 4, "shard": 2, "processes": 2},
            "loraRank",
            "is of networks that each process has whole, and here one is divided",
        ),
        ({"start": "/nowhere"}, "start", "given /nowhere, which holds neither a finished run"),
    ],
)
def test_what_a_training_can_not_begin_with_is_refused(
    change: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        TrainingRunHandler().check({**INPUTS, **change}, {})
    assert words in {each.property: each.reason for each in caught.value.errors}[key]


def test_other_weights_are_another_run_of_which_the_trainer_is_told(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_to_nobody(monkeypatch)
    handler = TrainingRunHandler()
    given = {**INPUTS, "site": str(site), "start": str(tmp_path), "loraRank": 4, "loraAlpha": 2.5}
    digests = [run_digest(handler.check(INPUTS, {}))]
    for name, content in (
        ("record.json", "{}"), ("record.json", '{"identity": "other"}'), ("config.json", "{}"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        for other in ("tokenizer.json", "model.safetensors"):
            (tmp_path / other).write_text("")
        digests.append(run_digest(handler.check(given, {})))
    digests.append(run_digest(handler.check({**given, "loraMatrices": "units"}, {})))
    assert len(set(digests)) == len(digests)
    with pytest.raises(machine.LocalError, match="ended without a record"):
        handler.create(Context("run"), handler.check(given, {}))
    for words in (f"--start {tmp_path}", "--lora-rank 4", "--lora-alpha 2.5"):
        assert words in told[0]
    assert handler.check({**INPUTS, "start": UNKNOWN}, {})["startSha256"] is UNKNOWN
    usual = {"loraMatrices": "all", "start": None, "loraRank": None}
    assert run_digest(handler.check({**INPUTS, **usual}, {})) == run_digest(INPUTS)


def test_another_vocabulary_is_another_dataset(site: Path, tmp_path: Path) -> None:
    text, folder = tmp_path / "notes.txt", tmp_path / "begun"
    text.write_text("words " * 20)
    folder.mkdir()
    handler = DatasetHandler()
    given = {"site": str(site), "source": str(text), "vocabularyOf": str(folder)}
    for name, content in (
        ("none.json", ""), ("record.json", "{"), ("record.json", "[]"), ("record.json", "{}"),
        ("config.json", "{}"), ("tokenizer.json", "{}"), ("tokenizer.json", '{"model": 1}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 1, "b": "c"}}}'),
    ):  # fmt: skip
        (folder / name).write_text(content)
        with pytest.raises(InvalidInputsError) as caught:
            handler.check(given, {})
        assert [each.property for each in caught.value.errors] == ["vocabularyOf"]
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"b": 1, "a": 0}}}))
    of_folder = handler.check(given, {})["vocabularyOfSha256"]
    (folder / "config.json").unlink()
    seen: list[Any] = []
    for classes in (["a", "b"], ["a", "c"]):
        (folder / "record.json").write_text(json.dumps({"classes": classes, "created": "now"}))
        seen.append(handler.check(given, {})["vocabularyOfSha256"])
    assert seen[0] == of_folder != seen[1]
    assert handler.check({**given, "vocabularyOf": UNKNOWN}, {})["vocabularyOfSha256"] is UNKNOWN


def test_a_preview_reads_the_tokens_of_a_sealed_model(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def run(_context: Any, _module: str, arguments: list[str], **_options: Any) -> None:
        told.append(" ".join(arguments))
        raise machine.LocalError("seen")

    monkeypatch.setattr("falaj.components.local.provider.workloads.run", run)
    folder, handler = tmp_path / "begun", DatasetHandler()
    folder.mkdir()
    record = {"classes": ["0"], "dataset": {"vocabulary": {"digest": "ab" * 32}}}
    (folder / "record.json").write_text(json.dumps(record))
    (tmp_path / "notes.txt").write_text("words " * 20)
    plain = {"site": str(site), "source": str(tmp_path / "notes.txt"), "keyring": "/keys"}
    given = {**plain, "vocabularyOf": str(folder)}
    assert handler.check(given, {})["vocabularyOfSha256"] == "ab" * 32
    for inputs in (given, {**given, "keyring": UNKNOWN}, plain):
        with pytest.raises(machine.LocalError, match="seen"):
            handler.preview(handler.check(inputs, {}), None)
    for words in told[:2]:
        assert f"--vocabulary-of {folder}" in words
    assert ["--keyring /keys" in words for words in told] == [True, False, False]
    assert not any("--vocabulary " in words for words in told)
