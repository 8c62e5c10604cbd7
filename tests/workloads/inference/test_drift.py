"""Windows on real rows: what is found after how many, and that chance alone isn't."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from falaj.workloads.errors import IntegrityError, StorageFullError
from falaj.workloads.inference.drift import reference
from falaj.workloads.inference.drift import state as drift_state
from falaj.workloads.inference.drift.counting import Counting
from falaj.workloads.inference.drift.labels import Memory
from falaj.workloads.inference.drift.reference import Reference
from falaj.workloads.inference.drift.state import DriftState
from falaj.workloads.inference.drift.windows import Drift, metrics
from falaj.workloads.inference.models.model import load
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.settings import DriftSettings
from falaj.workloads.registry.keyring import KeyRing
from tests.workloads.inference import models, watched
from tests.workloads.inference.oip import LIMITS

Rows = dict[str, NDArray[Any]]


class Watch:
    """A model, a worker's counts and the master's verdict in one process."""

    def __init__(self, content: bytes, fields: dict[str, Any], **settings: Any) -> None:
        self.reference: Reference = reference.read(reference.part_of(fields))
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.model = load(
            content, name="m", version="1", manifest=fields, threads=1, limits=LIMITS
        )
        self.drift = Drift(
            "m", 1, self.reference, DriftSettings(**settings), memory=Memory(),
            event=lambda name, **fields: self.events.append((name, fields)),
        )  # fmt: skip
        self._counting = Counting(self.reference, self.drift.take, self.model.schema.output_names)

    def serve(self, rows: Rows, size: int = 250) -> None:
        """Answer rows in requests of ``size``."""
        count = len(next(iter(rows.values())))
        for start in range(0, count, size):
            inference = Inference()
            inference.feed = {name: each[start : start + size] for name, each in rows.items()}
            inference.rows = min(size, count - start)
            self._counting.add(inference, self.model.run(inference))
            self._counting.fold()

    def feature(self, name: str) -> dict[str, Any]:
        return next(each for each in self.drift.report()["features"] if each["name"] == name)


def digits(seed: int, count: int, angle: float = 0) -> Rows:
    _, _, images, _ = watched.digits()
    chosen = images[np.random.default_rng(seed).integers(0, len(images), count)]
    if angle:
        chosen = ndimage.rotate(chosen, angle, axes=(2, 3), reshape=False, order=1)
    return {"image": chosen.astype(np.float32)}


def test_thirty_windows_of_rows_as_ever_raise_no_alarm() -> None:
    watch = Watch(*watched.digits_model())
    # Drawn from all digits: the held-out ones alone differ a little, as a few hundred do.
    train, _, others, _ = watched.digits()
    every = np.concatenate([train, others])
    drawn = np.random.default_rng(1).integers(0, len(every), 30_000)
    watch.serve({"image": every[drawn]}, size=1_000)
    table = Watch(models.table(), watched.table_fields(models.table()))
    table.serve(watched.customers(30_000, seed=2), size=1_000)
    for each in (watch, table):
        found = each.drift.report()
        assert found["window"]["judged"] == 30
        assert (found["state"], each.events) == ("ok", [])
        assert all(row["over"] == 0 for row in (*found["features"], found["outputs"]))


@pytest.mark.parametrize(("angle", "rows"), [(5, 2_000), (15, 2_000), (45, 2_000)])
def test_digits_that_are_turned_step_by_step_are_found(angle: float, rows: int) -> None:
    watch = Watch(*watched.digits_model())
    watch.serve(digits(3, 3_000))
    assert watch.drift.state == "ok"
    served = 0
    while watch.drift.state != "drifted":
        watch.serve(digits(4 + served, 250, angle))
        served += 250
        assert served <= rows
    found = watch.drift.report()
    assert found["outputs"]["ks"] > 0.2
    assert watch.events[0][0] == "drift.found"
    assert watch.events[0][1]["features"]
    # And its end, once turned digits no longer come.
    watch.serve(digits(5, 2_000))
    assert [name for name, _ in watch.events] == ["drift.found", "drift.ended"]


def test_a_column_that_shifts_is_named_and_the_others_are_not() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    rows = watched.customers(2_000, seed=5)
    rows["age"] = rows["age"] + np.float32(5)  # half a standard deviation
    watch.serve(rows)
    assert watch.feature("age")["state"] == "drifted"
    assert watch.feature("age")["psi"] > watch.feature("age")["psi_limit"]
    assert watch.feature("city")["state"] == "ok"
    assert watch.events[0][1]["features"] == ["age"]


def test_values_that_go_missing_and_categories_that_are_new_are_found() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    rows = watched.customers(2_000, seed=6)
    rows["age"][::5] = np.nan
    rows["city"][::10] = "Al Ain"
    watch.serve(rows)
    age, city = watch.feature("age"), watch.feature("city")
    assert (age["state"], city["state"]) == ("drifted", "drifted")
    assert age["missing"] == pytest.approx(0.28, abs=0.03)
    assert age["missing_reference"] == pytest.approx(0.1, abs=0.03)
    assert city["unseen"] == pytest.approx(0.1, abs=0.01)


def test_a_column_that_is_all_missing_drifts_without_a_figure() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    rows = watched.customers(2_000, seed=7)
    rows["age"][:] = np.nan
    watch.serve(rows)
    age = watch.feature("age")
    assert (age["state"], age["psi"], age["missing"]) == ("drifted", None, 1.0)
    assert b"NaN" not in orjson.dumps(watch.drift.report())


def test_one_odd_window_is_no_drift() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    odd = watched.customers(1_000, seed=8)
    odd["age"] += np.float32(30)
    for rows in (
        watched.customers(1_000, seed=9),
        odd,
        *(watched.customers(1_000, seed=s) for s in (10, 11, 12)),
    ):
        watch.serve(rows)
        assert watch.drift.state == "ok"
    assert watch.events == []


def test_a_slow_services_window_ends_by_time_if_it_has_rows_enough() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()), window_seconds=60)
    watch.serve(watched.customers(199, seed=13))
    began = watch.drift._began
    watch.drift.tick(began + 61)
    assert watch.drift.report()["window"]["judged"] == 0
    watch.serve(watched.customers(1, seed=14))
    watch.drift.tick(began + 61)
    found = watch.drift.report()["window"]
    assert (found["judged"], found["filled"], found["rows"], found["seconds"]) == (1, 0, 1000, 60)


# -- over a restart ------------------------------------------------------------------------------


class Kept:
    """A table's drift, and the file in which a server keeps it."""

    def __init__(self, root: Path) -> None:
        self.keyring = KeyRing.create(root / "keyring")
        self.settings: Any = SimpleNamespace(
            model="m", drift=DriftSettings(), further=False,
            drift_file=root / "state.drift.sealed",
            keyring=self.keyring.path,
        )  # fmt: skip
        self.manifest = watched.table_fields(models.table())
        self.events: list[str] = []

    def state(self, version: int = 1) -> DriftState:
        return DriftState(
            self.settings, version, self.manifest, lambda name, **_: self.events.append(name)
        )

    def watch(self) -> Watch:
        return Watch(models.table(), self.manifest)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_a_restart_goes_on_with_windows_and_verdicts(kept: Kept) -> None:
    before, state = kept.watch(), kept.state()
    rows = watched.customers(2_300, seed=5)
    rows["age"] = rows["age"] + np.float32(5)
    before.serve(rows)
    asyncio.run(state.keep(before.drift))
    assert b"age" not in kept.settings.drift_file.read_bytes()
    after = kept.watch()
    kept.state().restore(after.drift)
    told, found = before.drift.report(), after.drift.report()
    assert (found["state"], found["window"]["filled"], found["window"]["judged"]) == (
        "drifted", 300, 2
    )  # fmt: skip
    # Streams begin anew.
    for report in (told, found):
        del report["latency"], report["labels"]
    assert found == told
    assert (after.events, kept.events) == ([], [])
    after.serve(watched.customers(2_700, seed=6))
    assert [name for name, _ in after.events] == ["drift.ended"]
    assert after.drift.report()["window"]["judged"] == 4


