"""A person's own table becomes a served model that takes raw rows."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer

from tests.stacks.client import Client, mint
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]


def serve(project: Project, **config: Any) -> Client:
    project.configure(**config)
    printed = project.up()
    assert "Call it with curl" in printed
    assert "In a browser:  " in printed
    path = next(project.site.glob(f"service/{config['model']}/service.json"))
    service = json.loads(path.read_text())
    return Client(service, mint(service))


def held_out_accuracy(project: Project) -> float:
    outputs = json.loads(project.pulumi("stack", "output", "--json", "-s", project.stack).stdout)
    evaluation = outputs["evaluation"]
    return float(evaluation[evaluation["accepted"]]["metric"])


@pytest.mark.thorough
def test_breast_cancer_from_csv(project: Project) -> None:
    bunch = load_breast_cancer()
    path = project.home.parent / "breast cancer.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*bunch.feature_names, "diagnosis"])
        for row, label in zip(bunch.data, bunch.target, strict=True):
            writer.writerow([*row, bunch.target_names[label]])
    client = serve(project, dataset=str(path), target="diagnosis", model="breast-cancer")
    assert held_out_accuracy(project) >= 0.94
    right = 0
    for index in range(40):
        columns = [
            (name, "FP32", [1, 1], [float(value)])
            for name, value in zip(bunch.feature_names, bunch.data[index], strict=True)
        ]
        right += client.infer(*columns)["label"] == [bunch.target_names[bunch.target[index]]]
    assert right >= 36
    assert "accuracy through the endpoint" in project.falaj("demo").stdout


@pytest.mark.thorough
def test_mixed_columns_with_missing_values_from_parquet(project: Project) -> None:
    source = random.Random(5)
    rows: dict[str, list[Any]] = {"city": [], "age": [], "plan": [], "member": [], "left": []}
    for _ in range(900):
        city = source.choice(["Dubai", "أبوظبي", "Sharjah", None])
        age = source.choice([None, *range(18, 80)])
        plan = source.choice(["basic", "gold, family", 'with "quotes"'])
        leaves = (plan == "basic") ^ (city == "Dubai")
        for name, value in (
            ("city", city), ("age", age), ("plan", plan), ("member", source.random() < 0.5),
            ("left", "yes" if leaves else "no"),
        ):  # fmt: skip
            rows[name].append(value)
    path = project.home.parent / "customers.parquet"
    pq.write_table(pa.table(rows), path)
    client = serve(project, dataset=str(path), target="left", model="churn")
    assert held_out_accuracy(project) >= 0.97
    status, metadata = client.request("GET", "/v2/models/churn")
    assert status == 200
    kinds = {entry["name"]: entry["datatype"] for entry in metadata["inputs"]}
    assert set(kinds) == {"city", "age", "plan", "member"}

    def ask(city: str, plan: str, age: float | None) -> str:
        values = {"city": city, "plan": plan, "age": age, "member": "true"}
        answer = client.infer(*((name, kinds[name], [1, 1], [values[name]]) for name in kinds))
        return str(answer["label"][0])

    assert ask("Sharjah", "basic", 30.0) == "yes"
    assert ask("Dubai", "basic", None) == "no"
    assert ask("", 'with "quotes"', None) == "no"
    assert ask("a city never seen", "basic", 30.0) == "yes"


@pytest.mark.thorough
def test_regression_answers_in_real_units(project: Project) -> None:
    generator = np.random.default_rng(3)
    size = generator.uniform(40, 400, 600)
    district = generator.choice(["marina", "deira"], 600)
    price = 12_000 * size + np.where(district == "marina", 900_000, 0)
    path = project.home.parent / "homes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "district", "price"])
        writer.writerows(zip(size, district, price, strict=True))
    client = serve(project, dataset=str(path), target="price", model="homes")
    answer = client.infer(
        ("size", "FP32", [1, 1], [100.0]), ("district", "BYTES", [1, 1], ["marina"])
    )
    assert answer["prediction"][0] == pytest.approx(2_100_000, rel=0.1)
    assert "RMSE through the endpoint" in project.falaj("demo").stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "falaj:dataset: .* holds no text: it needs a header line and rows"),
        (b"a,b\n", "no rows|only a header|header"),
        (b"a,b\n" + b"1,x\n" * 50, "constant|one class|same value"),
        ("a,b\n1,caf\u00e9\n2,x\n".encode("latin-1"), "UTF-8"),
        (b"a,c\n" + b"1,2\n" * 50, "falaj:target: given 'b', but .* has the columns a, c"),
    ],
    ids=["empty", "header-only", "constant-target", "encoding", "target-absent"],
)
def test_bad_tables_are_refused_in_words(project: Project, content: bytes, message: str) -> None:
    path = Path(project.home.parent / "bad.csv")
    path.write_bytes(content)
    project.configure(dataset=str(path), target="b", model="bad")
    done = project.falaj("up")
    assert done.returncode != 0
    assert any(re.search(message, line) for line in done.stdout.splitlines()), done.stdout
