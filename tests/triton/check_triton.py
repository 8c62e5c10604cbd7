"""Triton's own server: behind our service, and beside it, request by request.

Run by `make test-triton`, which makes an environment of Triton's own in the cache; never part of
another target. What differs is named here with the reason, and the rest has to be the same.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from falaj.workloads.inference.models.remote import Remote, RemoteError, schema_of
from falaj.workloads.inference.protocol.oip import Array, Inference, Schema
from falaj.workloads.inference.rpc.messages import CLASSES, INFERENCE
from falaj.workloads.inference.settings import Limits
from tests.triton.triton_server import Triton, running
from tests.workloads.inference import grpc_calls, models
from tests.workloads.inference.oip import KINDS
from tests.workloads.inference.serving import Server, Site, call, started

MOST_ROWS = 32
LIMITS = Limits(max_rows=MOST_ROWS)
CONTENTS = {
    "mlp": models.mlp(), "table": models.table(), "classifier": models.classifier(),
    **{f"echo-{each.lower()}": models.echo({"x": KINDS[each]}, ("batch", 3)) for each in KINDS},
}  # fmt: skip
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with running(tmp_path_factory.mktemp("triton"), CONTENTS, MOST_ROWS) as served:
        yield served


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same network in our own server."""
    site = Site(tmp_path_factory.mktemp("ours") / "site")
    site.write(limits={"max_rows": MOST_ROWS})
    with started(site, site.publish(CONTENTS["mlp"])) as server:
        yield server


# -- behind our service ------------------------------------------------------------------------


def schema(name: str, version: str = "1") -> Schema:
    return schema_of(name, version, models.fields(CONTENTS[name]), LIMITS)


def asked(made: Schema, feed: dict[str, Array], outputs: list[str] | None = None) -> Inference:
    inference = Inference()
    inference.feed, inference.outputs = feed, outputs
    inference.rows = len(next(iter(feed.values())))
    del made
    return inference


def with_remote(
    triton: Triton, made: Schema, work: Callable[[Remote], Awaitable[Any]], seconds: float = 20
) -> Any:
    async def run() -> Any:
        remote = Remote(
            f"http://127.0.0.1:{triton.port}", made, timeout_seconds=seconds, connections=4
        )
        try:
            return await work(remote)
        finally:
            await remote.close()

    return asyncio.run(run())


def values_of(datatype: str, rows: int) -> Array:
    random = np.random.default_rng(rows)
    if datatype == "BYTES":
        words = ["", "a", "دبي", "x" * 300]
        return np.array([words[i % 4] for i in range(rows * 3)], object).reshape(rows, 3)
    if datatype == "BOOL":
        return random.random((rows, 3)) > 0.5
    if datatype.startswith("FP"):
        kinds = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
        return random.standard_normal((rows, 3)).astype(kinds[datatype])
    kind = np.dtype(datatype.lower())
    limits = np.iinfo(kind)
    return random.integers(limits.min, limits.max, (rows, 3), dtype=kind, endpoint=True)


@pytest.mark.parametrize("rows", [1, 2, MOST_ROWS])
@pytest.mark.parametrize("datatype", KINDS)
def test_every_datatype_goes_through_the_proxy(triton: Triton, datatype: str, rows: int) -> None:
    made, given = schema(f"echo-{datatype.lower()}"), values_of(datatype, rows)
    (found,) = with_remote(triton, made, lambda remote: remote.infer(asked(made, {"x": given})))
    assert np.asarray(found).shape == given.shape
    np.testing.assert_array_equal(np.asarray(found), given)


def test_one_value_a_row_and_the_order_that_is_asked_for(triton: Triton) -> None:
    made = schema("classifier")
    image = np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)
    wanted = image.reshape(4, 64).argmax(axis=1)
    for outputs in (None, ["label"], ["label", "probabilities"]):
        inference = asked(made, {"image": image}, outputs)
        found = with_remote(triton, made, lambda remote, each=inference: remote.infer(each))
        names = outputs or made.output_names
        assert len(found) == len(names)
        assert found[names.index("label")].shape == (4,)
        assert found[names.index("label")].tolist() == wanted.tolist()


def test_texts_and_missing_values_of_a_table(triton: Triton) -> None:
    made = schema("table")
    feed = {
        "age": np.array([[20], [np.nan]], np.float32),
        "city": np.array([["دبي"], [""]], object),
    }
    score, label = with_remote(triton, made, lambda remote: remote.infer(asked(made, feed)))
    assert score.ravel().tolist() == [20, 40]
    assert label.tolist() == ["دبي", ""]


