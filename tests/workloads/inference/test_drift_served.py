"""Drift and labels of a running server: what it counts, answers, refuses and survives."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from falaj.workloads.inference import settings
from falaj.workloads.inference.process.handles import Generation
from falaj.workloads.inference.process.watched import WatchedModels
from falaj.workloads.inference.rpc.messages import CLASSES
from tests.workloads.inference import models, watched
from tests.workloads.inference.grpc_calls import Client
from tests.workloads.inference.serving import PATIENCE, Server, Site, call
from tests.workloads.inference.watched import Caller

DRIFT = "/v2/models/mlp/drift"
FEEDBACK = "/v2/models/mlp/feedback"
INFER = "/v2/models/mlp/infer"
_numbers = itertools.count()


def silent(*_: Any, **__: Any) -> None:
    """Writes no line of an audit log."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A linear model of digits with what its package says of its rows."""
    site = Site(tmp_path_factory.mktemp("drift") / "site")
    site.write(drift={"window_rows": 200})
    content, fields = watched.digits_model()
    site.publish(content, fields=fields)
    server = Server(site)
    try:
        yield server.serving(1)
        assert "Traceback" not in server.errors.read_text()
    finally:
        server.kill()


@pytest.fixture
def caller(served: Server) -> Iterator[Caller]:
    caller = Caller(served)
    yield caller
    caller.close()


def new_id() -> str:
    return f"request {next(_numbers)}"


