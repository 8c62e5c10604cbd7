"""Statistics, configuration and the index: what Triton's client is told, and what is true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from onnx import TensorProto
from tritonclient.utils import InferenceServerException

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.metrics import Counters, Totals
from falaj.workloads.inference.protocol import extensions
from falaj.workloads.inference.protocol.oip import Schema, TensorSpec
from tests.workloads.inference import models
from tests.workloads.inference.oip import loaded
from tests.workloads.inference.serving import Server, Site, call, row

PATHS = (
    "/v2/models/stats", "/v2/models/mlp/stats", "/v2/models/mlp/versions/1/stats",
    "/v2/models/mlp/config", "/v2/models/mlp/versions/1/config",
)  # fmt: skip


# -- statistics ------------------------------------------------------------------------------


def counted(*, seconds: float = 0.5, rows: int = 3) -> Counters:
    counters = Counters()
    counters.inferred(seconds, seconds / 2, rows)
    counters.queued(0.25)
    counters.not_inferred(0.125)
    counters.last_inference = 1_700_000_000_123_456
    return counters


def of(totals: Totals, **options: Any) -> list[dict[str, Any]]:
    given: Any = {"version": None, "runs_here": True} | options
    return extensions.statistics("mlp", totals.by_version(), **given)


def test_the_counts_of_all_workers_are_summed_by_version() -> None:
    totals = Totals("mlp")
    totals.update(1, 9, counted().snapshot())
    totals.ended(1)
    late = counted()
    late.last_inference += 5_000_000
    totals.update(2, 9, late.snapshot())
    totals.update(3, 10, Counters().snapshot() | {"open_connections": 1})
    old, new = of(totals)
    assert old == {
        "name": "mlp", "version": "9", "last_inference": 1_700_000_005_123,
        "inference_count": 6, "execution_count": 2,
        "inference_stats": {
            "success": {"count": 2, "ns": 1_000_000_000},
            "fail": {"count": 2, "ns": 250_000_000},
            "queue": {"count": 2, "ns": 500_000_000},
            "compute_infer": {"count": 2, "ns": 500_000_000},
        },
    }  # fmt: skip
    assert (new["version"], new["inference_count"], new["last_inference"]) == ("10", 0, 0)
    assert of(totals, version="10") == [new]
    assert of(totals, version="11") == []


def test_each_model_has_counts_of_its_own() -> None:
    totals = Totals("first")
    totals.update(1, 1, counted(rows=3).snapshot())
    totals.update(2, 1, counted(rows=4).snapshot(), "first")
    # The settings name another one, of the same version, while a worker of the first drains.
    totals.model = "mlp"
    totals.update(3, 1, counted(rows=5).snapshot(), "mlp")
    totals.update(2, 1, counted(rows=40).snapshot(), "first")
    totals.ended(1)
    lines = totals.render().decode().splitlines()
    for model, rows in (("first", 43), ("mlp", 5)):
        assert f'falaj_inference_rows_total{{model="{model}",version="1"}} {rows}.0' in lines
    assert [each["inference_count"] for each in of(totals)] == [5]


def test_a_service_that_is_given_another_model_counts_under_its_name(
    site: Site, start: Callable[..., Server]
) -> None:
    version = site.publish(models.mlp())
    assert site.publish(models.mlp(), name="other") == version
    server = start(site).serving(version)
    token = site.token("predict", "observe")
    assert (
        call(server.connect(), "POST", "/v2/models/mlp/infer", token=token, body=row())[0] == 200
    )
    site.write(model="other")
    server.wait(
        lambda s: s["model"] == "other" and len(s["workers"]) == 1 and s["status"] == "serving",
        "the other model",
    )  # fmt: skip
    connection = server.connect()
    for _ in range(2):
        answer = call(connection, "POST", "/v2/models/other/infer", token=token, body=row())
        assert answer[0] == 200
    lines = call(connection, "GET", "/metrics", token=token)[1].decode().splitlines()
    for model, rows in (("mlp", 1), ("other", 2)):
        assert f'falaj_inference_rows_total{{model="{model}",version="1"}} {rows}.0' in lines
    assert server.stop() == 0


def test_what_others_ran_is_not_told_as_runs_here() -> None:
    totals = Totals("mlp")
    counters = counted()
    counters.inferred(0.5, 0.5, 1)
    counters.passed_on("answered")
    counters.passed_on("failed")
    totals.update(1, 1, counters.snapshot())
    (found,) = of(totals)
    assert (found["execution_count"], found["inference_stats"]["success"]["count"]) == (1, 2)
    assert "compute_infer" not in found["inference_stats"]
    (beside,) = of(totals, runs_here=False)
    assert set(beside) == {
        "name", "version", "last_inference", "inference_count", "inference_stats"
    }  # fmt: skip
    assert set(beside["inference_stats"]) == {"success", "fail", "queue"}


# -- configuration ---------------------------------------------------------------------------


def test_a_model_of_rows_says_how_many_and_leaves_them_out_of_its_sizes() -> None:
    schema = loaded(models.table()).schema
    assert extensions.configuration(schema, 2) == {
        "name": "mlp", "backend": "onnxruntime", "max_batch_size": 32,
        "version_policy": {"specific": {"versions": [3]}},
        "input": [
            {"name": "age", "data_type": "TYPE_FP32", "dims": [1]},
            {"name": "city", "data_type": "TYPE_STRING", "dims": [1]},
        ],
        "output": [
            {"name": "score", "data_type": "TYPE_FP32", "dims": [1]},
            {"name": "label", "data_type": "TYPE_STRING", "dims": []},
        ],
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
    }  # fmt: skip


def test_a_model_that_is_not_of_rows_says_all_its_sizes() -> None:
    fixed = loaded(models.echo({"x": TensorProto.INT64}, (2, "wide"))).schema
    found = extensions.configuration(fixed, None)
    assert (found["max_batch_size"], found["input"][0]["dims"]) == (0, [2, -1])
    assert not {"backend", "instance_group"} & set(found)
    # Rows come in, and one number of them all goes out.
    summed = Schema(
        "m", "1", [TensorSpec("x", "FP32", (-1, 2))], [TensorSpec("y", "FP32", (1,))],
        batched=True, max_rows=9, max_elements=99,
    )  # fmt: skip
    found = extensions.configuration(summed, 1)
    assert (found["max_batch_size"], found["input"][0]["dims"]) == (0, [-1, 2])


# -- the index -------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": false}', b'{"else": 1}'])
def test_an_index_is_of_everything_unless_asked_otherwise(body: bytes) -> None:
    assert not extensions.wants_ready(body)
    assert extensions.wants_ready(b'{"ready": true, "else": null}')


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b"true", b'"ready"', b"{", b"\xff", b'{"ready": null}', b'{"ready": 1}',
     b'{"ready": "true"}', b"[" * 9999],
)  # fmt: skip
def test_another_question_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        extensions.wants_ready(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("ready", [True, False])
def test_every_version_is_there_and_one_is_ready(ready: bool) -> None:
    schema = loaded(models.mlp()).schema  # version 3
    found = extensions.index(schema, [10, 2], ready=ready, only_ready=False)
    assert [each["version"] for each in found] == ["2", "3", "10"]
    states = [each["state"] for each in found]
    assert states == ["UNAVAILABLE", "READY" if ready else "UNAVAILABLE", "UNAVAILABLE"]
    assert [bool(each["reason"]) for each in found] == [True, not ready, True]
    alone = extensions.index(schema, [10, 2], ready=ready, only_ready=True)
    assert alone == ([found[1]] if ready else [])


# -- the server ------------------------------------------------------------------------------


@pytest.fixture
def client(running: Server) -> Iterator[triton.InferenceServerClient]:
    context = running.site.pki.client_context()
    client = triton.InferenceServerClient(
        f"localhost:{running.port}", ssl=True, ssl_context_factory=lambda: context
    )
    yield client
    client.close()


@pytest.fixture
def observer(running: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {running.site.token('observe')}"}


def test_tritons_client_reads_the_configuration_and_the_index(
    client: triton.InferenceServerClient, observer: dict[str, str]
) -> None:
    for version in ("", "1"):
        found = client.get_model_config("mlp", version, headers=observer)
        assert (found["max_batch_size"], found["input"][0]["dims"]) == (64, [64])
    assert client.get_model_repository_index(headers=observer) == [
        {"name": "mlp", "version": "1", "state": "READY", "reason": ""}
    ]


def test_tritons_client_is_told_that_versions_change_through_the_registry(
    client: triton.InferenceServerClient, observer: dict[str, str]
) -> None:
    for change in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="promote a version"):
            change("mlp", headers=observer)
        with pytest.raises(InferenceServerException, match="no credentials"):
            change("mlp")


def test_other_scopes_and_strangers_learn_nothing(running: Server, token: str) -> None:
    connection = running.connect()
    for method, path in [*(("GET", path) for path in PATHS), ("POST", "/v2/repository/index")]:
        body = {} if method == "POST" else None
        assert call(connection, method, path, body=body)[0] == 401
        status, answer = call(connection, method, path, token=token, body=body)
        assert (status, "observe" in answer["error"]) == (403, True)


def test_the_index_takes_a_body_and_refuses_others(running: Server) -> None:
    token, connection = running.site.token("observe"), running.connect()
    for body in ({}, {"ready": True}, b""):
        status, answer = call(connection, "POST", "/v2/repository/index", token=token, body=body)
        assert (status, len(answer)) == (200, 1)
    status, answer = call(connection, "POST", "/v2/repository/index", token=token, body=[1])
    assert (status, "ready" in answer["error"]) == (400, True)
    assert call(connection, "GET", "/v2/repository/index", token=token)[0] == 405
    # As `curl -X POST` does, which sends no length.
    connection.putrequest("POST", "/v2/repository/index")
    connection.putheader("Authorization", f"Bearer {token}")
    connection.endheaders()
    answered = connection.getresponse()
    assert (answered.status, len(json.load(answered))) == (200, 1)


def test_what_was_asked_is_counted_over_all_workers(
    site: Site, start: Callable[..., Server]
) -> None:
    site.write(workers=2)
    version = site.publish(models.mlp())
    site.publish(models.mlp(1), promote=False)
    server = start(site).serving(version)
    server.wait(lambda _: len(server.workers()) == 2, "no second worker")
    token, path = site.token("predict", "observe"), "/v2/models/mlp/infer"
    began = time.time()
    for _ in range(8):  # connections, which the workers share
        connection = server.connect()
        for _ in range(5):
            assert call(connection, "POST", path, token=token, body=row())[0] == 200
        tensor = {"name": "input", "datatype": "FP32", "shape": [3, 64], "data": [0.5] * 192}
        body = {"inputs": [tensor]}
        assert call(connection, "POST", path, token=token, body=body)[0] == 200
        assert call(connection, "POST", path, token=token, body={"inputs": []})[0] == 400
        assert call(connection, "POST", path, body=row())[0] == 401
        connection.close()
    context = site.pki.client_context()
    client = triton.InferenceServerClient(
        f"localhost:{server.port}", ssl=True, ssl_context_factory=lambda: context
    )
    headers = {"Authorization": f"Bearer {token}"}
    deadline = time.monotonic() + 30
    while True:
        found = client.get_inference_statistics("mlp", "1", headers=headers)
        (stats,) = found["model_stats"]
        if stats["inference_stats"]["success"]["count"] == 48 or time.monotonic() > deadline:
            break  # the other worker tells its counts every half a second
        time.sleep(0.05)
    assert client.get_inference_statistics(headers=headers) == found
    assert client.get_inference_statistics("mlp", headers=headers) == found
    assert (stats["name"], stats["version"]) == ("mlp", "1")
    assert (stats["inference_count"], stats["execution_count"]) == (64, 48)
    assert began * 1000 - 1 <= stats["last_inference"] <= time.time() * 1000
    told = stats["inference_stats"]
    assert (told["success"]["count"], told["fail"]["count"]) == (48, 8)
    assert told["success"]["ns"] >= told["compute_infer"]["ns"] > 0
    states = client.get_model_repository_index(headers=headers)
    assert [(each["version"], each["state"]) for each in states] == [
        ("1", "READY"), ("2", "UNAVAILABLE")
    ]  # fmt: skip
    config = client.get_model_config("mlp", headers=headers)
    assert config["instance_group"] == [{"kind": "KIND_CPU", "count": 2}]
    # What the configuration says of rows is what is held to.
    most = config["max_batch_size"]
    pixels = triton.InferInput("input", [most + 1, *config["input"][0]["dims"]], "FP32")
    pixels.set_data_from_numpy(np.zeros((most + 1, 64), np.float32))
    with pytest.raises(InferenceServerException, match=str(most)):
        client.infer("mlp", [pixels], headers=headers)
    client.close()
    assert json.dumps(found)
    assert server.stop() == 0