def test_what_it_says_of_itself(triton: Triton) -> None:
    made = schema("mlp")

    async def look(remote: Remote) -> Any:
        before = await remote.statistics()
        feed = {"input": np.full((2, 64), 0.5, np.float32)}
        for _ in range(3):
            await remote.infer(asked(made, feed))
        return await remote.is_ready(), before, await remote.statistics()

    is_ready, before, after = with_remote(triton, made, look)
    assert is_ready
    assert after[0] == before[0] + 3
    assert after[1] >= before[1]


def test_what_it_refuses_is_told_apart_from_what_it_lacks(triton: Triton) -> None:
    made = schema("mlp")
    many = asked(made, {"input": np.zeros((MOST_ROWS + 1, 64), np.float32)})
    with pytest.raises(RemoteError, match="batch-size must be <= 32") as refused:
        with_remote(triton, made, lambda remote: remote.infer(many))
    assert (refused.value.refused, refused.value.busy) == (True, False)
    other = schema("mlp", "7")
    one = asked(other, {"input": np.zeros((1, 64), np.float32)})
    with pytest.raises(RemoteError, match="it answered 404") as missing:
        with_remote(triton, other, lambda remote: remote.infer(one))
    assert not missing.value.refused
    assert not with_remote(triton, other, Remote.is_ready)