def test_the_report_has_its_form_and_no_rows_yet(caller: Caller) -> None:
    found = caller.drift()
    assert set(found) == {
        "model", "version", "state", "since", "window", "features", "outputs", "latency",
        "labels",
    }  # fmt: skip
    row = {
        "name", "kind", "state", "psi", "psi_limit", "ks", "ks_limit", "missing",
        "missing_reference", "unseen", "over",
    }  # fmt: skip
    assert all(set(each) == row for each in (*found["features"], found["outputs"]))
    assert found["model"] == "mlp"
    assert found["version"] == "1"
    assert found["window"].keys() == {"rows", "seconds", "filled", "judged"}
    assert found["features"][0]["name"] == "image: mean"
    assert found["labels"]["state"] == "collecting"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_rows_as_ever_are_ok_and_turned_ones_drift(caller: Caller, served: Server) -> None:
    _, _, images, _ = watched.digits()
    found = caller.until(lambda each: each["window"]["judged"] >= 3, images[:250])
    assert found["state"] == "ok"
    assert all(each["over"] == 0 for each in found["features"])
    turned = np.rot90(images, axes=(2, 3))[:250]
    found = caller.until(lambda each: each["state"] == "drifted", turned)
    assert found["since"] is not None
    assert found["outputs"]["state"] == "drifted"
    assert any(each["state"] == "drifted" for each in found["features"])
    status, text = caller("observe", "GET", "/metrics")
    assert status == 200
    assert b'falaj_drift_state{model="mlp",version="1"} 1.0' in text
    assert b'falaj_drift_psi{feature="image: mean",model="mlp",version="1"}' in text
    caller.until(lambda each: each["state"] == "ok", images[:250])
    lines = (served.site.logs / "audit.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    names = [each["event"] for each in events]
    assert names.index("drift.found") < names.index("drift.ended")


def test_single_rows_of_plain_json_are_counted(caller: Caller) -> None:
    _, _, images, _ = watched.digits()
    before = caller.drift()["window"]
    for image in images[:20]:
        caller.predict(image[None])
    end = time.monotonic() + PATIENCE
    while (now := caller.drift()["window"]) == before and time.monotonic() < end:
        time.sleep(0.05)
    assert (now["judged"], now["filled"]) > (before["judged"], before["filled"])


def test_labels_are_joined_once_and_only_with_answers_that_were_given(caller: Caller) -> None:
    _, _, images, labels = watched.digits()
    first, batch = new_id(), new_id()
    caller.predict(images[:1], first)
    caller.predict(images[:3], batch)
    before = caller.drift()["labels"]
    status, found = caller.label(
        (first, str(labels[0])), (batch, [int(each) for each in labels[:3]]), ("nobody's", "3"),
        (first, "1"),
    )  # fmt: skip
    assert (status, found) == (200, {
        "received": 4, "matched": 2, "unknown": 1, "repeated": 1, "invalid": 0,
        "other_version": 0,
    })  # fmt: skip
    after = caller.drift()["labels"]
    assert after["matched"] - before["matched"] == 2
    assert 0 < after["coverage"] <= 1
    assert after["accuracy"] is not None
    assert after["log_loss"] is not None
    assert after["median_delay_seconds"] >= 0


def test_a_header_names_a_request_whose_body_has_no_id(caller: Caller, served: Server) -> None:
    _, _, images, _ = watched.digits()
    header, body = new_id(), new_id()
    raw = {"Inference-Header-Content-Length": "0"}
    for name, content, headers in (
        (header, images[:1].tobytes(), raw), (new_id(), watched.request(images[:1], body), {}),
    ):  # fmt: skip
        status, _ = call(
            served.connect(), "POST", INFER, token=served.site.token("predict"), body=content,
            headers={"X-Request-Id": name, **headers},
        )  # fmt: skip
        assert status == 200
    # The body's own id goes first.
    assert caller.label((header, 1), (body, 1))[1]["matched"] == 2


def test_labels_that_fit_no_answer_are_counted_and_change_nothing(caller: Caller) -> None:
    _, _, images, _ = watched.digits()
    names = [new_id() for _ in range(3)]
    for name in names:
        caller.predict(images[:2], name)
    status, found = caller.label(
        (names[0], ["1"]), (names[1], ["1", "eleven"]), (names[2], [None, 2**70])
    )
    assert status == 200
    assert (found["matched"], found["invalid"]) == (0, 3)
    # The right labels are still taken.
    assert caller.label((names[0], ["1", None]))[1]["matched"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'"x"', "an object with a list"),
        ({}, "an object with a list"),
        ({"labels": {}}, "an object with a list"),
        ({"labels": []}, "an object with a list"),
        ({"labels": [1]}, "must be an object"),
        ({"labels": [{"id": 3, "label": "1"}]}, "id must be a text"),
        ({"labels": [{"id": "", "label": "1"}]}, "id must be a text"),
        ({"labels": [{"id": "x" * 1025, "label": "1"}]}, "id must be a text"),
        ({"labels": [{"id": "x"}]}, "label is missing"),
        ({"labels": [{"id": "x", "label": {"a": 1}}]}, "a class or a number"),
        ({"labels": [{"id": "x", "label": [["1"]]}]}, "a class or a number"),
        ({"labels": [{"id": "x", "label": "1"}] * 10_001}, "send several"),
        ({"labels": [{"id": "x", "label": [1] * 100_001}]}, "more than 100000 rows"),
        (b'{"labels":' + b"[" * 5000 + b"]" * 5000 + b"}", "not JSON"),
    ],
)
def test_feedback_of_another_form_is_refused_with_the_reason(
    caller: Caller, body: object, words: str
) -> None:
    status, found = caller("feedback", "POST", FEEDBACK, body)
    assert status == 400, found
    assert words in found["error"]


def test_ten_thousand_labels_at_once_are_answered_by_counts(caller: Caller) -> None:
    names = [(f"unknown {number}", number) for number in range(10_000)]
    assert caller.label(*names)[1]["unknown"] == 10_000


def test_scopes_methods_and_paths_are_those_that_are_stated(caller: Caller) -> None:
    assert caller("predict", "GET", DRIFT)[0] == 403
    assert caller("feedback", "GET", DRIFT)[0] == 403
    assert caller("observe", "POST", FEEDBACK, {"labels": []})[0] == 403
    assert caller("predict", "POST", FEEDBACK, {"labels": []})[0] == 403
    assert caller("observe", "POST", DRIFT, {})[0] == 405
    assert caller("feedback", "GET", FEEDBACK)[0] == 405
    assert caller.head(DRIFT) == (200, b"")
    assert caller("observe", "GET", "/v2/models/mlp/versions/1/drift")[0] == 200
    assert caller("observe", "GET", "/v2/models/mlp/versions/2/drift")[0] == 404
    assert caller("observe", "GET", "/v2/models/other/drift")[0] == 404


