"""A stack on one machine predicts files with the model that it has trained and serves."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.client import Client, mint
from tests.stacks.conftest import Project

pytestmark = [
    pytest.mark.engine, pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600),
]  # fmt: skip


def outputs(project: Project) -> dict[str, Any]:
    shown = project.pulumi("stack", "output", "--json", "-s", project.stack)
    return json.loads(shown.stdout)["batches"]["customers"]


def test_files_are_predicted_once_and_as_the_server_does(project: Project) -> None:
    source = random.Random(5)
    rows = [
        {
            "city": source.choice(["Dubai", "أبوظبي", "Al Ain", ""]),
            "spend": source.choice(["", *(f"{n},5" for n in range(40))]),
            "left": "",
        }
        for _ in range(400)
    ]
    for row in rows:
        row["left"] = "yes" if row["city"] == "Dubai" or row["spend"][:1] == "3" else "no"
    table = project.home.parent / "customers.csv"
    for path, columns in ((table, ("city", "spend", "left")), (_new(table), ("city", "spend"))):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, delimiter=";", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    config: dict[str, Any] = {
        "dataset": str(table), "target": "left", "model": "churn", "training": {"epochs": 4},
    }  # fmt: skip
    batches = {"customers": {"inputs": [str(_new(table))], "format": "jsonl", "plain": True}}
    project.configure(**config, batches=batches)
    project.up()
    made = outputs(project)
    assert made["rows"] == 400
    lines = Path(made["path"]).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    service = json.loads((project.site / "service/churn/service.json").read_text())
    client = Client(service, mint(service))
    spends = [None if not r["spend"] else float(r["spend"].replace(",", ".")) for r in rows]
    answer = client.infer(
        ("city", "BYTES", [400, 1], [row["city"] for row in rows]),
        ("spend", "FP32", [400, 1], spends),
    )
    assert [row["label"] for row in found] == answer["label"]
    chances = [row[f"probability_{name}"] for row in found for name in ("no", "yes")]
    assert chances == pytest.approx(answer["probabilities"], abs=1e-6)
    before = Path(made["path"]).stat().st_ino
    project.up()
    assert Path(made["path"]).stat().st_ino == before
    with _new(table).open("a", encoding="utf-8") as file:
        file.write("Dubai;7\n")
    batches["customers"]["plain"] = False
    project.configure(**config, batches=batches)
    project.up()
    again = outputs(project)
    assert again["rows"] == 401
    assert again["path"].endswith("customers.jsonl.sealed")
    assert not Path(made["path"]).exists()
    # Keys that are made anew wrap predictions as well.
    keys = {"rotation": project.rotation + 1}
    project.configure(**config, batches=batches, keys=keys)
    project.up()
    opened = project.falaj("unseal", again["path"])
    assert len(opened.stdout.splitlines()) == 401
    project.down()
    assert not Path(again["path"]).exists()


def _new(table: Path) -> Path:
    return table.with_name("new customers.csv")