@pytest.mark.parametrize(
    "how", ["changed", "cut", "empty", "large", "a link", "no key", "version", "settings", "rows"]
)
def test_what_is_damaged_or_of_another_begins_anew_and_says_so(
    kept: Kept, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    before = kept.watch()
    before.serve(watched.customers(1_100, seed=5))
    asyncio.run(kept.state().keep(before.drift))
    path: Path = kept.settings.drift_file
    content = path.read_bytes()
    version = 2 if how == "version" else 1
    if how == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how in {"cut", "empty"}:
        path.write_bytes(content[: len(content) // 2] if how == "cut" else b"")
    elif how == "large":
        os.truncate(path, drift_state.MOST_BYTES + 1)
    elif how == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    elif how == "no key":
        kept.keyring.path.rename(kept.keyring.path.with_name("away"))
    elif how == "settings":
        kept.settings.drift = DriftSettings(window_rows=500)
    elif how == "rows":
        kept.manifest = watched.table_fields(models.table(), rows=1_000)
    after = kept.watch()
    kept.state(version).restore(after.drift)
    assert after.drift.report()["window"]["filled"] == 0
    assert after.drift.report()["state"] == "collecting"
    assert kept.events == ["drift.anew"]
    assert str(path) in (said := capsys.readouterr().err) or "key ring" in said
    assert "drift is counted anew" in said


def test_where_nothing_was_kept_nothing_is_said(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.state().restore(kept.watch().drift)
    assert (kept.events, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize("key", ["counts", "verdicts", "outputs", "filled", "began", "told"])
@pytest.mark.parametrize("value", [None, {}, [], "x", [1, 2], {"age": 1}])
def test_of_what_was_never_kept_nothing_is_taken_over(kept: Kept, key: str, value: Any) -> None:
    watch = kept.watch()
    found = watch.drift.kept()
    if key == "told":
        del found[key]
    else:
        found[key] = value
    with pytest.raises(IntegrityError):
        watch.drift.restore(found)
    assert watch.drift.report()["window"]["filled"] == 0


def test_a_full_disk_is_told_once_and_counting_goes_on(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, state = kept.watch(), kept.state()
    writes: list[int] = []

    def full(*_: Any) -> None:
        writes.append(1)
        raise StorageFullError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(drift_state, "seal", full)
        for _ in range(2):
            asyncio.run(state.keep(watch.drift))
    assert capsys.readouterr().err.count("no space left") == 1
    asyncio.run(state.keep(watch.drift))
    written = kept.settings.drift_file.stat().st_mtime_ns
    # What hasn't changed isn't written again.
    asyncio.run(state.keep(watch.drift))
    assert (kept.settings.drift_file.stat().st_mtime_ns, len(writes)) == (written, 2)


def test_counts_of_another_layout_are_left() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    watch.drift.take({"rows": 5, "counts": [1, 2], "busy": (0, 0.0)})
    assert watch.drift.report()["window"]["filled"] == 0


def test_answers_that_take_longer_are_told_and_are_no_drift_of_the_model() -> None:
    watch = Watch(models.table(), watched.table_fields(models.table()))
    random = np.random.default_rng(15)

    def pass_by(seconds: float, count: int) -> None:
        for wobble in random.lognormal(0, 0.1, count):
            watch.drift.take({"rows": 0, "counts": [], "busy": (10, 10 * seconds * wobble)})

    assert watch.drift.report()["latency"] == {"state": "collecting", "mean_seconds": None}
    pass_by(0.001, 200)
    assert watch.drift.report()["latency"]["state"] == "ok"
    pass_by(0.003, 100)
    found = watch.drift.report()
    assert found["latency"]["state"] == "drifted"
    assert found["latency"]["mean_seconds"] == pytest.approx(0.003, rel=0.2)
    assert found["state"] == "collecting"
    pass_by(0.001, 100)
    assert watch.drift.report()["latency"]["state"] == "ok"


def test_a_window_ends_in_its_time_though_the_clock_was_set_back() -> None:
    fields = watched.table_fields(models.table())
    layout = reference.read(reference.part_of(fields))
    settings = DriftSettings(window_seconds=60)
    drift = Drift("m", 1, layout, settings, memory=Memory(), event=lambda *_, **__: None)
    counts = {"rows": 300, "counts": [0] * layout.size, "busy": (0, 0)}
    drift.take(counts, now=1e6)
    drift.tick(1e6 + 61)
    assert drift.report()["window"]["judged"] == 1


def test_the_series_of_metrics_are_bounded_and_stand_once() -> None:
    fields = watched.table_fields(models.table())
    column = fields["statistics"]["features"]["age"]
    names = ["outputs", *(f"column {number}" for number in range(300))]
    fields["inputs"] = [{"name": name, "datatype": "FP32", "shape": [-1, 1]} for name in names]
    fields["statistics"]["features"] = dict.fromkeys(names, column)
    layout = reference.read(reference.part_of(fields))
    drift = Drift("m", 1, layout, DriftSettings(), memory=Memory(), event=lambda *_, **__: None)
    random = np.random.default_rng(16)
    drift.take(
        {"rows": 1_000, "counts": random.integers(0, 9, layout.size).tolist(), "busy": (0, 0)}
    )
    families = {each.name: each for each in metrics([drift])}
    shown = [each.labels["feature"] for each in families["falaj_drift_psi"].samples]
    assert len(shown) == len(set(shown)) == 100
