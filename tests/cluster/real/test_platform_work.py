"""What else a team runs as pods: predictions of many rows, and a pipeline.

All of one stack, side by side: each pod has little of a processor.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falaj.workloads.batch.prediction import opened
from falaj.workloads.registry.keyring import KeyRing
from tests.cluster.real.platform import STACK, Platform, workloads
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import SIZE, TEAM, TRAINING, said_by, told, volume

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

JOBS = "real-jobs"
ROWS = 40 * 4_096
"""Forty chunks: each of two shares has several parts."""
SHARES = 2
NIGHTLY = "digits-nightly"


def _many_rows(folder: Path) -> None:
    """A table of pictures as large as the digits, as another program would leave it there."""
    pixels = np.random.default_rng(0).integers(0, 17, (64, ROWS)).astype(np.float32)
    folder.mkdir()
    table = pa.table({f"image_{i}": each for i, each in enumerate(pixels)})
    pq.write_table(table, folder / "rows.parquet")


def _batch(dataset: str, service: dict[str, Any]) -> dict[str, Any]:
    [version] = service["versions"]
    named = {
        key: version[key] for key in ("version", "packageDigest", "keysDigest") if key in version
    }
    return {
        **SIZE, **named, "cpus": 0.4, "data": "data", "inputs": [dataset, "many"],
        "results": "runs", "model": "digits", "keySecret": "acme/training-keys",
        "format": "jsonl", "shares": SHARES,
    }  # fmt: skip


def _nightly(platform: Platform, dataset: str) -> dict[str, Any]:
    [job] = platform.read(TEAM)["falaj:trainingJobs"].values()
    ranges = platform.read(STACK)["falaj:installation"]["controlPlaneCidrs"]
    return {
        **SIZE, "dataset": f"{dataset[:-4]}*", "data": "data", "checkpoints": "runs",
        "keySecret": "acme/training-keys", "controlPlaneCidrs": ranges,
        "schedule": "* * * * *", "onUp": False,
        "arguments": ["--epochs", "3", "--threads", "1"],
        "publish": {**job["publish"], "model": NIGHTLY, "leastAccuracy": 0.3},
    }  # fmt: skip


@pytest.fixture(scope="module")
def jobs(platform: Platform, dataset: str, served: dict[str, Any]) -> Generator[None]:
    """A stack with all of them."""
    data = volume(platform, "data")
    _many_rows(data / "many")
    config = workloads(
        platform,
        batchInferences={"scores": _batch(dataset, served)},
        pipelines={"nightly": _nightly(platform, dataset)},
    )
    platform.write(JOBS, config)
    platform.up(JOBS)
    yield
    platform.down(JOBS)


def _pods(platform: Platform, component: str) -> list[dict[str, Any]]:
    return [
        each for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get("falaj.io/component") == component
    ]  # fmt: skip


def test_shares_of_predictions_are_sealed_and_whole(
    platform: Platform, ring: Path, jobs: None
) -> None:
    results = volume(platform, "runs") / "scores"
    shares = [results / f"share-{index}.jsonl.sealed" for index in range(SHARES)]

    def done() -> bool:
        states = {each["status"].get("phase") for each in _pods(platform, "scores")}
        assert "Failed" not in states, said_by(platform, "scores")[-3000:]
        return all(each.is_file() for each in shares) and states == {"Succeeded"}

    wait_for(done, "all shares are done")
    assert not list(results.glob("*.partial"))
    rows = [
        json.loads(line)
        for each in shares
        for line in b"".join(opened(each, KeyRing.open(ring))).decode().splitlines()
    ]
    of_table = [each["row"] for each in rows if each["file"] == "rows.parquet"]
    assert of_table == [*range(1, ROWS + 1)]
    assert len(rows) > ROWS + 1_000, "and those of the sealed snapshot"


def test_a_pipeline_is_started_by_the_clock_and_publishes(platform: Platform, jobs: None) -> None:
    def published() -> list[dict[str, Any]]:
        listed = platform.falaj("models", "list", platform.registry, "--json", "--stack", STACK)
        return [each for each in told(listed)["models"] if each["model"] == NIGHTLY]

    sets = ("jobset.x-k8s.io/v1alpha2", "JobSet", "nightly-1", TRAINING)
    try:
        wait_for(lambda: platform.plane.objects.get(*sets), "the clock has started a run")
        wait_for(published, "the run has published")
    except TimeoutError as error:
        said = said_by(platform, "nightly-pipeline"), said_by(platform, "nightly")[-3000:]
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(TRAINING)}") from error
    run = platform.plane.objects.get(*sets)
    assert run
    assert run["metadata"]["annotations"]["falaj.io/reason"] == "schedule"
    cluster = ("--sandbox", "--cluster", str(platform.plane.kubeconfig))
    printed = platform.falaj("pipelines", "status", "nightly", "--stack", JOBS, *cluster)
    assert "nightly-1" in printed
    assert "schedule" in printed
