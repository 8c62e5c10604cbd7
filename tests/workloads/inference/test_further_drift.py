"""Drift and labels of further models: each is compared with its own training data, and no other's
requests, answers or labels come into it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falaj.workloads.inference import settings
from falaj.workloads.inference.drift.state import forget_others
from tests.workloads.inference import models, watched
from tests.workloads.inference.serving import PATIENCE, Server, Site, call, row
from tests.workloads.inference.test_further_models import Other
from tests.workloads.inference.watched import Caller

ROWS = 250
"""Of a request, and of a window."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Other:
    other = Other(tmp_path_factory.mktemp("of other") / "other")
    content, fields = watched.digits_model()
    for name in ("digits", "more.digits", "unwatched"):
        made = other.store.publish(name, {"model.onnx": content}, fields, other.keyring)
        other.store.promote(name, made.version)
    return other


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, other: Other) -> Site:
    site = Site(tmp_path_factory.mktemp("further drift") / "site")
    site.write(
        drift={"window_rows": ROWS}, limits={"drain_seconds": 1},
        models={
            "digits": other.further(),
            "more.digits": other.further(),
            "unwatched": other.further(drift=False),
        },
    )  # fmt: skip
    site.publish(models.mlp())
    return site


@pytest.fixture(scope="module")
def served(site: Site) -> Iterator[Server]:
    server = Server(site)
    try:
        yield server.serving(1)
        assert "Traceback" not in server.errors.read_text()
    finally:
        server.kill()


def audit(server: Server, event: str) -> list[dict[str, Any]]:
    lines = (server.site.logs / "audit.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == event]


def test_what_drifts_is_the_model_that_was_asked(served: Server) -> None:
    digits, more, first = (Caller(served, each) for each in ("digits", "more.digits", "mlp"))
    _, _, images, _ = watched.digits()
    turned = np.rot90(images, axes=(2, 3))[:ROWS]
    assert digits.drift()["state"] == "collecting"
    found = digits.until(lambda each: each["state"] == "drifted", turned)
    assert (found["model"], found["version"]) == ("digits", "1")
    assert (more.drift()["state"], more.drift()["window"]["filled"]) == ("collecting", 0)
    assert first("predict", "POST", "/v2/models/mlp/infer", row())[0] == 200
    assert first.drift()["state"] == "no reference"
    served.wait(lambda _: audit(served, "drift.found"), "drift in the audit log")
    assert {each["model"] for each in audit(served, "drift.found")} == {"digits"}


def test_labels_are_joined_with_the_model_that_answered(served: Server) -> None:
    digits, more = Caller(served, "digits"), Caller(served, "more.digits")
    _, _, images, truth = watched.digits()
    answer = digits.predict(images[:1], "of both")
    assert answer["id"] == "of both"
    label = ("of both", str(truth[0]))
    status, found = more.label(label)
    assert (status, found["unknown"]) == (200, 1)
    status, found = digits.label(label)
    assert (status, found["matched"]) == (200, 1)
    assert more.drift()["labels"]["received"] == 1
    path = "/v2/models/digits/feedback"
    status, refused = digits("feedback", "POST", path, {"labels": [{"id": "x"}]})
    assert status == 400, refused


def test_figures_are_by_model_and_each_family_stands_once(served: Server) -> None:
    token = served.site.token("observe")
    text = call(served.connect(), "GET", "/metrics", token=token)[1].decode()
    types = Counter(line for line in text.splitlines() if line.startswith("# TYPE"))
    assert max(types.values()) == 1
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    watched_ = {line for line in series if line.startswith("falaj_drift_state{")}
    assert watched_ == {
        f'falaj_drift_state{{model="{name}",version="1"}}'
        for name in ("mlp", "digits", "more.digits")
    }


def test_who_may_see_one_model_sees_no_other_ones_drift(served: Server) -> None:
    connection = served.connect()

    def status(method: str, model: str, what: str, scope: str) -> int:
        token = served.site.token(scope)
        body = {"labels": []} if method == "POST" else None
        return call(connection, method, f"/v2/models/{model}/{what}", token=token, body=body)[0]

    assert status("GET", "digits", "drift", "observe:digits") == 200
    assert status("GET", "digits", "drift", "observe:mlp") == 403
    assert status("GET", "mlp", "drift", "observe:digits") == 403
    assert status("GET", "digits", "drift", "predict:digits") == 403
    assert status("POST", "digits", "feedback", "feedback:mlp") == 403
    assert status("GET", "ghost", "drift", "observe:digits") == 403
    assert status("GET", "unwatched", "drift", "observe") == 404
    assert status("POST", "unwatched", "feedback", "feedback") == 404
    paths = {
        name: call(
            connection, "GET", f"/v2/models/{name}/openapi.json",
            token=served.site.token(f"predict:{name}"),
        )[1]["paths"]
        for name in ("digits", "unwatched")
    }  # fmt: skip
    assert "/v2/models/digits/drift" in paths["digits"]
    assert "/v2/models/digits/feedback" in paths["digits"]
    assert not [each for each in paths["unwatched"] if "drift" in each or "feedback" in each]


def kept(site: Site) -> set[str]:
    folder = settings.read(site.config).drift_folder
    return {each.name for each in folder.iterdir()} if folder.exists() else set()


def test_a_restart_goes_on_and_what_is_served_no_more_leaves_nothing(
    served: Server, site: Site, other: Other
) -> None:
    assert served.stop() == 0
    assert kept(site) == {"digits.sealed", "more.digits.sealed"}
    folder = settings.read(site.config).drift_folder
    assert folder.stat().st_mode & 0o077 == 0
    assert b"image: mean" not in (folder / "digits.sealed").read_bytes()
    (folder / "digits.sealed").rename(folder / "more.digits.sealed")
    site.write(models={"digits": other.further(), "more.digits": other.further()})
    again = Server(site)
    try:
        again.serving(1)
        said = again.errors.read_text()
        # What was counted of one model is none of another's.
        assert said.count("drift is counted anew") == 1
        (anew,) = audit(again, "drift.anew")
        assert anew["model"] == "more.digits"
        assert "of another version" in anew["reason"]
        site.write(models={"digits": other.further(drift=False)})
        again.wait(lambda state: list(state["models"]) == ["digits"], "one further model")
        end = time.monotonic() + PATIENCE
        while kept(site) and time.monotonic() < end:
            time.sleep(0.05)
        assert kept(site) == set()
        assert again.stop() == 0
    finally:
        again.kill()


def test_what_is_left_of_models_that_are_gone_is_removed_at_a_start(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.write(models={"a": {"registry": "/r", "keyring": "/k"}})
    wanted = settings.read(site.config)
    wanted.drift_folder.mkdir(parents=True)
    for name in ("a.sealed", "b.sealed", "notes"):
        (wanted.drift_folder / name).write_text("")
    forget_others(wanted)
    assert kept(site) == {"a.sealed", "notes"}
    # A link isn't followed to what others keep.
    elsewhere = tmp_path / "elsewhere"
    wanted.drift_folder.rename(elsewhere)
    (elsewhere / "b.sealed").write_text("")
    wanted.drift_folder.symlink_to(elsewhere)
    forget_others(wanted)
    assert (elsewhere / "b.sealed").exists()
