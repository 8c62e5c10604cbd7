"""What else a team runs as pods: predictions of many rows, Horovod's launcher, and a pipeline.

All of one stack, side by side: each pod has little of a processor. A pod of the predictions and
one of Horovod's are killed, at moments of which none is left to chance.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falaj.components.kubernetes.bill_of_materials import images
from falaj.workloads.batch.prediction import opened
from falaj.workloads.registry.keyring import KeyRing
from tests.cluster.real.platform import STACK, Platform, workloads
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import SIZE, TEAM, TRAINING, said_by, told, volume
from tests.stacks.conftest import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

JOBS = "real-jobs"
ROWS = 40 * 4_096
"""Forty chunks: each of two shares has several parts."""
SHARES = 2
PROGRAM = "gloo_program.py"
TOGETHER = "together"
PROCESSES = 2
"""Of each of two pods."""
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


def _together(platform: Platform) -> dict[str, Any]:
    digest = platform.image("falaj-training-cpu").partition("@")[2]
    return {
        **SIZE, "cpus": 0.3, "framework": "horovod", "nodes": 2, "processesPerNode": PROCESSES,
        "image": f"{images()['falaj-training-cpu'].mirror}@{digest}",
        "data": "data", "checkpoints": "runs", "graceSeconds": 10,
        "program": [
            "python3", f"/data/{PROGRAM}", f"/runs/{TOGETHER}", "--pause", "0.2",
            "--until", f"/data/{TOGETHER}.killed",
        ],
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
    shutil.copy(ROOT / "tests" / "workloads" / "horovod" / PROGRAM, data)
    config = workloads(
        platform,
        batchInferences={"scores": _batch(dataset, served)},
        trainingJobs={TOGETHER: _together(platform)},
        pipelines={"nightly": _nightly(platform, dataset)},
    )
    platform.write(JOBS, config)
    platform.up(JOBS)
    yield
    platform.down(JOBS)
    # A run that the clock began meanwhile went with its pipeline, and keeps no quota.
    left = platform.plane.objects.list("jobset.x-k8s.io/v1alpha2", "JobSet", TRAINING)
    assert [
        each for each in left if "falaj.io/pipeline" in each["metadata"].get("labels", {})
    ] == []


def _pods(platform: Platform, component: str) -> list[dict[str, Any]]:
    return [
        each for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get("falaj.io/component") == component
    ]  # fmt: skip


def _index(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def _of_share(share: int) -> psutil.Process | None:
    """The process that predicts a share: what runs in pods is seen from outside."""
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = each.cmdline()
            if "falaj.workloads.batch" in words and f"{share}/{SHARES}" in words:
                return each
    return None


def _stopped_behind_a_part(results: Path, share: int) -> psutil.Process:
    """Have a share go on for a moment at a time until a part of it is done, and leave it stopped.

    So it can't come to its end while nobody looks.
    """
    folder = results / f"share-{share}.jsonl.partial"
    process = wait_for(lambda: _of_share(share), f"share {share} is predicted")
    until = time.monotonic() + 240
    while not list(folder.glob("[0-9]*.part*")):
        assert time.monotonic() < until, "no part was done"
        process.resume()
        time.sleep(0.1)
        process.suspend()
    return process


def test_a_killed_share_of_predictions_goes_on_behind_what_it_has_done(
    platform: Platform, ring: Path, jobs: None
) -> None:
    results = volume(platform, "runs") / "scores"
    stopped = _stopped_behind_a_part(results, 0)
    shares = [results / f"share-{index}.jsonl.sealed" for index in range(SHARES)]
    assert not shares[0].exists(), "the share is still under way"
    [killed] = [each for each in _pods(platform, "scores") if _index(each) == "0"]
    platform.realm.api.delete_namespaced_pod(
        killed["metadata"]["name"], TRAINING, grace_period_seconds=0
    )
    wait_for(lambda: not stopped.is_running(), "the kubelet has killed it")

    def done() -> bool:
        states = {each["status"].get("phase") for each in _pods(platform, "scores")}
        return all(each.is_file() for each in shares) and states == {"Succeeded"}

    try:
        wait_for(done, "all shares are done")
    except TimeoutError as error:
        said = said_by(platform, "scores")[-3000:]
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(TRAINING)}") from error
    [again] = [each for each in _pods(platform, "scores") if _index(each) == "0"]
    assert again["metadata"]["uid"] != killed["metadata"]["uid"]
    last = platform.realm.log(again["metadata"]["name"], TRAINING).splitlines()[-1]
    assert 0 < json.loads(last)["resumed_at"] < json.loads(last)["rows"]
    assert not list(results.glob("*.partial"))
    rows = [
        json.loads(line)
        for each in shares
        for line in b"".join(opened(each, KeyRing.open(ring))).decode().splitlines()
    ]
    of_table = [each["row"] for each in rows if each["file"] == "rows.parquet"]
    assert of_table == [*range(1, ROWS + 1)]
    assert len(rows) > ROWS + 1_000, "and those of the sealed snapshot"


def test_horovod_s_launcher_starts_its_processes_again_where_a_pod_was_killed(
    platform: Platform, jobs: None
) -> None:
    """The launcher is the real one; the program speaks what Horovod's processes speak to it, and
    doesn't end before it is told that the pod was killed."""
    sets = ("jobset.x-k8s.io/v1alpha2", "JobSet", TOGETHER, TRAINING)

    def attempts() -> list[int]:
        key = "jobset.sigs.k8s.io/restart-attempt"
        return [int(each["metadata"]["labels"][key]) for each in _pods(platform, TOGETHER)]

    wait_for(lambda: "step 3" in said_by(platform, TOGETHER), "all processes have met")
    assert attempts() == [0, 0]
    [second] = [
        each["metadata"]["name"] for each in _pods(platform, TOGETHER)
        if each["metadata"]["name"].startswith(f"{TOGETHER}-node-0-1-")
    ]  # fmt: skip
    runs = volume(platform, "runs")
    platform.realm.api.delete_namespaced_pod(second, TRAINING, grace_period_seconds=0)
    try:
        wait_for(lambda: attempts() == [1, 1], "the gang is started anew")
        assert not list(runs.glob(f"{TOGETHER}.*"))
        (volume(platform, "data") / f"{TOGETHER}.killed").touch()
        wait_for(
            lambda: len(list(runs.glob(f"{TOGETHER}.*"))) == 2 * PROCESSES,
            "all processes are done",
        )
    except TimeoutError as error:
        said = said_by(platform, TOGETHER)[-3000:]
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(TRAINING)}") from error
    found = [json.loads(each.read_text()) for each in sorted(runs.glob(f"{TOGETHER}.*"))]
    assert [(each["rank"], each["size"]) for each in found] == [
        (rank, 2 * PROCESSES) for rank in range(2 * PROCESSES)
    ]
    assert [each["weight"] for each in found] == pytest.approx([3.0] * 4, abs=1e-3)
    done = platform.plane.objects.get(*sets)
    assert done
    assert done["status"]["restarts"] == 1


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