def test_a_feedback_body_over_the_limit_is_refused(served: Server) -> None:
    caller = Caller(served)
    body = json.dumps({"labels": [{"id": "x" * 1000, "label": 1}] * 9000}).encode()
    assert len(body) > 8 * 1024 * 1024
    # The server may end the connection while the body is still sent.
    with contextlib.suppress(ConnectionError):
        assert caller("feedback", "POST", FEEDBACK, body)[0] == 413
    caller.close()


def test_a_worker_that_is_killed_takes_no_window_along(served: Server, caller: Caller) -> None:
    _, _, images, _ = watched.digits()
    judged = caller.until(
        # What the worker counts at once may be a whole window: then nothing is left of it.
        lambda each: each["window"]["filled"] + each["window"]["judged"] > 0,
        images[:50],
    )["window"]
    (worker,) = served.workers()
    os.kill(worker, signal.SIGKILL)
    served.wait(
        lambda state: any(
            each["pid"] != worker and each["state"] == "serving" for each in state["workers"]
        ),
        "no new worker",
    )
    again = Caller(served)
    now = again.drift()["window"]
    assert (now["judged"], now["filled"]) >= (judged["judged"], judged["filled"])
    again.close()


def test_another_version_begins_anew_and_old_ids_are_of_the_old_one(
    site: Site, start: Callable[..., Server]
) -> None:
    site.write(drift={"window_rows": 200})
    content, fields = watched.digits_model()
    site.publish(content, fields=fields)
    server = start(site).serving(1)
    caller = Caller(server)
    _, _, images, _ = watched.digits()
    judged = caller.until(lambda each: each["window"]["judged"] >= 1, images[:250])["window"]
    # Other settings of the same version begin nothing anew.
    before = set(server.workers())
    site.write(limits={"drain_seconds": 2})
    server.wait(
        lambda state: state["workers"] and all(
            each["pid"] not in before and each["state"] == "serving" for each in state["workers"]
        ),
        "no new workers",
    )  # fmt: skip
    caller.close()
    caller = Caller(server)
    assert caller.drift()["window"]["judged"] >= judged["judged"]
    identifier = new_id()
    caller.predict(images[:1], identifier)
    assert caller.label(("x", 1))[0] == 200  # the id is with the master now
    bare = {key: fields[key] for key in ("dataset", "inputs", "outputs")}
    bare["lineage"] = fields["lineage"] | {"run": "another"}
    site.publish(content, fields=bare)
    server.serving(2)
    caller.close()
    caller = Caller(server)
    found = caller.drift()
    assert (found["version"], found["state"], found["features"]) == ("2", "no reference", [])
    assert found["window"]["judged"] == 0
    assert caller.label((identifier, 1))[1]["other_version"] == 1
    caller.close()


def test_a_service_may_do_without(site: Site, start: Callable[..., Server]) -> None:
    site.write(drift={"enabled": False})
    version = site.publish(models.mlp())
    caller = Caller(start(site).serving(version))
    status, found = caller("observe", "GET", DRIFT)
    assert status == 404
    assert "drift.enabled" in found["error"]
    caller.close()


