"""A shadow beside a running server: what it is given, what it never does, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference import settings
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.rpc.messages import CLASSES
from tests.workloads.inference import models, watched
from tests.workloads.inference.grpc_calls import Client
from tests.workloads.inference.serving import Server, Site, call

INFER = "/v2/models/mlp/infer"


def _turned(content: bytes) -> bytes:
    """The model of digits whose first two classes are exchanged."""
    model = onnx.load_from_string(content)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        values[..., [0, 1]] = values[..., [1, 0]]
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model.SerializeToString()


def _publish(site: Site, content: bytes, fields: dict[str, Any], *, promote: bool) -> int:
    return site.publish(content, fields=fields, promote=promote)


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("shadow") / "site")
    site.write(shadow={"percent": 100})
    content, fields = watched.digits_model()
    _publish(site, content, fields, promote=True)
    turned = fields | {"lineage": {**fields["lineage"], "run": "turned"}}
    assert _publish(site, _turned(content), turned, promote=False) == 2
    server = Server(site)
    try:
        yield server.serving(1)
        assert "Traceback" not in server.errors.read_text()
    finally:
        server.kill()


def _shadow(server: Server, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    def holds(state: dict[str, Any]) -> Any:
        return state.get("shadow") is not None and condition(state["shadow"])

    return server.wait(holds, "the shadow isn't so")["shadow"]


def _gone(server: Server) -> None:
    server.wait(lambda state: state["shadow"] is None, "there is a shadow still")


def _request(images: Any) -> dict[str, Any]:
    tensor = {
        "name": "image", "datatype": "FP32", "shape": list(images.shape),
        "data": images.ravel().tolist(),
    }  # fmt: skip
    return {"inputs": [tensor]}


def _labels(connection: HTTPSConnection, token: str, images: Any) -> list[int]:
    status, answer = call(connection, "POST", INFER, token=token, body=_request(images))
    assert status == 200, answer
    assert answer["model_version"] == "1"
    return next(each["data"] for each in answer["outputs"] if each["name"] == "label")


def test_a_shadow_is_compared_row_by_row_and_answers_nobody(served: Server) -> None:
    site = served.site
    connection, token = served.connect(), site.token("predict")
    images = watched.digits()[2][:40].astype(np.float32)
    # Nobody is beside yet: nothing is copied, and nothing says so.
    before = _labels(connection, token, images)
    assert served.state()["shadow"] is None

    site.store.promote("mlp", 2, "shadow")
    _shadow(served, lambda each: each["state"] == "ready")
    assert {w["version"] for w in served.state()["workers"]} == {1}
    # Workers hear of it with the master's next look.
    while _shadow(served, lambda _: True)["requests"]["compared"] == 0:
        assert _labels(connection, token, images) == before
        time.sleep(0.1)
    # One row, which is answered on the fast path, and binary answers.
    for image in images:
        _labels(connection, token, image[None])
    # And one by gRPC.
    message = CLASSES["ModelInferRequest"](model_name="mlp")
    message.inputs.add(name="image", datatype="FP32", shape=images.shape)
    message.raw_input_contents.append(images.tobytes())
    with Client(served, token=token) as client:
        client.infer(message)
    asked = _request(images) | {"parameters": {"binary_data_output": True}}
    assert call(connection, "POST", INFER, token=token, body=asked)[0] == 200
    found = _shadow(
        served, lambda each: each["rows"] % 40 == 0 and each["requests"]["compared"] >= 43
    )

    turned = sum(label in (0, 1) for label in before)
    assert found["requests"] | {"compared": 0} == dict.fromkeys(found["requests"], 0)
    assert found["agreement"] == pytest.approx(1 - turned / 40)
    assert 0 < turned < 40
    assert found["outputs"]["label"] == {"agreement": found["agreement"]}
    assert found["outputs"]["probabilities"]["agreement"] == found["agreement"]
    assert 0 < found["outputs"]["probabilities"]["mean_difference"] < 1
    assert found["percent"] == 100

    observe = site.token("observe")
    text = call(connection, "GET", "/metrics", token=observe)[1].decode()
    of = 'model="mlp",version="2"'
    assert f"falaj_shadow_ready{{{of}}} 1.0" in text
    assert 'falaj_shadow_requests_total{model="mlp",outcome="dropped",version="2"} 0.0' in text, [
        line for line in text.splitlines() if "shadow_requests" in line
    ]
    assert f"falaj_shadow_rows_total{{{of}}} {found['rows']}.0" in text
    # Its runs are none of the service's answers.
    assert 'falaj_inference_rows_total{model="mlp",version="2"}' not in text

    # A version that becomes the one that serves is nobody's shadow.
    site.store.promote("mlp", 2)
    served.serving(2)
    _gone(served)
    events = [
        json.loads(line)
        for path in sorted(site.logs.glob("audit*"))
        for line in path.read_text().splitlines()
    ]
    named = [each for each in events if str(each.get("event", "")).startswith("shadow.")]
    assert [each["event"] for each in named] == ["shadow.begun", "shadow.ended"]
    assert named[1]["requests"]["compared"] >= 43


def test_a_shadow_that_dies_or_is_withdrawn_disturbs_nobody(served: Server) -> None:
    site = served.site
    connection, token = served.connect(), site.token("predict")
    images = watched.digits()[2][:5].astype(np.float32)
    site.store.promote("mlp", 2, "shadow")
    first = _shadow(served, lambda each: each["state"] == "ready")
    workers = served.workers()
    os.kill(first["pid"], signal.SIGKILL)
    again = _shadow(served, lambda each: each["state"] == "ready" and each["pid"] != first["pid"])
    assert again["version"] == 2
    assert len(_labels(connection, token, images)) == 5
    assert served.workers() == workers
    site.store.withdraw("mlp", "shadow")
    _gone(served)
    assert len(_labels(connection, token, images)) == 5
    with pytest.raises(WorkloadError, match="no alias 'shadow'"):
        site.store.withdraw("mlp", "shadow")
    with pytest.raises(WorkloadError, match="nothing to serve"):
        site.store.withdraw("mlp", "production")


def test_a_version_that_answers_otherwise_is_no_failure_of_what_serves(served: Server) -> None:
    """It takes other inputs, and fails to be loaded where it isn't what was published."""
    site = served.site
    connection, token = served.connect(), site.token("predict")
    images = watched.digits()[2][:3].astype(np.float32)
    other = site.publish(models.mlp(), promote=False)
    site.store.promote("mlp", other, "shadow")
    _shadow(served, lambda each: each["state"] == "ready")
    found: dict[str, Any] = {"requests": {"refused": 0}}
    while not found["requests"]["refused"]:
        time.sleep(0.1)
        assert len(_labels(connection, token, images)) == 3
        found = _shadow(served, lambda _: True)
    assert "unknown input" in found["why"]["refused"]
    assert found["agreement"] is None
    package = site.store.path("mlp", 2)
    content = next(each for each in package.rglob("*") if each.name.startswith("model.onnx"))
    content.chmod(0o600)
    content.write_bytes(content.read_bytes()[:-1] + b"?")
    site.store.promote("mlp", 2, "shadow")
    broken = _shadow(served, lambda each: each["version"] == 2 and each["error"])
    assert broken["state"] == "failed"
    assert len(_labels(connection, token, images)) == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"percent": 0}, "shadow.percent: got 0, allowed is a number from 0.01 to 100"),
        ({"percent": 101}, "shadow.percent"),
        ({"alias": ""}, "shadow.alias"),
        ({"alias": "production"}, "which is what is served"),
        ({"version": 2}, "shadow.version is not a known key"),
        ("yes", 'shadow: got "yes", allowed is an object'),
    ],
)
def test_what_a_shadow_may_not_be(site: Site, given: Any, says: str) -> None:
    site.write(shadow=given)
    with pytest.raises(InferenceError) as raised:
        settings.read(site.config)
    assert says in str(raised.value)


def test_a_runtime_beside_has_no_shadow(site: Site) -> None:
    site.write(shadow={}, upstream={"url": "http://127.0.0.1:9"})
    with pytest.raises(InferenceError, match="leave it out, or upstream"):
        settings.read(site.config)
