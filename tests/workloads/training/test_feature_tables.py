"""Feature tables: what was known by a row's time, and nothing later."""

from __future__ import annotations

import datetime
import decimal
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import command
from falaj.workloads.training.dataset import Source, build
from falaj.workloads.training.dates import form_of
from falaj.workloads.training.feature_tables import (
    Features,
    FeatureTable,
    _texts_of,
    join,
    latest,
    parse,
    write_joined,
)
from falaj.workloads.training.moments import _moment, moments
from falaj.workloads.training.tables import read_table

PAYMENTS = {"source": "payments.csv", "keys": ["customer"], "time": "paid_at"}


def features(time: str | None = "asked_at", **tables: dict[str, Any]) -> str:
    return json.dumps({"time": time, "tables": tables})


# What is refused before a file is read.

REFUSED = [
    ("{", "it isn't JSON"),
    ('{"time": "a", "time": "b", "tables": {}}', '"time" stands twice in one object'),
    ("[]", "allowed is an object"),
    ('{"tables": {}}', "tables: needs at least one"),
    ('{"tables": null}', "tables: needs at least one"),
    ('{"table": {}}', "'table' isn't known; allowed: time, tables"),
    (features(time=""), "time: given ''"),
    (features(p=PAYMENTS | {"key": "a"}), "tables.p: 'key' isn't known; allowed: source, keys"),
    (features(p={"keys": ["a"]}), "source is missing"),
    (features(p={"source": "a.csv"}), "keys is missing"),
    (features(p=PAYMENTS | {"keys": []}), r"keys: given \[\]; allowed is a list"),
    (features(p=PAYMENTS | {"keys": "customer"}), "keys: given 'customer'; allowed is a list"),
    (features(p=PAYMENTS | {"keys": ["a", "a"]}), "names of columns, each once"),
    (features(p=PAYMENTS | {"columns": []}), "columns: given"),
    (features(p=PAYMENTS | {"withinDays": 0}), "withinDays: given 0"),
    (features(p=PAYMENTS | {"withinDays": "90"}), "withinDays: given '90'"),
    (features(p=PAYMENTS | {"delayHours": -1}), "delayHours: given -1"),
    (features(p=PAYMENTS | {"delayHours": True}), "delayHours: given True"),
    (features(None, p=PAYMENTS), "features.time is missing"),
    (features(p={"source": "a.csv", "keys": ["a"], "withinDays": 3}), "are of rows with a time"),
    (features(**{"a.b": PAYMENTS}), "a table's name is 1 to 64 letters"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_no_description_is_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse(text)


# Which row is found.

EVENTS = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 6)), max_size=12)


