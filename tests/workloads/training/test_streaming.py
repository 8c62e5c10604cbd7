"""Datasets of shards: refused by shard, dealt to processes, read ahead, resumed to the row."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, distributed, folds, launcher, shard_set
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.ahead import Ahead
from falaj.workloads.training.batches import PreparedData, prepare
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.own_code import read_folder
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.shard_order import LANES, EpochOrder, lanes_of, span
from falaj.workloads.training.shards import Shards, place
from falaj.workloads.training.snapshot import Dataset, open_dataset, require_whole
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.streamed import StreamedBatches
from tests.examples import examples
from tests.workloads.training.conftest import StopAfter, Train
from tests.workloads.training.test_shard_files import lines, png, tar

_parquet: Any = pyarrow.parquet  # of which the types here know less

ROWS, SHARDS = 900, 3
NETWORK = """
import math
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        size = math.prod(inputs)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.BatchNorm1d(size), nn.Linear(size, 8), nn.ReLU()
        )
        self.last = nn.Linear(8, outputs)

    def forward(self, rows):
        return self.last(self.layers(rows))
"""

Columns = dict[str, Any]


def columns(number: int, rows: int = ROWS // SHARDS) -> Columns:
    random = np.random.default_rng(number)
    first, second = random.normal(size=(2, rows))
    city = random.choice(["Dubai", "العين", ""], rows)
    return {
        "id": [f"{number}-{each}" for each in range(rows)],
        "first": np.where(random.random(rows) < 0.05, np.nan, first),
        "second": second.astype(np.float32),
        "city": city.tolist(),
        "label": np.where(first + (city == "Dubai") > 0, "yes", "no").tolist(),
    }


def write(folder: Path, *every: Columns, row_group: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(every):
        _parquet.write_table(
            pa.table(each), folder / f"part-{number}.parquet", row_group_size=row_group
        )
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", *map(columns, range(SHARDS)))


def made(source: Path, output: Path, keyring: KeyRing | None = None, **given: Any) -> Dataset:
    wanted = datasets.Source(str(source), **{"target": "label", **given})
    return open_dataset(datasets.write(datasets.build(wanted), output, keyring), keyring)


@pytest.fixture
def dataset(source: Path, tmp_path: Path, small_shards: None) -> Dataset:
    return made(source, tmp_path / "datasets")


Learn = Callable[..., int]


@pytest.fixture
def learn(tmp_path: Path) -> Learn:
    """Train a model of a team's own in this process, as the launcher does."""
    code = tmp_path / "code"
    (code / "mine").mkdir(parents=True)
    (code / "mine" / "network.py").write_text(NETWORK)

    def run(dataset: Dataset, output: Path, stop: StopRequest | None = None, **given: Any) -> int:
        asked: dict[str, Any] = {
            "device": "cpu", "model": "mine.network:Network", "code": code, "epochs": 3,
            "threads": 1, "batch_size": 32, **given,
        }  # fmt: skip
        requested = Requested(**asked)
        check(requested)
        own = None if asked["code"] is None else read_folder(code)
        parameters = launcher.resolve(requested, dataset, own)
        output.mkdir(exist_ok=True)
        name = "checkpoint" if dataset.keyring is None else "checkpoint.sealed"
        setting = Setting(
            dataset, parameters, output, dataset.keyring, parameters.identity(dataset.digest),
            (output / name).exists(), None, own,
        )  # fmt: skip
        progress = Progress("json", True, lambda: None)
        return Session(setting, distributed.join("cpu"), stop or StopRequest(), progress).run()

    return run


