"""Which change of an input replaces, which updates, and what on the machine counts as one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falaj.components.local import machine
from falaj.components.local.provider.handler import Site
from falaj.components.local.provider.resources import HANDLERS
from falaj.components.local.provider.resources.model_package import ModelPackageHandler
from falaj.components.local.provider.service import end_leftovers, holds_port
from falaj.wire.values import UNKNOWN

REPLACES: dict[str, set[str]] = {
    "Workspace": {"path"},
    "KeyRing": {"site"},
    "CertificateAuthority": {"site"},
    "Certificate": {"site", "fileName"},
    "Dataset": {"site", "source", "sourceSha256", "target", "task", "seed", "holdout",
                "context", "vocabulary", "vocabularyOfSha256", "featureTables", "featureTime",
                "featuresSha256"},
    "TrainingRun": {
        "site", "datasetDigest", "epochs", "batchSize", "learningRate", "weightDecay", "patience",
        "gradientClip", "width", "layers", "heads", "keyValueHeads", "seed", "processes",
        "precision", "threads", "model", "codeSha256", "options", "compression",
        "teacherSha256", "distilTemperature", "distilWeight", "prune", "quantisationAware",
        "startSha256", "loraRank", "loraAlpha", "loraMatrices",
    },
    "ModelPackage": {"site", "model"},
    "InferenceService": {"site", "name"},
    "Daemon": {"site", "name"},
    "BatchInference": {
        "site", "name", "inputsSha256", "model", "version", "packageDigest", "format", "keep",
        "encoding", "decimal", "skipBadRows", "plain",
    },
}  # fmt: skip


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.type_name)
def test_what_replaces(handler: Any) -> None:
    replacing = {key for key, entry in handler.table.items() if entry.replaces}
    assert replacing == REPLACES[handler.type_name]


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.type_name)
def test_one_changed_input_is_one_change(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(handler), "drift", lambda _self, _state: {})
    before = dict.fromkeys(handler.table, "before")
    for key, entry in handler.table.items():
        changes = handler.diff(before, {**before, key: "after"})
        assert {k: c.replaces for k, c in changes.items()} == {key: entry.replaces}
        assert set(handler.diff(before, {**before, key: UNKNOWN})) == {key}
        assert set(handler.diff({k: v for k, v in before.items() if k != key}, before)) == {key}
    assert handler.diff(before, before) == {}


PACKAGE: dict[str, Any] = {"site": "/s", "model": "m", "run": "/r", "dataset": "/d"}


@pytest.fixture
def published(tmp_path: Path) -> dict[str, Any]:
    """State of a package whose files are there."""
    (tmp_path / "manifest.json").write_text("{}")
    handler = ModelPackageHandler()
    outputs = {key: f"made {key}" for key in handler.outputs}
    return {**handler.check(PACKAGE, {}), **outputs, "path": str(tmp_path), "version": 3}


@pytest.mark.parametrize(
    ("change", "version"),
    [
        ({}, 3),
        ({"keepVersions": 9}, 3),
        ({"retain": True}, 3),
        ({"accept": "any"}, 3),
        ({"run": "/other"}, UNKNOWN),
        ({"maxAccuracyDrop": 2}, UNKNOWN),
        ({"quantise": "never"}, UNKNOWN),
        ({"engine": "openvino"}, UNKNOWN),
        ({"dataClass": "restricted"}, UNKNOWN),
    ],
)
def test_which_changes_make_another_version(
    published: dict[str, Any], change: dict[str, Any], version: Any
) -> None:
    handler = ModelPackageHandler()
    inputs = handler.check({**PACKAGE, **change}, {})
    assert handler.preview(inputs, published)["version"] == version


def test_a_lost_version_is_published_again(published: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").unlink()
    handler = ModelPackageHandler()
    assert set(handler.diff(published, handler.check(PACKAGE, {}))) == {"version"}
    assert handler.read("m", published) is None


@pytest.fixture
def leftover(site: Path) -> Iterator[tuple[Site, subprocess.Popen[bytes]]]:
    """A process that looks like a service's server which an interrupted deployment has left."""
    folder = site / "service" / "tiny"
    folder.mkdir(parents=True)
    code = "import time; time.sleep(600)"
    config = str(folder / "service.json")
    words = ["falaj.workloads.inference", "serve", "--config", config]
    process = subprocess.Popen([sys.executable, "-c", code, *words])
    (folder / "service.json").write_text(json.dumps({"port": 4711}))
    (folder / "state.json").write_text(json.dumps({"port": 4711, "pid": process.pid}))
    yield Site(site), process
    process.kill()
    process.wait()


def test_our_own_port_is_known(leftover: tuple[Site, Any]) -> None:
    site, process = leftover
    assert holds_port(site, 4711)
    assert not holds_port(site, 4712)
    process.kill()
    process.wait()
    assert not holds_port(site, 4711)


def test_leftovers_are_ended(leftover: tuple[Site, Any]) -> None:
    site, process = leftover
    end_leftovers(site)
    assert not machine.is_process_running(process.pid, ("falaj.workloads.inference",))


def test_another_sites_leftovers_are_left_alone(leftover: tuple[Site, Any]) -> None:
    site, process = leftover
    end_leftovers(Site(site.path.with_name(site.path.name[:-1])))
    assert machine.is_process_running(process.pid, ("falaj.workloads.inference",))