@given(EVENTS, EVENTS)
def test_the_latest_row_is_found_that_was_known(
    rows: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    def split(of: list[tuple[int, int]]) -> tuple[Any, Any]:
        array = np.array(of, np.int64).reshape(-1, 2)
        return array[:, 0], array[:, 1]

    expected: list[int] = []
    for key, moment in asked:
        known = [
            (time, place)
            for place, (own, time) in enumerate(rows)
            if own == key >= 0 and time <= moment
        ]
        expected.append(max(known)[1] if known else -1)
    assert latest(*split(rows), *split(asked)).tolist() == expected


def test_arrow_s_own_join_finds_the_same() -> None:
    random = np.random.default_rng(3)
    times = random.permutation(4_000)[:1_500]
    right = pa.table(
        {"key": random.integers(0, 40, 1_500), "time": times, "row": np.arange(1_500)}
    )
    asked = np.sort(random.integers(0, 4_000, 900))
    left = pa.table({"key": random.integers(0, 50, 900), "time": asked, "asked": np.arange(900)})
    found: Any = left.join_asof(right.sort_by("time"), on="time", by="key", tolerance=-4_000)
    theirs = found.sort_by("asked").column("row").fill_null(-1).to_numpy()
    ours = latest(*(right.column(name).to_numpy() for name in ("key", "time")),
                  *(left.column(name).to_numpy() for name in ("key", "time")))  # fmt: skip
    assert (ours >= 0).any()
    assert (ours < 0).any()
    assert ours.tolist() == theirs.tolist()


def joined(
    tmp_path: Path, cases: str, events: str, time: str | None = "at", **more: Any
) -> list[Any]:
    """Values that one table gives to cases, both as CSV of a key ``who`` and a time ``at``."""
    (tmp_path / "events.csv").write_text(events)
    (tmp_path / "cases.csv").write_text(cases)
    table = FeatureTable("e", tmp_path / "events.csv", ("who",), time, **more)
    (found,) = join(
        read_table(tmp_path / "cases.csv"), Features(time, (table,)), tmp_path / "cases.csv"
    )
    return found.columns["e.v"].to_pylist()


EVENTS_OF_A_DAY = "who,at,v\n1,2026-03-01,10\n1,2026-03-03,30\n2,2026-03-02,7\n"


def test_what_is_dated_by_a_day_is_known_when_it_has_passed(tmp_path: Path) -> None:
    cases = "who,at\n" + "".join(f"1,2026-03-0{day}\n" for day in (1, 2, 3, 4))
    cases += "2,2026-03-02\n3,2026-04-01\n"
    assert joined(tmp_path, cases, EVENTS_OF_A_DAY) == [None, "10", "10", "30", None, None]


def test_times_count_to_the_microsecond_and_what_is_known_then_counts(tmp_path: Path) -> None:
    events = "who,at,v\n1,2026-03-01T10:00:00.000001,a\n1,2026-03-01T10:00:00.0000019,b\n"
    cases = "who,at\n" + "".join(
        f"1,2026-03-01T10:00:00.00000{end}\n" for end in ("0", "1", "19", "2")
    )
    assert joined(tmp_path, cases, events) == [None, "a", "a", "b"]


def test_what_is_known_late_or_was_long_ago(tmp_path: Path) -> None:
    cases = (
        "who,at\n1,2026-03-02T00:00\n1,2026-03-02T06:00\n1,2026-03-03T00:00\n1,2026-03-03T00:01\n"
    )
    found = joined(tmp_path, cases, EVENTS_OF_A_DAY, delay_hours=6)
    assert found == [None, "10", "10", "10"]
    assert joined(tmp_path, cases, EVENTS_OF_A_DAY, within_days=1) == ["10", "10", "10", None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-03-01T10:00+04:00", "2026-03-01T06:00Z"),
        ("2026-03-01T10:00+0400", "2026-03-01T01:00-05:00"),
        ("01.03.2026 10:00", "01.03.2026 10:00:00"),
        ("3/31/2026 10:05 pm", "3/31/2026 22:05"),
        ("٣١/٣/٢٠٢٦", "31/3/2026"),
    ],
)
def test_the_same_moment_in_other_words(one: str, other: str) -> None:
    (first, second) = (
        moments(pa.chunked_array([[each]]), "it", ends=False).micros for each in (one, other)
    )
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_columns_of_times_are_what_their_texts_are(unit: Any, ends: bool) -> None:
    moment = datetime.datetime(2026, 3, 1, 10, 30, 1)
    column = pa.chunked_array([pa.array([moment, None], pa.timestamp(unit))])
    found = moments(column, "it", ends=ends)
    text = moments(pa.chunked_array([[moment.isoformat(), ""]]), "it", ends=ends)
    assert (found.micros[0], found.there.tolist()) == (text.micros[0], [True, False])
    assert not found.zoned
    assert moments(column.cast(pa.timestamp(unit, "Asia/Dubai")), "it", ends=ends).zoned
    day = pa.chunked_array([pa.array([moment.date()])])
    dated = moments(day, "it", ends=ends).micros[0]
    assert dated == moments(pa.chunked_array([["2026-03-01"]]), "it", ends=ends).micros[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["2026-03-01", "soon"], "isn't one of times that are all written alike: 'soon'"),
        (["2026-03-01", "01.03.2026"], "written alike"),
        (["2026-02-30"], "has '2026-02-30', which is no time: day"),
        (["2026-03-01T25:00"], "which is no time: hour"),
        (["3/31/2026 13:05 pm"], r"must be in 1\.\.12"),
        (["2026-03-01T10:00:00:00"], "isn't written as 09:30"),
        (["2026-03-01T10:00Z", "2026-03-01T10:00"], "that say their zone and others that don't"),
        (["2026-03-01T10:00+24:00"], r"there is no zone \+24:00"),
        (["2026-03-01T10:00+04:75"], r"there is no zone \+04:75"),
        (["2026-03-01T10:00:60Z"], "which is no time: second"),
        (["2026-03-01T10:00", "2026-03-01 10:00"], "written alike"),
        (["2200-03-01T10:00"], "written alike"),
        (["", "null"], "has no time in any row"),
        (pa.array([None], pa.timestamp("us")), "has no time in any row"),
        (pa.array([None], pa.date32()), "has no time in any row"),
        (pa.array([0, 2**62], pa.timestamp("ms")), "in row 2 that is in none of the years 1 to"),
        (pa.array([-(2**62)], pa.timestamp("s")), "in row 1 that is in none of the years 1 to"),
        (pa.array([2**31 - 1], pa.date32()), "are its numbers of another unit"),
    ],
)
def test_what_is_no_time_is_refused(values: list[str], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        moments(pa.chunked_array([values]), "the column 'at' of a.csv", ends=False)


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime.datetime(1900, 1, 2), datetime.datetime(2199, 12, 30)),
            st.integers(-14 * 4, 14 * 4),
        ),
        min_size=1, max_size=4,
    ),
    st.sampled_from(" T"), st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_times_of_programs_are_read_as_those_of_people(
    times: list[tuple[datetime.datetime, int]], mark: str, spec: str, zoned: bool, ends: bool
) -> None:
    texts: list[str | None] = [None]
    for moment, quarters in times:
        zone = datetime.timezone(datetime.timedelta(minutes=15 * quarters)) if zoned else None
        texts.append(moment.replace(tzinfo=zone).isoformat(mark, spec))
    # As people write it: with a comma, which Arrow doesn't know.
    column = pa.chunked_array([[text and text.replace(".", ",") for text in texts]])
    form = form_of([text for text in texts if text])
    assert form is not None
    slow = [_moment(text, form, ends=ends) if text else (0, zoned) for text in texts]
    for each in (pa.chunked_array([texts]), column):
        found = moments(each, "it", ends=ends)
        assert list(zip(found.micros.tolist(), [found.zoned] * len(texts), strict=True)) == slow
        assert found.there.tolist() == [text is not None for text in texts]
        assert found.sure