def refused(folder: Path, **given: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        datasets.build(datasets.Source(str(folder), **{"target": "label", **given}))
    return str(caught.value)


def history(output: Path) -> list[dict[str, Any]]:
    """An epoch's figures, but for those of time."""
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    kept = ("epoch", "steps", "loss", "gradient_norm", "validation_loss", "validation_accuracy")
    return [{key: each[key] for key in kept} for each in found]


def weights(output: Path, keyring: KeyRing | None = None) -> bytes:
    state = load_trained(output, keyring).module.state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def without(each: Columns, name: str) -> Columns:
    return {key: value for key, value in each.items() if key != name}


@pytest.mark.parametrize(
    ("third", "given", "words"),
    [
        (lambda e: without(e, "city"), {}, "the shard part-2.parquet lacks 'city' than part-0"),
        (
            lambda e: e | {"more": e["id"]},
            {},
            "the shard part-2.parquet has 'more' more than part",
        ),
        (
            lambda e: e | {"first": e["id"]},
            {},
            "'first' of the shard part-2.parquet is text (from",
        ),
        (
            lambda e: e | {"second": np.where(np.arange(300) == 150, np.inf, e["second"])},
            {},
            "'second' of the shard part-2.parquet is infinite in record 151",
        ),
        (
            lambda e: e,
            {"target": None},
            "name the column to predict (--target); part-0.parquet has",
        ),
        (lambda e: e, {"target": "absent"}, "part-0.parquet has no column 'absent' to predict"),
        (lambda e: e, {"task": "regression"}, "'label' holds text, which can't be regressed"),
        (lambda e: e, {"target": "id"}, "'id' has more than 1,000 classes"),
        (lambda e: e, {"holdout": 0.9}, "--holdout is 0.9: allowed is 0.05 to 0.5"),
        (lambda e: e, {"context": 8}, "--context 8 is of texts"),
    ],
)
def test_what_is_wrong_in_the_third_shard(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    third: Callable[[Columns], Columns],
    given: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setattr(shard_set, "MAXIMUM_CLASSES", 1_000 if "target" not in given else 500)
    words = words.replace("1,000", "500")
    every = [*map(columns, range(2)), third(columns(2))]
    assert words in refused(write(tmp_path / "source", *every), **given)


@pytest.mark.parametrize(
    ("every", "words"),
    [
        ([columns(0, 100)], "have 100 rows with a target; a streamed dataset has at least 200"),
        ([columns(0, 0), columns(1, 0)], "have no rows"),
        ([columns(0) | {"label": ["yes"] * 300}], "the target 'label' has one class alone"),
        ([columns(0) | {"label": [None] * 300}], "have 0 rows with a target"),
        (
            [{"label": columns(0)["label"], "all": [1.0] * 300}],
            "no usable column beside the target",
        ),
    ],
)
def test_shards_of_which_nothing_can_be_learned(
    tmp_path: Path, every: list[Columns], words: str
) -> None:
    assert words in refused(write(tmp_path / "source", *every))


def test_rows_without_a_target_are_dropped_and_empty_shards_are_none(
    tmp_path: Path, small_shards: None
) -> None:
    second = columns(1)
    second["label"] = [None, "", *second["label"][2:]]
    found = made(write(tmp_path / "s", columns(0), columns(9, 0), second), tmp_path / "d")
    assert found.description["rows"]["total"] == 598
    assert found.description["rows"]["dropped"] == 2
    assert [each["rows"] for each in (found.stream or {})["sources"]] == [300, 0, 300]
    excluded = found.description["excluded"]
    assert [each["name"] for each in excluded] == ["id"]


def test_each_row_is_in_one_part(dataset: Dataset) -> None:
    stream = dataset.stream or {}
    shards, rows = Shards(dataset), dataset.description["rows"]
    assert len(shards.rows) > 2 * LANES
    assert sum(shards.rows) == stream["rows"]
    assert rows["total"] == ROWS == len(dataset.labels) + stream["rows"]
    assert rows["train"] == stream["rows"] + stream["sample"]
    every = [shards.read(each)[0]["second"] for each in range(len(shards.rows))]
    found = np.concatenate([*every, dataset.inputs["second"]]).astype(np.float32)
    wanted = np.concatenate([columns(each)["second"] for each in range(SHARDS)])
    assert np.array_equal(np.sort(found), np.sort(wanted))


def test_the_scale_is_of_all_rows(dataset: Dataset) -> None:
    recipe = (dataset.stream or {})["recipe"]
    for each in recipe["numeric"]:
        values = np.concatenate([columns(n)[each["name"]] for n in range(SHARDS)])
        assert each["mean"] == pytest.approx(np.nanmean(values), rel=1e-6)
        assert each["scale"] == pytest.approx(np.nanstd(values), rel=1e-6)
    assert recipe["categorical"] == [{"name": "city", "categories": ["Dubai", "العين"]}]


def test_the_same_is_made_once(source: Path, tmp_path: Path, small_shards: None) -> None:
    output, wanted = tmp_path / "datasets", datasets.Source(str(source), "label")
    assert datasets.made_before(wanted, output, None) is None
    first = made(source, output)
    found = datasets.made_before(wanted, output, None)
    assert found is not None
    assert found[0]["digest"] == first.digest
    assert (
        datasets.made_before(datasets.Source(str(source), "label", seed=1), output, None) is None
    )
    folder = found[1]
    place(folder, 1).unlink()  # no longer whole
    assert datasets.made_before(wanted, output, None) is None
    assert made(source, output).digest == first.digest
    assert place(folder, 1).is_file()
    write(source, columns(7))  # another file under the name of the first
    assert datasets.made_before(wanted, output, None) is None
    assert made(source, output).digest != first.digest


def test_a_shard_that_changes_while_it_is_read(
    source: Path, tmp_path: Path, small_shards: None
) -> None:
    built = datasets.build(datasets.Source(str(source), "label"))
    write(source, columns(8))
    with pytest.raises(WorkloadError, match="changed while they were read"):
        datasets.write(built, tmp_path / "datasets", None)
    assert list((tmp_path / "datasets").iterdir()) == []


def test_shards_are_sealed_each_for_its_place(
    source: Path, tmp_path: Path, small_shards: None, learn: Learn
) -> None:
    keyring = KeyRing.create(tmp_path / "keys")
    plain, found = made(source, tmp_path / "plain"), made(source, tmp_path / "d", keyring)
    assert found.digest == plain.digest
    folder = found.folder
    assert folder is not None
    files = sorted((folder / "shards").iterdir())
    assert all(each.name.endswith(".parquet.sealed") for each in files)
    assert not any(b"PAR1" in each.read_bytes() for each in files)
    shards = Shards(found)
    assert np.array_equal(shards.read(1)[1], Shards(plain).read(1)[1])
    for each in (found, plain):
        assert learn(each, tmp_path / f"run-{each.keyring is None}", epochs=1) == 0
    assert weights(tmp_path / "run-False", keyring) == weights(tmp_path / "run-True")
    request = Request(
        tmp_path / "run-False", folder, tmp_path / "optimised", keyring, accept="any",
        quantise="never",
    )  # fmt: skip
    optimise(request, lambda _: None)
    fields = json.loads((tmp_path / "optimised" / "fields.json").read_text())
    assert fields["lineage"]["dataset"] == found.digest
    files[2].write_bytes(files[1].read_bytes())
    with pytest.raises(IntegrityError, match=r"000002\.parquet\.sealed"):
        shards.read(2)
    files[2].unlink()
    with pytest.raises(WorkloadError, match=r"000002\.parquet\.sealed"):
        shards.check_there()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "000003.parquet is damaged"),
        (
            lambda path: path.write_bytes(path.with_name("000004.parquet").read_bytes()),
            "000003.parquet isn't what was written",
        ),
        (lambda path: path.unlink(), "000003.parquet"),
    ],
)
def test_a_shard_that_breaks_ends_the_training_with_its_name(
    dataset: Dataset, tmp_path: Path, learn: Learn, spoil: Callable[[Path], Any], words: str
) -> None:
    assert dataset.folder is not None
    spoil(place(dataset.folder, 3))
    with pytest.raises(WorkloadError) as caught:
        learn(dataset, tmp_path / "run")
    assert words in str(caught.value)
    assert not any(each.name == "rows-ahead" for each in threading.enumerate())