def test_the_service_answers_by_it_what_it_answers_alone(
    triton: Triton, ours: Server, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    site.write(limits={"max_rows": MOST_ROWS}, upstream={"url": f"http://127.0.0.1:{triton.port}"})
    values = np.random.default_rng(1).random((2, 64), dtype=np.float32)
    tensor = {"name": "input", "datatype": "FP32", "shape": [2, 64], "data": values.tolist()}
    binary, more = with_binary(
        {"inputs": [BINARY | {"shape": [2, 64], "parameters": {"binary_data_size": 512}}]},
        values.tobytes(),
    )
    with started(site, site.publish(CONTENTS["mlp"])) as server:
        for body, headers in (({"inputs": [tensor], "id": "7"}, {}), (binary, more)):
            answers = []
            for each in (server, ours):
                token = each.site.token("predict")
                answers.append(call(each.connect(), "POST", INFER, token=token, body=body,
                                    headers=headers))  # fmt: skip
            (status, found), (_, wanted) = answers
            assert status == 200, found
            alike(found, wanted)
        observer = server.site.token("observe")
        stats = call(server.connect(), "GET", "/v2/models/mlp/stats", token=observer)[1]
        assert stats["model_stats"][0]["inference_stats"]["success"]["count"] == 2


# -- beside our service, by HTTP ---------------------------------------------------------------

INFER = "/v2/models/mlp/infer"
ROW = np.full((1, 64), 0.5, np.float32)
BINARY: dict[str, Any] = {
    "name": "input", "datatype": "FP32", "shape": [1, 64],
    "parameters": {"binary_data_size": 256},
}  # fmt: skip
OUTPUT: dict[str, Any] = {"name": "probabilities"}


def tensor(**changes: Any) -> dict[str, Any]:
    made = {"name": "input", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}
    return {key: value for key, value in (made | changes).items() if value is not ...}


def inputs(*tensors: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"inputs": list(tensors or [tensor()]), **more}


def with_binary(document: dict[str, Any], *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    head = json.dumps(document).encode()
    return b"".join((head, *blobs)), {LENGTH: str(len(head))}


@dataclass(frozen=True)
class Case:
    """A request, and what differs with its reason.

    Attributes:
        body: JSON's values, or bytes.
        status: that both answer; of Triton and ours where they differ.
        why: they do.
    """

    body: Any = None
    status: int | tuple[int, int] = 200
    why: str = ""
    path: str = INFER
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


def get(path: str, status: int | tuple[int, int] = 200, why: str = "") -> Case:
    return Case(None, status, why, path, "GET")


def binary(document: dict[str, Any], *blobs: bytes, status: Any = 200, why: str = "") -> Case:
    body, headers = with_binary(document, *blobs)
    return Case(body, status, why, headers=headers)


ITS_OWN = "Triton calls JSON that it can't read a failure of its own; the protocol's status is 400"
NOT_NUMBERS = "we refuse what no model is meant to be given, instead of an answer of NaN"
NOT_OFFERED = "an extension that we don't announce"
BLOB = ROW.tobytes()
UNREAD = (500, 400)
CASES: dict[str, Case] = {
    "live": get("/v2/health/live"),
    "ready": get("/v2/health/ready"),
    "model": get("/v2/models/mlp"),
    "model, version": get("/v2/models/mlp/versions/1"),
    "model ready": get("/v2/models/mlp/ready"),
    "version ready": get("/v2/models/mlp/versions/1/ready"),
    "unknown model": get("/v2/models/none", 404),
    "unknown version": get("/v2/models/mlp/versions/7", 404),
    "unknown model ready": get(
        "/v2/models/none/ready", (400, 404), "as for all that asks for a model that isn't there"
    ),
    "unknown path": get("/v2/nothing", 404),
    "wrong method": get(INFER, 405),
    "post to health": Case({}, 405, path="/v2/health/live"),
    "slash at the end": get("/v2/", (404, 200), "the protocol's OpenAPI document has it"),
    "infer, unknown model": Case(inputs(), 404, path="/v2/models/none/infer"),
    "infer, unknown version": Case(inputs(), 404, path="/v2/models/mlp/versions/7/infer"),
    "infer": Case(inputs()),
    "infer, version": Case(inputs(), path="/v2/models/mlp/versions/1/infer"),
    "id": Case(inputs(id="42")),
    "nested": Case(inputs(tensor(data=[[0.5] * 64]))),
    "whole numbers": Case(inputs(tensor(data=[1] * 64))),
    "two rows": Case(inputs(tensor(shape=[2, 64], data=[0.5] * 128))),
    "all rows": Case(inputs(tensor(shape=[MOST_ROWS, 64], data=[0.5] * 64 * MOST_ROWS))),
    "output": Case(inputs(outputs=[OUTPUT])),
    "no outputs": Case(inputs(outputs=[])),
    "binary output": Case(inputs(outputs=[OUTPUT | {"parameters": {"binary_data": True}}])),
    "binary outputs": Case(inputs(parameters={"binary_data_output": True})),
    "one output that isn't binary": Case(
        inputs(
            parameters={"binary_data_output": True},
            outputs=[OUTPUT | {"parameters": {"binary_data": False}}],
        )
    ),
    "binary input": binary(inputs(BINARY), BLOB),
    "raw": Case(BLOB, headers={LENGTH: "0"}),
    "parameters": Case(inputs(parameters={"a": 1, "b": "c", "d": True})),
    "sequence": Case(inputs(parameters={"sequence_id": 1, "sequence_start": True})),
    "priority": Case(inputs(parameters={"priority": 1})),
    "timeout": Case(inputs(parameters={"timeout": 1_000_000})),
    "unknown member": Case(inputs(other=1)),
    "member of an input": Case(inputs(tensor(other=1))),
    "parameter of an input": Case(inputs(tensor(parameters={"other": 1}))),
    # What is wrong.
    "raw, a byte too few": Case(BLOB[:-1], 400, headers={LENGTH: "0"}),
    "empty": Case(b"", 400),
    "no JSON": Case(b"{", UNREAD, ITS_OWN),
    "a list": Case([], UNREAD, ITS_OWN),
    "no inputs": Case({}, UNREAD, ITS_OWN),
    "inputs that are none": Case({"inputs": {}}, UNREAD, ITS_OWN),
    "empty inputs": Case({"inputs": []}, 400),
    "no name": Case(inputs(tensor(name=...)), UNREAD, ITS_OWN),
    "no shape": Case(inputs(tensor(shape=...)), UNREAD, ITS_OWN),
    "no datatype": Case(inputs(tensor(datatype=...)), UNREAD, ITS_OWN),
    "no data": Case(inputs(tensor(data=...)), 400),
    "other datatype": Case(inputs(tensor(datatype="FP64")), 400),
    "unknown datatype": Case(inputs(tensor(datatype="FP8")), 400),
    "other name": Case(inputs(tensor(name="x")), 400),
    "another input": Case(inputs(tensor(), tensor(name="x")), 400),
    "twice": Case(inputs(tensor(), tensor()), 400),
    "other rank": Case(inputs(tensor(shape=[64])), 400),
    "other shape": Case(inputs(tensor(shape=[1, 63], data=[0.5] * 63)), 400),
    "no rows": Case(inputs(tensor(shape=[0, 64], data=[])), 400),
    "too many rows": Case(inputs(tensor(shape=[33, 64], data=[0.5] * 64 * 33)), 400),
    "too few elements": Case(inputs(tensor(data=[0.5] * 63)), UNREAD, ITS_OWN),
    "too many elements": Case(inputs(tensor(data=[0.5] * 65)), UNREAD, ITS_OWN),
    "negative size": Case(inputs(tensor(shape=[-1, 64])), UNREAD, ITS_OWN),
    "huge size": Case(inputs(tensor(shape=[2**62, 64])), 400),
    "sizes whose product wraps around": Case(inputs(tensor(shape=[2**32, 2**32])), 400),
    "text for a number": Case(inputs(tensor(data=["a"] * 64)), UNREAD, ITS_OWN),
    "null for a number": Case(inputs(tensor(data=[None] * 64)), UNREAD, ITS_OWN),
    "truth for a number": Case(inputs(tensor(data=[True] * 64)), UNREAD, ITS_OWN),
    "beyond the range": Case(inputs(tensor(data=[1e39] * 64)), (200, 400), NOT_NUMBERS),
    "NaN": Case(inputs(tensor(data=[float("nan")] * 64)), (200, 400), NOT_NUMBERS),
    "id that is a number": Case(inputs(id=7), UNREAD, ITS_OWN),
    "unknown output": Case(inputs(outputs=[{"name": "x"}]), 400),
    "output twice": Case(
        inputs(outputs=[OUTPUT, OUTPUT]), (200, 400), "Triton answers it once, not as asked for"
    ),
    "parameter that is an object": Case(inputs(parameters={"x": {}}), 400),
    "parameter that is a list": Case(inputs(parameters={"x": [1]}), 400),
    "parameter that is null": Case(inputs(parameters={"x": None}), 400),
    "parameter that is a fraction": Case(inputs(parameters={"x": 0.5})),
    "parameter of an input that is an object": Case(inputs(tensor(parameters={"x": {}}))),
    "parameter of an output that is an object": Case(
        inputs(outputs=[OUTPUT | {"parameters": {"x": {}}}])
    ),
    "classification": Case(
        inputs(outputs=[OUTPUT | {"parameters": {"classification": 2}}]), (200, 400), NOT_OFFERED
    ),
    "shared memory": Case(
        inputs(tensor(data=..., parameters={"shared_memory_region": "r",
                                            "shared_memory_byte_size": 256})),
        (404, 400), NOT_OFFERED,
    ),
    "binary, too few bytes": binary(inputs(BINARY), BLOB[:-4], status=400),
    "binary, too many bytes": binary(inputs(BINARY), BLOB + b"1234", status=400),
    "binary, other size": binary(
        inputs(BINARY | {"parameters": {"binary_data_size": 252}}), BLOB, status=400
    ),
    "binary, negative size": binary(
        inputs(BINARY | {"parameters": {"binary_data_size": -1}}), BLOB, status=UNREAD,
        why=ITS_OWN,
    ),
    "binary and data": binary(inputs(BINARY | {"data": [0.5] * 64}), BLOB, status=400),
    "header beyond the body": Case(inputs(), 400, headers={LENGTH: "99999"}),
    "header that is a word": Case(inputs(), 400, headers={LENGTH: "x"}),
    "header that is negative": Case(inputs(), 400, headers={LENGTH: "-1"}),
}  # fmt: skip


def ask(connection: Any, case: Case, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    data = case.body
    if data is not None and not isinstance(data, bytes):
        data = json.dumps(data).encode()
    connection.request(case.method, case.path, body=data, headers=headers | case.headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), content


def parsed(headers: dict[str, str], content: bytes) -> tuple[Any, bytes]:
    end = int(headers.get(LENGTH, len(content)))
    return json.loads(content[:end]), content[end:]


def alike(found: Any, wanted: Any) -> None:
    """The same members with the same values, but for the last digits of numbers."""
    if isinstance(found, dict):
        assert found.keys() == wanted.keys()
        for key in found:
            alike(found[key], wanted[key])
    elif isinstance(found, list) and found and isinstance(found[0], float):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    elif isinstance(found, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            alike(one, other)
    elif isinstance(found, bytes):
        head = found.index(b"}]}") + 3
        assert found[:head] == wanted[:head]
        alike(
            list(map(float, np.frombuffer(found[head:], np.float32))),
            list(map(float, np.frombuffer(wanted[head:], np.float32))),
        )
    else:
        assert found == wanted


@pytest.mark.parametrize("name", CASES)
def test_each_request_is_answered_alike(triton: Triton, ours: Server, name: str) -> None:
    case = CASES[name]
    token = ours.site.token("predict", "observe")
    status, headers, content = ask(triton.connect(), case, {})
    mine, my_headers, my_content = ask(ours.connect(), case, {"Authorization": f"Bearer {token}"})
    wanted = case.status if isinstance(case.status, tuple) else (case.status, case.status)
    assert (status, mine) == wanted, (content[:300], my_content[:300])
    assert (wanted[0] != wanted[1]) == bool(case.why)
    if mine != 200:
        # Errors have one form, and we say of it that it is JSON.
        assert json.loads(my_content).keys() == {"error"}
        assert my_headers["Content-Type"] == "application/json"
        assert status == 200 or json.loads(content).keys() == {"error"}
        return
    if status != 200 or not content:
        return  # of health Triton says the status alone
    assert my_headers["Content-Type"] == headers["Content-Type"]
    assert (LENGTH in my_headers) == (LENGTH in headers)
    document, blob = parsed(headers, content)
    mine_said, my_blob = parsed(my_headers, my_content)
    if case.method == "GET":
        # What runs it is another backend's name.
        document["platform"] = mine_said["platform"]
    alike(mine_said, document)
    alike(*(list(map(float, np.frombuffer(each, np.float32))) for each in (my_blob, blob)))


def within(found: Any, wanted: Any, path: str = "") -> list[str]:
    """What of a document another hasn't, by its path; numbers may differ."""
    if isinstance(found, dict):
        if not isinstance(wanted, dict):
            return [path]
        missing = [f"{path}.{key}" for key in found.keys() - wanted.keys()]
        both = found.keys() & wanted.keys()
        return missing + [
            each for key in both for each in within(found[key], wanted[key], f"{path}.{key}")
        ]
    if isinstance(found, list):
        if not isinstance(wanted, list) or len(wanted) < len(found):
            return [path]
        pairs = zip(found, wanted, strict=False)
        return [each for one, other in pairs for each in within(one, other, path)]
    return [] if type(found) is type(wanted) else [path]


@pytest.mark.parametrize(
    ("path", "method", "more"),
    [
        ("/v2", "GET", set()),
        ("/v2/models/mlp/config", "GET", set()),
        ("/v2/models/mlp/stats", "GET", set()),
        ("/v2/models/mlp/versions/1/stats", "GET", set()),
        # Of a version that serves there is no reason that it doesn't.
        ("/v2/repository/index", "POST", {".reason"}),
    ],
)
def test_documents_say_what_triton_s_say_in_the_same_place(
    triton: Triton, ours: Server, path: str, method: str, more: set[str]
) -> None:
    """Statistics and the configuration leave out what nobody counts or sets here."""
    case = Case({} if method == "POST" else None, path=path, method=method)
    token = ours.site.token("predict", "observe", "admin")
    ask(triton.connect(), Case(inputs()), {})
    ask(ours.connect(), Case(inputs()), {"Authorization": f"Bearer {token}"})
    _, _, content = ask(triton.connect(), case, {})
    status, _, mine = ask(ours.connect(), case, {"Authorization": f"Bearer {token}"})
    assert status == 200
    theirs: Any = json.loads(content)
    own: Any = json.loads(mine)
    if path.endswith("index"):
        served = [each for each in theirs if each["name"] == "mlp"]
        assert set(within(own, served)) == more
        return
    assert set(within(own, theirs)) == more
    if path == "/v2":
        assert set(own["extensions"]) <= set(theirs["extensions"])
    if path.endswith("config"):
        tensors = ("name", "data_type", "dims")
        for part in ("input", "output"):
            assert [[each[key] for key in tensors] for each in own[part]] == [
                [each[key] for key in tensors] for each in theirs[part]
            ]
        assert own["max_batch_size"] == theirs["max_batch_size"] == MOST_ROWS


# -- beside our service, by gRPC ---------------------------------------------------------------


class Plain(grpc_calls.Client):
    """A client of a server without TLS and credentials."""

    def __init__(self, port: int) -> None:
        self.model = "mlp"
        self.metadata = ()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")


@pytest.fixture
def clients(triton: Triton, ours: Server) -> Iterator[tuple[Plain, grpc_calls.Client]]:
    token = ours.site.token("predict", "observe")
    with Plain(triton.grpc_port) as plain, grpc_calls.Client(ours, token=token) as client:
        yield plain, client


def changed(change: Callable[[Any], Any], *, raw: bool = False) -> Any:
    message = grpc_calls.row("mlp", raw=raw)
    change(message)
    return message


WRONG: dict[str, tuple[Any, str, str, str]] = {
    "model": (grpc_calls.row("none"), "NOT_FOUND", "NOT_FOUND", ""),
    "version": (grpc_calls.row("mlp", model_version="7"), "NOT_FOUND", "NOT_FOUND", ""),
    "no inputs": (CLASSES["ModelInferRequest"](model_name="mlp"), "INVALID_ARGUMENT",
                  "INVALID_ARGUMENT", ""),
    "name": (changed(lambda m: setattr(m.inputs[0], "name", "x")), "INVALID_ARGUMENT",
             "INVALID_ARGUMENT", ""),
    "datatype": (changed(lambda m: setattr(m.inputs[0], "datatype", "FP64")), "INVALID_ARGUMENT",
                 "INVALID_ARGUMENT", ""),
    "raw size": (changed(lambda m: m.raw_input_contents.__setitem__(0, b"1234"), raw=True),
                 "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""),
    "raw count": (changed(lambda m: m.raw_input_contents.append(b""), raw=True),
                  "", "INVALID_ARGUMENT", "Triton passes over what no input asks for"),
    "typed size": (changed(lambda m: m.inputs[0].contents.fp32_contents.append(1)),
                   "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""),
    "both": (changed(lambda m: m.inputs[0].contents.fp32_contents.append(1), raw=True),
             "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""),
    "output": (changed(lambda m: m.outputs.add(name="nope")), "INVALID_ARGUMENT",
               "INVALID_ARGUMENT", ""),
    "rows": (changed(lambda m: m.inputs[0].shape.__setitem__(0, 65)), "INVALID_ARGUMENT",
             "INVALID_ARGUMENT", ""),
    "shape": (changed(lambda m: m.inputs[0].shape.__setitem__(1, 63)), "INVALID_ARGUMENT",
              "INVALID_ARGUMENT", ""),
    "field": (changed(lambda m: m.inputs[0].contents.int_contents.append(1)), "INVALID_ARGUMENT",
              "INVALID_ARGUMENT", ""),
}  # fmt: skip


def code_of(client: grpc_calls.Client, message: Any) -> str:
    """The code with which a call is refused; empty where it is answered."""
    try:
        client.infer(message)
    except grpc.RpcError as error:
        return error.code().name  # type: ignore[attr-defined]
    return ""


@pytest.mark.parametrize("kind", WRONG)
def test_each_call_is_refused_alike(clients: tuple[Plain, grpc_calls.Client], kind: str) -> None:
    message, theirs, mine, why = WRONG[kind]
    found = [code_of(client, message) for client in clients]
    assert found == [theirs, mine]
    assert (theirs != mine) == bool(why)


@pytest.mark.parametrize("raw", [False, True])
def test_calls_are_answered_alike(clients: tuple[Plain, grpc_calls.Client], raw: bool) -> None:
    values = np.random.default_rng(5).random(64, dtype=np.float32).tolist()
    theirs, mine = (
        client.infer(grpc_calls.row("mlp", values, raw=raw, id="42")) for client in clients
    )
    for name in ("model_name", "model_version", "id"):
        assert getattr(mine, name) == getattr(theirs, name)
    tensors = [
        [(each.name, each.datatype, list(each.shape)) for each in answer.outputs]
        for answer in (mine, theirs)
    ]
    assert tensors[0] == tensors[1]
    wanted = struct.unpack("<10f", theirs.raw_output_contents[0])
    if raw:
        found = struct.unpack("<10f", mine.raw_output_contents[0])
    else:
        # Triton answers raw, whatever it was asked; a typed request's answer is typed here, as
        # the protocol has it.
        found = tuple(mine.outputs[0].contents.fp32_contents)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("ServerLive", {}), ("ServerReady", {}), ("ModelReady", {"name": "mlp"}),
        ("ModelReady", {"name": "mlp", "version": "1"}), ("ModelMetadata", {"name": "mlp"}),
    ],
)  # fmt: skip
def test_methods_are_answered_alike(
    clients: tuple[Plain, grpc_calls.Client], method: str, given: dict[str, str]
) -> None:
    message = CLASSES[f"{method}Request"](**given)
    theirs, mine = (client.call(method, message) for client in clients)
    if method == "ModelMetadata":
        theirs.platform = mine.platform
    assert mine == theirs


def test_the_service_s_name_is_the_protocol_s(clients: tuple[Plain, grpc_calls.Client]) -> None:
    for client in clients:
        assert client.raw("ServerLive", b"", service=INFERENCE)