def test_it_is_said_that_nothing_tells_day_from_month(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("who,at,v\n1,03/04/2022,10\n")
    (tmp_path / "cases.csv").write_text("who,at\n1,05/06/2026\n")
    table = PAYMENTS | {"source": str(tmp_path / "events.csv"), "keys": ["who"], "time": "at"}
    given = parse(features("at", e=table))
    (_, note) = write_joined(tmp_path / "cases.csv", given, tmp_path / "out.csv")
    assert note == (
        "e: 1 of 1 rows got one of its 1, 1,523 days old (median); times of cases.csv and "
        "events.csv are read with the day first, as nothing in them tells day from month"
    )


@pytest.mark.parametrize(
    ("asked", "age"),
    [
        ("01:00", "1 hours"),
        ("00:00:30", "30 seconds"),
        ("00:00", "0 seconds"),
        ("14:30", "14.5 h"),
    ],
)
def test_ages_are_said_in_a_unit_that_fits(tmp_path: Path, asked: str, age: str) -> None:
    (tmp_path / "events.csv").write_text("who,at,v\n1,2026-03-31T00:00,10\n")
    (tmp_path / "cases.csv").write_text(f"who,at\n1,2026-03-31T{asked}\n")
    table = PAYMENTS | {"source": str(tmp_path / "events.csv"), "keys": ["who"], "time": "at"}
    given = parse(features("at", e=table))
    (_, note) = write_joined(tmp_path / "cases.csv", given, tmp_path / "out.csv")
    assert f" {age}" in note


def test_numbers_are_no_times() -> None:
    with pytest.raises(WorkloadError, match="its values are of type int64; write times"):
        moments(pa.chunked_array([[1_700_000_000]]), "the column 'at' of a.csv", ends=False)


def test_times_with_and_without_a_zone_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"tables.e: the times of .*cases.csv say their zone"):
        joined(tmp_path, "who,at\n1,2026-03-02T00:00Z\n", EVENTS_OF_A_DAY)