def test_who_needs_all_rows_refuses_a_stream(
    dataset: Dataset, tmp_path: Path, learn: Learn
) -> None:
    with pytest.raises(WorkloadError, match="streamed from shards, and a batch needs"):
        require_whole(dataset, "a batch")
    with pytest.raises(WorkloadError, match="--class-weights balanced needs the classes"):
        learn(dataset, tmp_path / "run", class_weights="balanced")


@pytest.mark.parametrize("processes", [3, 5, 7, 9, 16])
def test_so_many_processes_cant_share_the_lanes(processes: int) -> None:
    with pytest.raises(WorkloadError, match=rf"{processes} processes share .* are 1, 2, 4, 8,"):
        lanes_of(0, processes)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=20).filter(lambda each: sum(each) >= LANES),
    st.integers(0, 2**31 - 1),
    st.integers(0, 3),
)
def test_an_epoch_has_each_row_once(rows: list[int], seed: int, epoch: int) -> None:
    order = EpochOrder(rows, seed, epoch)
    found: list[tuple[int, int]] = []
    for lane in range(LANES):
        before = 0
        for window in order.windows(lane):
            assert window.first == before
            before += window.rows
            assert sorted(window.order().tolist()) == list(range(window.rows))
            found += [(p.shard, row) for p in window.pieces for row in range(p.start, p.stop)]
        assert before == order.lane_rows(lane)
    assert sorted(found) == [(s, row) for s, count in enumerate(rows) for row in range(count)]
    assert max(map(order.lane_rows, range(LANES))) - min(map(order.lane_rows, range(LANES))) <= 1


