"""Feature tables of a stack: what is refused, what reaches its dataset, and ``falaj features``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.stacks.command.__main__ import main
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import LocalSettings, validate
from falaj.wire.values import Values
from tests.stacks.on_machine import inputs_of

VALUES: dict[str, Any] = {
    "falaj:platform": "local",
    "falaj:dataset": "cases.csv",
    "falaj:target": "churned",
    "falaj:features": {
        "time": "asked",
        "tables": {
            "payments": {
                "source": "payments.csv", "keys": ["customer"], "time": "paid", "withinDays": 30,
                "delayHours": 1.5, "columns": ["late"],
            },
            "cities": {"source": "cities.csv", "keys": ["customer"]},
        },
    },
}  # fmt: skip
PAYMENTS = VALUES["falaj:features"]["tables"]["payments"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a stack of a shop."""
    cases = [f"{n},2026-03-09,{n % 7},{'yn'[n % 2]}" for n in range(40)]
    payments = [f"{n},2026-03-02,{'yn'[n % 2]},{n}" for n in range(40)]
    cities = [f"{n},{'ab'[n % 2]}" for n in range(40)]
    files = {
        "cases.csv": ("customer,asked,visits,churned", cases),
        "payments.csv": ("customer,paid,late,amount", payments),
        "cities.csv": ("customer,city", cities),
        "Pulumi.yaml": ("name: shop\nruntime: python", []),
        "Pulumi.dev.yaml": (yaml.safe_dump({"config": VALUES}), []),
        "Pulumi.bare.yaml": ("config: {falaj:platform: local}", []),
    }  # fmt: skip
    for name, (head, lines) in files.items():
        (tmp_path / name).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISTAKES: list[tuple[tuple[str, ...], Any, str]] = [
    (("falaj:dataset",), "digits", "features: given, but the dataset is no .csv or .parquet file"),
    (("time",), "askd", "features.time: given 'askd', but cases.csv has .* did you mean asked?"),
    (("time",), None, "features.time: missing; the rows of payments have a time"),
    (("time",), "churned", "features.time: .* that is what is predicted"),
    (("tables",), {}, "features.tables: given"),
    (("tables", "payments", "source"), "paiments.csv", "no file .*paiments.csv"),
    (("tables", "payments", "source"), "payments.xlsx", "allowed: a .csv or .parquet file"),
    (("tables", "payments", "keys"), [], "payments.keys: "),
    (("tables", "payments", "keys"), ["costumer"], r"keys\[0\]: given 'costumer', but cases.csv"),
    (("tables", "payments", "keys"), ["visits"], r"keys\[0\]: given 'visits', but payments.csv"),
    (("tables", "payments", "keys"), ["churned"], r"keys\[0\]: .* is what is predicted"),
    (("tables", "payments", "time"), "payed", "time: given 'payed', but payments.csv has"),
    (("tables", "payments", "columns"), ["later"], r"columns\[0\]: given 'later'.*mean late"),
    (("tables", "payments", "columns"), ["late", "late"], r"columns\[1\]: given 'late' twice"),
    (("tables", "payments", "keys"), ["customer"] * 2, r"keys\[1\]: given 'customer' twice"),
    (("tables", "payments", "columns"), ["late", "customer"], r"columns\[1\]: .* found by it"),
    (("tables", "payments", "columns"), ["paid"], r"columns\[0\]: given 'paid', but rows"),
    (("tables", "payments", "source"), "circle.csv", "there is no file .*circle.csv"),
    (("tables", "payments", "source"), "a" * 300 + ".csv", "there is no file .*aaa.csv"),
    (("tables", "payments", "withinDays"), 0, "payments.withinDays: given 0"),
    (("tables", "cities", "withinDays"), 3, "cities.withinDays: given, but it is of rows that"),
    (("tables", "cities", "delayHours"), 3, "cities.delayHours: given, but it is of rows that"),
    (("tables", "cities", "hours"), 3, "cities.hours"),
    (("tables", "a.b"), PAYMENTS, "a.b"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), MISTAKES)
def test_what_can_not_be_joined_is_refused(
    folder: Path, path: tuple[str, ...], value: Any, message: str
) -> None:
    values: dict[str, Any] = copy.deepcopy(VALUES)
    if path[0] != "falaj:dataset":
        path = ("falaj:features", *path)
    else:
        del values["falaj:target"]
    at = values
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(SettingsError, match=message):
        validate(values, folder, stack="dev")


@pytest.mark.parametrize(
    ("path", "value"), [(("keys",), []), (("keys",), None), ((), None), ((), {})]
)
def test_nothing_is_said_of_what_nobody_gave(
    folder: Path, path: tuple[str, ...], value: Any
) -> None:
    """What stands in for a wrong value until the others are checked isn't checked itself."""
    values: dict[str, Any] = copy.deepcopy(VALUES)
    at = values
    for part in (whole := ("falaj:features", "tables", "cities", *path))[:-1]:
        at = at[part]
    at[whole[-1]] = value
    with pytest.raises(SettingsError) as refused:
        validate(values, folder, stack="dev")
    assert "cities" in str(refused.value)
    assert "given 'digits'" not in str(refused.value)


def asked(folder: Path) -> Values:
    """What the stack's dataset is asked to be."""
    settings = validate(VALUES, folder, stack="dev")
    assert isinstance(settings, LocalSettings)
    given = inputs_of(settings, folder, "Dataset")
    return {**given, "site": str(folder), "keyring": str(folder)}


def test_a_stack_s_feature_tables_reach_its_dataset(folder: Path) -> None:
    handler, given = DatasetHandler(), asked(folder)
    checked = handler.check(given, {})
    assert checked["featureTables"]["payments"]["source"] == str(folder / "payments.csv")
    seen = handler.preview({k: v for k, v in checked.items() if k != "keyring"}, None)
    assert (seen["rows"], seen["features"]) == (40, 3)
    (folder / "cities.csv").write_text("customer,city\n1,c\n")
    after = handler.check(given, {})
    (folder / "dataset.json").write_text("{}")
    changes = handler.diff({**checked, "path": str(folder)}, after)
    assert set(changes) == {"featuresSha256"}
    assert changes["featuresSha256"].replaces
    (folder / "cities.csv").unlink()
    with pytest.raises(InvalidInputsError) as caught:
        handler.check(given, {})
    assert "cities.csv can't be read" in caught.value.errors[0].reason


def test_rows_get_what_was_known_by_their_time(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "new.csv").write_text("customer,asked\n1,2026-03-02\n1,2026-03-04\n")
    assert main(["features", "new.csv", "--output", "joined.csv", "--stack", "dev"]) == 0
    assert "payments: 1 of 2 rows" in capfd.readouterr().out
    written = (folder / "joined.csv").read_text().splitlines()
    assert [line.split(",")[3] for line in written] == ['"payments.late"', "", '"n"']
    assert main(["features", "new.csv", "--output", "joined.csv", "--stack", "bare"]) == 2
    assert "whose file has no falaj:features" in capfd.readouterr().err