@pytest.mark.parametrize("keys", [[1, 2, None], [1.0, 2.0, float("nan")], ["1", " 2 ", "NaN"]])
def test_a_number_and_its_digits_are_one_key(tmp_path: Path, keys: list[Any]) -> None:
    events = tmp_path / "events.parquet"
    pq.write_table(pa.table({"who": keys, "v": ["a", "b", "nobody's"]}), events)
    rows = pa.table({"who": ["2", "1", "", "3"]})
    table = FeatureTable("e", events, ("who",))
    (found,) = join(rows, Features(None, (table,)), Path("cases.csv"))
    assert found.columns["e.v"].to_pylist() == ["b", "a", None, None]
    assert (found.found, found.rows, found.age_days) == (2, 3, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["17.0", "x"], ["17", "x"]),
        (["-3.00", "x"], [-3, 4]),
        (["\u0661\u0667", "x"], [17, 4]),
        (["\u06f0\u06f0\u06f7", "x"], ["007", "x"]),
        (["Caf\u00e9", "x"], ["Cafe\u0301", "x"]),
        ([True, None], ["True", "x"]),
        ([decimal.Decimal("17.00"), None], [17, 4]),
        ([decimal.Decimal("2.50"), None], [2.5, 4.25]),
        ([1e17, None], ["100000000000000000", "x"]),
        ([-0.0, None], [0, 4]),
    ],
)
def test_keys_that_are_written_otherwise_are_the_same(
    tmp_path: Path, one: list[Any], other: list[Any]
) -> None:
    for rows, events in ((one, other), (other, one)):
        pq.write_table(pa.table({"who": events, "v": ["a", "b"]}), tmp_path / "e.parquet")
        table = FeatureTable("e", tmp_path / "e.parquet", ("who",))
        (found,) = join(pa.table({"who": rows}), Features(None, (table,)), Path("cases.csv"))
        assert found.columns["e.v"].to_pylist()[0] == "a"


@given(st.text(max_size=6), st.text(max_size=6))
def test_texts_are_the_same_key_only_where_people_would_say_so(one: str, other: str) -> None:
    found = [_texts_of(pa.chunked_array([[each]]))[0].as_py() for each in (one, other)]
    known = [_texts_of(pa.chunked_array([[each]]))[0].as_py() for each in found if each]
    assert known == [each for each in found if each]
    plain = [unicodedata.normalize("NFC", each).strip() for each in (one, other)]
    if plain[0] != plain[1] and "".join(plain).isalpha() and None not in found:
        assert found[0] != found[1] or plain[0].lower() == plain[1].lower()


@pytest.mark.parametrize("keys", [["1.10", "1.1"], ["007", "7"], ["0x1", "1"], ["17.5", "17"]])
def test_codes_of_products_stay_apart(tmp_path: Path, keys: list[str]) -> None:
    pq.write_table(pa.table({"who": keys, "v": ["a", "b"]}), tmp_path / "e.parquet")
    table = FeatureTable("e", tmp_path / "e.parquet", ("who",))
    (found,) = join(pa.table({"who": keys}), Features(None, (table,)), Path("cases.csv"))
    assert found.columns["e.v"].to_pylist() == ["a", "b"]


def test_a_column_of_keys_without_a_value_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no row of .*events.csv has a key: 'who' has no val"):
        joined(tmp_path, "who\n1\n", "who,v\n,a\n,b\n", None)