@given(st.integers(0, 500), st.integers(0, 90))
def test_a_batch_has_each_of_its_rows_in_one_lane(begin: int, rows: int) -> None:
    found: list[int] = []
    for lane in range(LANES):
        start, stop = span(lane, begin, begin + rows)
        found += [each * LANES + lane for each in range(start, stop)]
    assert sorted(found) == list(range(begin, begin + rows))


Prepared = tuple[Dataset, PreparedData]


@pytest.fixture
def prepared(dataset: Dataset) -> Prepared:
    return dataset, prepare(dataset, launcher.resolve(Requested(device="cpu"), dataset))


def batches(prepared: Prepared, rank: int, processes: int, **given: Any) -> StreamedBatches:
    dataset, data = prepared
    asked: dict[str, Any] = {"batch_size": 50, "accumulation": 1, "seed": 3, "is_even": False}
    return StreamedBatches(
        Shards(dataset), data, torch.device("cpu"),
        rank=rank, processes=processes, **(asked | given),
    )  # fmt: skip


def rows_of(made: StreamedBatches, epoch: int, step: int) -> tuple[list[Any], float, int]:
    """The rows of a step, the sum of their weights, and how many parts it has."""
    shares = list(made.shares(made.order(epoch), epoch, step))
    found = [
        tuple(each.inputs[place].tolist())
        for each in shares
        for place in range(len(each.inputs))
        if float(each.weights[place]) > 0
    ]
    return found, sum(float(each.weights.sum()) for each in shares), len(shares)


@pytest.mark.parametrize("given", [
    {}, {"accumulation": 3}, {"is_even": True}, {"batch_size": 5}, {"batch_size": 3},
])  # fmt: skip
def test_any_number_of_processes_learns_from_the_same_batches(
    prepared: Prepared, given: dict[str, Any]
) -> None:
    whole = batches(prepared, 0, 1, **given)
    shared = {n: [batches(prepared, rank, n, **given) for rank in range(n)] for n in (2, 8)}
    for step in (0, 1, whole.steps - 1):
        rows, weight, count = rows_of(whole, 1, step)
        assert weight == pytest.approx(1, abs=1e-5)
        begin, end = whole.bounds(step)
        assert len(rows) == end - begin
        for team in shared.values():
            parts = [rows_of(each, 1, step) for each in team]
            assert sorted(row for part in parts for row in part[0]) == sorted(rows)
            assert sum(part[1] for part in parts) == pytest.approx(1, abs=1e-5)
            assert {part[2] for part in parts} == {count}  # all meet as often
            assert {each.steps for each in team} == {whole.steps}
    for each in (whole, *shared[2], *shared[8]):
        each.close()


def test_the_order_is_of_seed_and_epoch_and_any_step_is_found_again(prepared: Prepared) -> None:
    first, other, seeded = (batches(prepared, 0, 1, seed=seed) for seed in (3, 3, 4))
    steps = [(epoch, step) for epoch in range(2) for step in range(first.steps)]
    every = {at: rows_of(first, *at)[0] for at in steps}
    for at in reversed(steps):  # each of them begins anew
        assert rows_of(other, *at)[0] == every[at]
    assert every[0, 0] != every[1, 0]
    assert rows_of(seeded, 0, 0)[0] != every[0, 0]
    # Of numbers alone: texts are sometimes forgotten, others in each epoch.
    learned, again = (
        sorted(row[:2] for step in range(first.steps) for row in every[epoch, step])
        for epoch in range(2)
    )
    assert learned == again
    for each in (first, other, seeded):
        each.close()


