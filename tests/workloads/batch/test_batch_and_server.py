"""A batch answers what the server answers, row by row."""

from __future__ import annotations

import contextlib
import csv
import json
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.batch.conftest import Batch
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site, call

pytestmark = [pytest.mark.slow]


@contextlib.contextmanager
def serving(site: Site) -> Generator[Server]:
    server = Server(site)
    try:
        yield server.serving(1)
    finally:
        server.kill()


def answers(server: Server, inputs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    model = server.site.document["model"]
    status, body = call(
        server.connect("caller"), "POST", f"/v2/models/{model}/infer",
        token=server.site.token("predict"), body={"inputs": inputs},
    )  # fmt: skip
    assert status == 200, body
    return {each["name"]: each["data"] for each in body["outputs"]}


def run(batch: Batch, site: Site, source: Path, output: Path) -> list[dict[str, Any]]:
    done = batch(
        source, "--output", output, "--plain", "--registry", site.root / "registry",
        "--keyring", site.root / "keyring", model=site.document["model"],
    )  # fmt: skip
    assert done.status == 0, done.err
    return [json.loads(line) for line in output.open(encoding="utf-8")]


def test_a_table_with_texts_and_missing_values(
    published: Site, batch: Batch, tmp_path: Path
) -> None:
    chance = random.Random(5)
    cities = ["دبي", "Al Ain", "", "N/A", "nan", "=1", 'a "b", c', "x\ny"]
    rows = [
        (chance.choice(["", "7", "-3.25", "1e3", "٤٢", "NA"]), chance.choice(cities))
        for _ in range(200)
    ]
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("age", "city"), *rows])
    found = run(batch, published, tmp_path / "in.csv", tmp_path / "out.jsonl")
    numbers = {"": None, "7": 7, "-3.25": -3.25, "1e3": 1000, "٤٢": 42, "NA": None}
    missing = {"", "N/A", "nan"}
    age = {"name": "age", "datatype": "FP32", "shape": [200, 1],
           "data": [numbers[a] for a, _ in rows]}  # fmt: skip
    city = {"name": "city", "datatype": "BYTES", "shape": [200, 1],
            "data": [None if c in missing else c for _, c in rows]}  # fmt: skip
    with serving(published) as server:
        said = answers(server, [age, city])
    assert [each["score"] for each in found] == said["score"]
    assert [each["label"] for each in found] == said["label"]


def test_digits(batch: Batch, tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    site = Site(tmp_path / "site")
    site.publish(models.classifier())
    bunch: Any = load_digits()
    images = bunch.images[:300].astype(np.float32)
    with (tmp_path / "in.jsonl").open("w") as file:
        for image in images:
            file.write(json.dumps({"image": [image.tolist()]}) + "\n")
    found = run(batch, site, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    tensor = {"name": "image", "datatype": "FP32", "shape": [300, 1, 8, 8],
              "data": images.ravel().tolist()}  # fmt: skip
    with serving(site) as server:
        said = answers(server, [tensor])
    names = [f"probabilities_{index}" for index in range(64)]
    mine = np.array([[each[name] for name in names] for each in found])
    assert np.allclose(mine, np.array(said["probabilities"]).reshape(300, 64), rtol=1e-6)
    assert [each["label"] for each in found] == said["label"]