def test_keys_of_two_columns_are_apart_where_their_texts_run_together(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b,v\n1,12,x\n11,2,y\n1,,z\n")
    rows = pa.table({"a": ["11", "1", "1"], "b": ["2", "12", ""]})
    table = FeatureTable("e", tmp_path / "e.csv", ("a", "b"))
    (found,) = join(rows, Features(None, (table,)), Path("cases.csv"))
    assert found.columns["e.v"].to_pylist() == ["y", "x", None]


@pytest.mark.parametrize(
    ("cases", "events", "time", "message"),
    [
        ("who,at\n1,2026-01-01\n", EVENTS_OF_A_DAY, "at", "known by then: look at time"),
        ("who,at\nC-1,2026-04-01\n", EVENTS_OF_A_DAY, "at",
         "there is who '1' in the one and who 'C-1' in the other"),
        ("whom,at\n1,2026-04-01\n", EVENTS_OF_A_DAY, "at", "cases.csv has no column 'who'"),
        ("who,at\n1,2026-04-01\n", "who,v\n1,2\n", "at", "events.csv has no column 'at'"),
        ("who,at\n1,2026-04-01\n", "who,at\n1,2026-03-01\n", "at", "no column beside its keys"),
        ("who\n1\n", "who,v\n1,a\n2,b\n1,c\n", None, "several rows of who '1', and nothing says"),
    ],
)  # fmt: skip
def test_what_can_not_be_joined_is_refused(
    tmp_path: Path, cases: str, events: str, time: str | None, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        joined(tmp_path, cases, events, time)


# Datasets of them.


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A shop whose customers leave after a late payment: cases, payments and cities."""
    random = np.random.default_rng(0)
    payments, cases = ["customer,paid_at,amount,late"], ["customer,asked_at,visits,churned"]
    for customer in range(60):
        late = [str(random.choice(["yes", "no"])) for _ in range(3)]
        payments += [f"{customer},{day}.03.2026 12:00,\"1.{customer:03d},50\",{each}"
                     for day, each in zip((1, 11, 21), late, strict=True)]  # fmt: skip
        cases += [f"{customer},{day}.03.2026 09:00,{random.integers(9)},{each}"
                  for day, each in zip((2, 12, 22), late, strict=True)]  # fmt: skip
    (tmp_path / "payments.csv").write_text("\n".join(payments) + "\n")
    (tmp_path / "cases.csv").write_text("\n".join(cases) + "\n")
    return tmp_path


def source(shop: Path, **more: Any) -> Source:
    table = PAYMENTS | {"source": str(shop / "payments.csv")} | more
    text = features(payments=table)
    return Source(str(shop / "cases.csv"), "churned", features=parse(text))


def test_a_dataset_has_what_was_known(shop: Path) -> None:
    found = build(source(shop))
    assert set(found.inputs) == {"visits", "payments.amount", "payments.late"}
    late = dict(zip(*np.unique(found.inputs["payments.late"], return_counts=True), strict=True))
    assert sum(late.values()) == 180
    classes = np.array(found.description["classes"], dtype=object)[found.labels]
    assert (classes == found.inputs["payments.late"]).all()
    # As the table's own columns say: "1.059,50" has a decimal comma there.
    assert found.inputs["payments.amount"].max() == pytest.approx(1059.5)
    excluded = {each["name"]: each["reason"] for each in found.description["excluded"]}
    assert excluded == {
        "customer": "rows of feature tables are found by it",
        "asked_at": "it says when a row was so",
    }
    (table,) = found.description["source"]["tables"]
    assert (table["name"], table["rows"], table["found"]) == ("payments", 180, 180)
    assert any(note.startswith("payments: 180 of 180 rows") for note in found.description["notes"])


def test_another_feature_table_is_another_dataset(shop: Path) -> None:
    before = build(source(shop)).digest
    assert build(source(shop)).digest == before
    path = shop / "payments.csv"
    path.write_text(path.read_text().replace("yes", "no", 1))
    assert build(source(shop)).digest != before


def test_nothing_of_what_comes_later_is_learned(shop: Path) -> None:
    path = shop / "payments.csv"
    before = build(source(shop)).digest
    later = "".join(f"{customer},23.03.2026 12:00,9,yes\n" for customer in range(60))
    path.write_text(path.read_text() + later)
    after = build(source(shop))
    assert after.description["content_digest"] == build(source(shop)).description["content_digest"]
    path.write_text(path.read_text().removesuffix(later))
    assert build(source(shop)).digest == before
    assert after.inputs["payments.amount"].min() > 999


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ("visits", "the target column 'visits' says which row|no column 'visits'"),
        ("customer", "the target column 'customer' says which row of a feature table is meant"),
        ("asked_at", "the target column 'asked_at' says which row"),
    ],
)
def test_what_rows_are_found_by_is_not_predicted(shop: Path, of: str, message: str) -> None:
    given = source(shop, **({"keys": ["visits"]} if of == "visits" else {}))
    with pytest.raises(WorkloadError, match=message):
        build(Source(given.location, of, features=given.features))


def test_a_column_that_is_there_already_is_refused(shop: Path) -> None:
    path = shop / "cases.csv"
    path.write_text(path.read_text().replace("visits", "payments.late", 1))
    with pytest.raises(WorkloadError, match=r"a column 'payments.late', as the feature table"):
        build(source(shop))


@pytest.mark.parametrize("location", ["digits", "folder", "text.txt"])
def test_only_tables_have_feature_tables(shop: Path, location: str) -> None:
    (shop / "folder").mkdir()
    (shop / "text.txt").write_text("a text\n")
    place = location if location == "digits" else str(shop / location)
    with pytest.raises(WorkloadError, match=r"to one .csv or .parquet file, and .* none"):
        build(Source(place, features=source(shop).features))


# By the command.


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_are_written_as_a_model_takes_them(
    shop: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    table = PAYMENTS | {"source": str(shop / "payments.csv")}
    output = shop / f"joined.{kind}"
    given = ["features", "--source", str(shop / "cases.csv"), "--output", str(output)]
    assert command.main([*given, "--features", features(payments=table)]) == 0
    assert "wrote" in capsys.readouterr().out
    written = build(Source(str(output), "churned"))
    whole = build(source(shop))
    for name in ("payments.amount", "payments.late", "visits"):
        assert sorted(written.inputs[name].tolist()) == sorted(whole.inputs[name].tolist())


def test_what_can_not_be_written_leaves_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = source(shop).features
    assert found is not None
    with pytest.raises(WorkloadError, match=r"allowed: a .csv or .parquet file"):
        write_joined(shop / "cases.csv", found, shop / "joined.xlsx")
    given = ["features", "--source", str(shop / "cases.csv"), "--output", str(shop / "no/x.csv")]
    table = PAYMENTS | {"source": str(shop / "payments.csv")}
    assert command.main([*given, "--features", features(payments=table)]) == 2
    assert "error:" in capsys.readouterr().err
    assert not (shop / "no").exists()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            "9999,02.04.2026 09:00,3",
            "0 of 1 rows got one of its 180: no row of .* has a key of .*new",
        ),
        ("1,02.01.2026 09:00,3", "0 of 1 rows got one of its 180: 1 rows of .* known by then"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_of_new_rows_nothing_may_be_known(shop: Path, row: str, why: str, kind: str) -> None:
    """A model that serves meets customers of whom there is nothing yet."""
    found = source(shop).features
    assert found is not None
    (shop / "new.csv").write_text(f"customer,asked_at,visits\n{row}\n")
    output = shop / f"joined.{kind}"
    (_, note) = write_joined(shop / "new.csv", found, output)
    assert re.search(why, note)
    written = read_table(output)
    assert written.column_names[-2:] == ["payments.amount", "payments.late"]
    assert {each.as_py() or None for each in written.column("payments.amount")} == {None}


@pytest.mark.parametrize("output", ["cases.csv", "payments.csv", "link.csv", "down/../cases.csv"])
def test_what_is_read_is_not_written_over(shop: Path, output: str) -> None:
    found = source(shop).features
    assert found is not None
    (shop / "link.csv").symlink_to("payments.csv")
    (shop / "down").mkdir()
    before = {each.name: each.read_bytes() for each in shop.glob("*.csv")}
    with pytest.raises(WorkloadError, match=r"which is read here .* and would be lost"):
        write_joined(shop / "cases.csv", found, shop / output)
    assert {each.name: each.read_bytes() for each in shop.glob("*.csv")} == before


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no/x.csv", "there is no folder .*no: make it"),
        ("cases.csv/x.csv", "there is no folder"),
        ("down.csv", "down.csv; allowed: a .csv or .parquet file"),
    ],
)
def test_a_place_that_is_none_is_told_before_files_are_read(
    shop: Path, output: str, message: str
) -> None:
    found = source(shop).features
    assert found is not None
    (shop / "payments.csv").write_bytes(b"")
    (shop / "cases.csv").write_bytes(b"")
    (shop / "down.csv").mkdir()
    with pytest.raises(WorkloadError, match=message):
        write_joined(shop / "cases.csv", found, shop / output)


@pytest.mark.parametrize(
    "values",
    [
        [[1], [2]],
        [{"a": 1}, {"a": 2}],
        [b"\xff", b"a"],
        pa.array([1, 2], pa.timestamp("us", "Mars/Olympus")),
    ],
)
@pytest.mark.parametrize("side", ["cases", "events"])
def test_values_that_a_csv_can_not_have_are_refused(
    tmp_path: Path, values: Any, side: str
) -> None:
    odd, plain = pa.table({"who": [1, 2], "v": values}), pa.table({"who": [1, 2], "w": ["a", "b"]})
    cases, events = (odd, plain) if side == "cases" else (plain, odd)
    pq.write_table(cases, tmp_path / "cases.parquet")
    pq.write_table(events, tmp_path / "events.parquet")
    given = parse(features(None, e={"source": str(tmp_path / "events.parquet"), "keys": ["who"]}))
    with pytest.raises(WorkloadError, match=r"column '(e\.)?v'"):
        write_joined(tmp_path / "cases.parquet", given, tmp_path / "out.csv")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cases.parquet", "events.parquet"]