@pytest.mark.parametrize("looks", [1, 7, 23])
def test_a_training_that_was_stopped_goes_on_with_the_next_row(
    dataset: Dataset, tmp_path: Path, learn: Learn, looks: int
) -> None:
    assert learn(dataset, tmp_path / "whole") == 0
    assert learn(dataset, tmp_path / "parts", StopAfter(looks)) == 75
    assert learn(dataset, tmp_path / "parts") == 0
    assert history(tmp_path / "parts") == history(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "record.json").read_text())
    assert 0 <= record["timings"]["rows_share"] < 1


class Killed(BaseException):
    """As a signal that nobody can catch."""


class KillAfter(StopRequest):
    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def asked(self) -> bool:
        self._looks -= 1
        if self._looks < 0:
            raise Killed
        return False


def goes_on(
    train: Train, folder: Path, capsys: pytest.CaptureFixture[str], *, killed: int,
    steps: int, said: str,
) -> None:  # fmt: skip
    """One that was stopped, and one that was killed, come to what one does that ran through.

    Args:
        train: of an output folder, who stops it, and parameters; returns the exit status.
        folder: of the outputs.
        capsys: what is printed.
        killed: after so many steps.
        steps: between its checkpoints.
        said: of where it goes on.
    """
    assert train(folder / "whole") == 0
    assert train(folder / "stopped", StopAfter(7)) == 75
    assert train(folder / "stopped") == 0
    with pytest.raises(Killed):
        train(folder / "killed", KillAfter(killed), checkpoint_steps=steps)
    capsys.readouterr()
    assert train(folder / "killed", checkpoint_steps=5) == 0
    assert f"going on from {said}" in capsys.readouterr().out
    for each in ("stopped", "killed"):
        assert history(folder / each) == history(folder / "whole")
        assert weights(folder / each) == weights(folder / "whole")