def test_calls_by_grpc_are_counted_and_joined(served: Server, caller: Caller) -> None:
    images = watched.digits()[2][:8].astype(np.float32)
    message = CLASSES["ModelInferRequest"](model_name="mlp")
    tensor = message.inputs.add(name="image", datatype="FP32", shape=images.shape)
    message.raw_input_contents.append(images.tobytes())
    named = new_id()
    typed = CLASSES["ModelInferRequest"](model_name="mlp", id=new_id())
    typed.inputs.append(tensor)
    typed.inputs[0].contents.fp32_contents.extend(images.ravel().tolist())
    before = caller.drift()["window"]
    with Client(served, token=served.site.token("predict")) as client:
        client.infer(typed)
        # As HTTP's header does, metadata name a request whose message has no id.
        assert client.infer(message, metadata=(("x-request-id", named),)).id == ""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and caller.drift()["window"] == before:
            client.infer(message)
    assert caller.drift()["window"] != before
    status, found = caller.label((typed.id, ["1"] * 8), (named, ["1"] * 8), ("never", "1"))
    assert (status, found["matched"], found["unknown"]) == (200, 2, 1)


def test_a_key_ring_that_was_moved_seals_what_is_kept(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = site.root / "moved"
    site.state.parent.mkdir()

    async def follow() -> None:
        kept = WatchedModels(silent)
        worker = cast("Any", SimpleNamespace(manifest={}))
        for ring in (site.root / "keyring", moved):
            if not ring.exists():
                (site.root / "keyring").rename(ring)
            site.write(keyring=str(ring))
            wanted = settings.read(site.config)
            generation = Generation(wanted, 1, (), cast("Any", None), [worker])
            kept.follow(generation, {})
        await kept.keep(now=True)

    asyncio.run(follow())
    assert capsys.readouterr().err == ""
    assert settings.read(site.config).drift_file.exists()


def _followed(site: Site, *, ends: str) -> None:
    """A server keeps counts of drift, which settings then end: while it runs or is stopped."""
    site.state.parent.mkdir(exist_ok=True)

    def generation() -> Generation:
        worker = cast("Any", SimpleNamespace(manifest={}))
        return Generation(settings.read(site.config), 1, (), cast("Any", None), [worker])

    async def follow() -> None:
        kept = WatchedModels(silent)
        site.write(drift={"enabled": True})
        kept.follow(generation(), {})
        writing = asyncio.ensure_future(kept.keep(now=True))
        if ends != "while it is written":
            await writing
            assert settings.read(site.config).drift_file.exists()
        else:
            await asyncio.sleep(0)  # the write has begun, in its thread
        site.write(drift={"enabled": False})
        if ends == "before it starts again":
            kept = WatchedModels(silent)
        kept.follow(generation(), {})
        await writing

    asyncio.run(follow())


@pytest.mark.parametrize(
    "ends", ["while it runs", "before it starts again", "while it is written"]
)
def test_drift_that_is_no_longer_watched_leaves_nothing_behind(
    site: Site, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    _followed(site, ends=ends)
    assert not settings.read(site.config).drift_file.exists()
    assert capsys.readouterr().err == ""


def test_what_was_kept_of_drift_and_cannot_be_removed_is_told(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.state.parent.mkdir(exist_ok=True)
    site.write(drift={"enabled": False})
    wanted = settings.read(site.config)
    wanted.drift_file.mkdir()
    worker = cast("Any", SimpleNamespace(manifest={}))
    generation = Generation(wanted, 1, (), cast("Any", None), [worker])
    WatchedModels(silent).follow(generation, {})
    assert f"can't remove {wanted.drift_file}: " in capsys.readouterr().err


def test_a_restart_goes_on_counting(site: Site, start: Callable[..., Server]) -> None:
    site.write(drift={"window_rows": 10_000}, limits={"drain_seconds": 1})
    content, fields = watched.digits_model()
    site.publish(content, fields=fields)
    server = start(site).serving(1)
    caller = Caller(server)
    filled = caller.until(
        lambda found: found["window"]["filled"] > 0, np.zeros((8, 1, 8, 8), np.float32)
    )["window"]["filled"]
    caller.close()
    assert server.stop() == 0
    server = start(site).serving(1)
    caller = Caller(server)
    assert caller.drift()["window"]["filled"] >= filled
    caller.close()
    assert server.stop() == 0
    assert "anew" not in server.errors.read_text()
