"""An independent client, `tritonclient`, against the server; and models of other kinds."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site, call, row


class Client:
    """tritonclient over TLS with a token on every call."""

    def __init__(self, server: Server) -> None:
        context = server.site.pki.client_context()
        self.headers = {"Authorization": f"Bearer {server.site.token()}"}
        self.model = server.site.document["model"]
        self.raw = triton.InferenceServerClient(
            f"localhost:{server.port}",
            ssl=True,
            ssl_context_factory=lambda: context,
            network_timeout=30,
            connection_timeout=30,
        )

    def infer(self, inputs: list[Any], **options: Any) -> Any:
        return self.raw.infer(self.model, inputs, headers=self.headers, **options)


@pytest.fixture
def client(running: Server) -> Iterator[Client]:
    client = Client(running)
    yield client
    client.raw.close()


def tensor(name: str, array: np.ndarray, *, binary: bool, datatype: str = "FP32") -> Any:
    item = triton.InferInput(name, list(array.shape), datatype)
    item.set_data_from_numpy(array, binary_data=binary)
    return item


ROWS = np.random.default_rng(0).random((3, 64), dtype=np.float32)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return ort.InferenceSession(models.mlp()).run(None, {"input": ROWS})[0]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_json_and_binary(
    client: Client, expected: np.ndarray, binary_in: bool, binary_out: bool, rows: int
) -> None:
    for _ in range(3):
        result = client.infer(
            [tensor("input", ROWS[:rows], binary=binary_in)],
            outputs=[triton.InferRequestedOutput("probabilities", binary_data=binary_out)],
            request_id="abc",
            model_version="1",
        )
        np.testing.assert_allclose(
            result.as_numpy("probabilities"), expected[:rows], rtol=1e-4, atol=1e-6
        )
        assert result.get_response()["id"] == "abc"


def test_its_defaults(client: Client, expected: np.ndarray) -> None:
    result = client.infer([tensor("input", ROWS, binary=True)])
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected, rtol=1e-4, atol=1e-6)


def test_health_and_metadata(client: Client) -> None:
    assert client.raw.is_server_live()
    assert client.raw.is_server_ready()
    assert client.raw.is_model_ready("mlp", headers=client.headers)
    assert not client.raw.is_model_ready("other", headers=client.headers)
    metadata = client.raw.get_model_metadata("mlp", headers=client.headers)
    assert metadata["inputs"][0]["shape"] == [-1, 64]
    assert client.raw.get_server_metadata(headers=client.headers)["extensions"] == [
        "binary_tensor_data", "statistics", "model_configuration"
    ]  # fmt: skip


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_requests(
    client: Client, expected: np.ndarray, coding: str, binary: bool
) -> None:
    for _ in range(2):
        result = client.infer(
            [tensor("input", ROWS, binary=binary)],
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )
        np.testing.assert_allclose(
            result.as_numpy("probabilities"), expected, rtol=1e-4, atol=1e-6
        )


def test_errors_are_understood(client: Client) -> None:
    wrong = tensor("input", np.zeros((1, 63), np.float32), binary=True)
    with pytest.raises(InferenceServerException, match="doesn't fit"):
        client.infer([wrong])
    with pytest.raises(InferenceServerException, match="no credentials"):
        client.raw.infer("mlp", [tensor("input", ROWS, binary=True)])


def test_raw_binary_request(running: Server, token: str, expected: np.ndarray) -> None:
    connection = running.connect()
    for _ in range(3):
        status, content = call(
            connection,
            "POST",
            "/v2/models/mlp/infer",
            token=token,
            body=ROWS[:1].tobytes(),
            headers={"Inference-Header-Content-Length": "0"},
        )
        assert status == 200
        found = np.frombuffer(content[-40:], np.float32)
        np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("given", ["-1", "x", "1" * 30, "99999"])
def test_wrong_header_length(running: Server, token: str, given: str) -> None:
    headers = {"Inference-Header-Content-Length": given}
    status, answer = call(
        running.connect(), "POST", "/v2/models/mlp/infer", token=token, body=row(), headers=headers
    )
    assert (status, "Inference-Header-Content-Length" in answer["error"]) == (400, True)


def test_gzip_is_not_taken_for_json(running: Server, token: str) -> None:
    body = gzip.compress(b"{}")
    status, answer = call(
        running.connect(), "POST", "/v2/models/mlp/infer", token=token, body=body
    )
    assert (status, "not JSON" in answer["error"]) == (400, True)


def test_raw_rows_of_a_table(site: Site, start: Callable[..., Server]) -> None:
    site.write(model="table")
    version = site.publish(models.table())
    server = start(site).serving(version)
    client = Client(server)
    age = np.array([[30], [np.nan]], np.float32)
    city = np.array([["Dubai"], ["العين"]], dtype=object)
    for binary in (True, False):
        # Its JSON has NaN literals, which aren't JSON: missing numbers go as binary or null.
        inputs = [
            tensor("age", age, binary=True),
            tensor("city", city, binary=binary, datatype="BYTES"),
        ]
        for binary_out in (True, False):
            names = ("score", "label")
            outputs = [triton.InferRequestedOutput(n, binary_data=binary_out) for n in names]
            result = client.infer(inputs, outputs=outputs)
            assert result.as_numpy("score").tolist() == [[30], [40]]
            labels = result.as_numpy("label").tolist()
            assert [x.decode() if isinstance(x, bytes) else x for x in labels] == [
                "Dubai",
                "العين",
            ]
    client.raw.close()
    body = {
        "inputs": [
            {"name": "age", "datatype": "FP32", "shape": [2, 1], "data": [[None], [7]]},
            {"name": "city", "datatype": "BYTES", "shape": [2, 1], "data": [["a"], [None]]},
        ]
    }
    status, answer = call(
        server.connect(), "POST", "/v2/models/table/infer", token=site.token(), body=body
    )
    assert status == 200
    assert [output["data"] for output in answer["outputs"]] == [[40, 7], ["a", ""]]
    assert server.stop() == 0


def test_a_large_model_runs_beside_the_event_loop(
    site: Site, start: Callable[..., Server]
) -> None:
    content = models.heavy()
    version = site.publish(content)
    server = start(site).serving(version)
    session = ort.InferenceSession(content)
    clients = [Client(server) for _ in range(3)]
    requests = [
        [c.raw.async_infer("mlp", [tensor("input", ROWS, binary=True)], headers=c.headers)
         for _ in range(2)]
        for c in clients
    ]  # fmt: skip
    # Health is answered while the model runs in its thread.
    assert call(server.connect(), "GET", "/v2/health/live")[0] == 200
    wanted = session.run(None, {"input": ROWS})[0]
    for sent in requests:
        for one in sent:
            found = one.get_result(timeout=60).as_numpy("probabilities")
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    for client in clients:
        client.raw.close()
    assert server.stop() == 0