def test_a_training_that_was_killed_goes_on_from_a_checkpoint_within_the_epoch(
    dataset: Dataset, tmp_path: Path, learn: Learn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learn(dataset, tmp_path / "whole") == 0
    with pytest.raises(Killed):
        learn(dataset, tmp_path / "parts", KillAfter(11), checkpoint_steps=4)
    capsys.readouterr()
    assert learn(dataset, tmp_path / "parts", checkpoint_steps=5) == 0
    assert "going on from epoch 0, step 8" in capsys.readouterr().out
    assert history(tmp_path / "parts") == history(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_it_learns_what_a_table_in_memory_teaches(
    dataset: Dataset, tmp_path: Path, learn: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falaj's own network, too, which `auto` is of a stream, and no other is learned in memory."""
    monkeypatch.delattr(folds, "learn_network")
    for name, asked in (("own", {}), ("ours", {"model": "auto", "code": None})):
        assert learn(dataset, tmp_path / name, epochs=12, learning_rate=0.02, **asked) == 0
        record = json.loads((tmp_path / name / "record.json").read_text())
        assert record["metrics"]["held_out"]["accuracy"] > 0.85
        assert record["dataset"]["rows"]["total"] == ROWS


def test_numbers_are_regressed(tmp_path: Path, small_shards: None, learn: Learn) -> None:
    every = [without(columns(each), "label") for each in range(SHARDS)]
    for each in every:
        each["price"] = 100 + 30 * each["second"].astype(float)
    found = made(write(tmp_path / "s", *every), tmp_path / "d", target="price")
    assert found.task == "regression"
    assert learn(found, tmp_path / "run", epochs=12, learning_rate=0.03, weight_decay=0.0) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["held_out"]["rmse"] < 0.5 * 30


def test_pictures_in_tars_are_streamed(tmp_path: Path, small_shards: None, learn: Learn) -> None:
    source = tmp_path / "source"
    source.mkdir()
    random = np.random.default_rng(0)
    for shard in range(2):
        files: list[tuple[str, bytes]] = []
        for each in range(150):
            is_light = bool(random.random() < 0.5)
            colour = int(random.integers(140, 255) if is_light else random.integers(0, 110))
            files += [(f"{each}.png", png(colour)), (f"{each}.cls", b"yn"[is_light:][:1])]
        tar(source / f"{shard}.tar", files)
    found = made(source, tmp_path / "d", target=None)
    assert (found.family, found.classes) == ("images", ["n", "y"])
    assert found.inputs["image"].shape[1:] == (1, 8, 8)
    assert Shards(found).read(0)[0]["image"].dtype == np.uint8
    assert learn(found, tmp_path / "run", epochs=15, learning_rate=0.02, batch_size=16) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["held_out"]["accuracy"] > 0.9


def test_a_picture_that_is_there_twice_is_in_one_part(tmp_path: Path, small_shards: None) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for shard in range(2):
        files: list[tuple[str, bytes]] = []
        for each in range(250):
            files += [(f"{each}.png", png(each)), (f"{each}.cls", b"yn"[each % 2 :][:1])]
        tar(source / f"{shard}.tar", files)
    found = made(source, tmp_path / "d", target=None)
    shards = Shards(found)
    learned = [shards.read(each)[0]["image"] for each in range(len(shards.rows))]
    resident = found.inputs["image"]
    parts = (*learned, resident[found.rows("train")], resident[found.rows("held_out")])
    seen = [np.unique(each[:, 0, 0, 0]).astype(int).tolist() for each in parts]
    held, judged = seen.pop(), seen.pop()
    every = {colour for each in seen for colour in each}
    assert len(held) > 30
    assert len(judged) > 10
    assert len(every) + len(judged) + len(held) == 250


def test_json_lines_by_the_command(
    tmp_path: Path, small_shards: None, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    each = {"a": 1.5, "b": "x", "label": True}
    other = {"a": 2, "b": "y", "label": False}
    for shard in range(2):
        lines(source / f"{shard}.jsonl", *(json.dumps(r) for r in [each, other] * 150))
    asked = ["dataset", "--source", str(source), "--target", "label", "--output",
             str(tmp_path / "d"), "--json"]  # fmt: skip
    assert command.main(asked) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["rows"]["total"], first["classes"]) == (600, ["0", "1"])
    assert command.main(asked) == 0
    assert json.loads(capsys.readouterr().out)["path"] == first["path"]


def test_what_is_made_ahead_is_bounded_and_its_error_comes_in_its_place() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for each in range(20):
            made.append(each)
            yield each
        raise WorkloadError("the 21st")

    ahead = Ahead(items(), 3)
    for each in range(20):
        assert ahead.next() == each
        assert len(made) <= each + 1 + 3 + 1
    for _ in range(2):
        with pytest.raises(WorkloadError, match="the 21st"):
            ahead.next()
    ahead.close()
    waiting = Ahead(iter(range(100)), 1)
    waiting.close()
    ended = Ahead(iter(()), 1)
    with pytest.raises(StopIteration):
        ended.next()
    ended.close()
    assert not any(each.name == "rows-ahead" for each in threading.enumerate())


class Memory(StopRequest):
    """Looks at the memory that the process has, at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.process = psutil.Process()
        self.before = self.process.memory_info().rss
        self.most = 0

    def asked(self) -> bool:
        self.most = max(self.most, self.process.memory_info().rss - self.before)
        return False


def test_memory_has_a_small_part_of_a_large_set(tmp_path: Path, learn: Learn) -> None:
    """Of 92 MiB, which several copies would be made of in memory."""
    rows, wide = 100_000, 60
    random = np.random.default_rng(0)
    some = random.normal(size=(rows, wide)).astype(np.float32)
    table: Any = pa.table({
        **{f"f{each}": some[:, each] for each in range(wide)},
        "label": np.where(some[:, 0] > 0, "yes", "no"),
    })  # fmt: skip
    source = write(tmp_path / "source")
    for shard in range(4):
        _parquet.write_table(
            table, source / f"{shard}.parquet", row_group_size=4_000, use_dictionary=False
        )
    small = write(tmp_path / "small")
    _parquet.write_table(table.slice(0, 8_000), small / "0.parquet", row_group_size=4_000)
    del table, some
    made(small, tmp_path / "first")  # what is loaded once isn't the set's
    memory = Memory()
    found = made(source, tmp_path / "d")
    memory.asked()
    size = 4 * wide * (found.stream or {})["rows"]
    assert size > 80 << 20
    # Besides, what was freed before may have stayed with the process, or may have not.
    assert memory.most < size
    learn(found, tmp_path / "warm", StopAfter(2), batch_size=4_096)
    memory = Memory()
    assert learn(found, tmp_path / "run", memory, batch_size=4_096, epochs=1) == 0
    assert memory.most < 48 << 20
