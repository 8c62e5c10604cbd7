"""gRPC of the Open Inference Protocol: what HTTP answers, in its messages; and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.inference import settings as service_settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.rpc import calls, front
from falaj.workloads.inference.rpc.messages import CLASSES, HEALTH, INFERENCE, JOBS, SERVING
from falaj.workloads.inference.rpc.relay import GOAWAY, Frames, Relay
from falaj.workloads.inference.rpc.server import Reads
from falaj.workloads.inference.rpc.translation import METHODS, Told
from falaj.workloads.inference.service import Service
from tests.examples import examples
from tests.workloads.inference import models, raw_h2
from tests.workloads.inference.grpc_calls import INFER, Client, processes, refusal, row
from tests.workloads.inference.oip import ECHO, KINDS, MLP, TABLE
from tests.workloads.inference.raw_h2 import frame
from tests.workloads.inference.serving import Server, Site, call
from tests.workloads.inference.serving import row as http_row

Start = Callable[..., Server]


@pytest.fixture
def client(running: Server, token: str) -> Iterator[Client]:
    with Client(running, token=token) as client:
        yield client


# What is answered.


def test_the_methods(client: Client) -> None:
    assert client.call("ServerLive").live
    assert client.call("ServerReady").ready
    server = client.call("ServerMetadata")
    # Statistics and the configuration have no method here.
    assert (server.name, list(server.extensions)) == ("falaj", ["binary_tensor_data"])
    named = {"name": client.model, "version": "1"}
    assert client.call("ModelReady", CLASSES["ModelReadyRequest"](**named)).ready
    found = client.call("ModelMetadata", CLASSES["ModelMetadataRequest"](**named))
    assert (found.name, list(found.versions)) == (client.model, ["1"])
    tensors = [(each.name, each.datatype, list(each.shape)) for each in found.inputs]
    assert tensors == [("input", "FP32", [-1, 64])]
    for service, code in (("", "OK"), (INFERENCE, "OK"), (JOBS, "OK"), ("other", "NOT_FOUND")):
        given = CLASSES["HealthCheckRequest"](service=service).SerializeToString()
        if code == "OK":
            answer = client.raw("Check", given, service=HEALTH)
            assert CLASSES["HealthCheckResponse"].FromString(answer).status == SERVING
        else:
            assert refusal(client.raw, "Check", given, service=HEALTH)[0] == code


def test_health_asks_for_no_credentials(running: Server) -> None:
    with Client(running) as stranger:
        assert stranger.call("ServerLive").live
        assert stranger.call("ServerReady").ready
        answer = stranger.raw("Check", b"", service=HEALTH)
        assert CLASSES["HealthCheckResponse"].FromString(answer).status == SERVING


@pytest.mark.parametrize("raw", [False, True])
def test_an_inference_is_that_of_http(running: Server, client: Client, raw: bool) -> None:
    values = np.random.default_rng(3).random(64, dtype=np.float32).tolist()
    found = client.infer(row(client.model, values, raw=raw, id="42", model_version="1"))
    connection = running.connect("caller")
    _, wanted = call(connection, "POST", "/v2/models/mlp/infer", body=http_row(values, id="42"))
    connection.close()
    assert (found.model_name, found.model_version, found.id) == ("mlp", "1", "42")
    (output,) = found.outputs
    if raw:
        data = list(struct.unpack("<10f", found.raw_output_contents[0]))
        assert not output.HasField("contents")
    else:
        data = list(output.contents.fp32_contents)
        assert not found.raw_output_contents
    np.testing.assert_allclose(data, wanted["outputs"][0]["data"], rtol=1e-6)


def test_a_certificate_is_enough(running: Server) -> None:
    with Client(running, certificate="caller") as known:
        assert known.infer(row(known.model)).outputs


def test_calls_are_recorded_as_those_of_http(running: Server) -> None:
    site = running.site
    token = site.token("predict", "observe")
    connection = running.connect()

    def counted() -> float:
        text = call(connection, "GET", "/metrics", token=token)[1].decode()
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("falaj_inference_responses_total")
            and 'route="infer",status="200"' in line
        )

    before = counted()
    # Lines of other tests' calls may still be on their way: the newer ones are of this test.
    since = time.time_ns() // 1000
    with Client(running, token=token) as client:
        for _ in range(5):
            client.infer(row(client.model))
    assert counted() == before + 5
    connection.close()
    found = _lines(site, since, 5)
    assert len(found) == 5
    assert {each["path"] for each in found} == {INFER}
    last = found[-1]
    assert (last["subject"], last["method"], last["status"]) == ("tester", "POST", 200)
    assert last["client"].startswith("127.0.0.1:")


def test_a_health_check_that_fails_is_no_refused_caller(running: Server) -> None:
    connection = running.connect()
    token = running.site.token("observe")

    def denied() -> list[str]:
        text = call(connection, "GET", "/metrics", token=token)[1].decode()
        return [each for each in text.splitlines() if "denied" in each]

    before, since = denied(), time.time_ns() // 1000
    with Client(running) as stranger:
        given = CLASSES["HealthCheckRequest"](service="other").SerializeToString()
        assert refusal(stranger.raw, "Check", given, service=HEALTH)[0] == "NOT_FOUND"
    (line,) = _lines(running.site, since, 1)
    assert (line["subject"], line["status"]) == (None, 404)
    assert denied() == before
    connection.close()


def test_a_refused_caller_is_counted_where_http_counts_it(running: Server) -> None:
    connection = running.connect()
    token = running.site.token("observe")

    def counted() -> dict[str, float]:
        text = call(connection, "GET", "/metrics", token=token)[1].decode()
        lines = [each.rpartition(" ") for each in text.splitlines() if 'status="401"' in each]
        return {name: float(value) for name, _, value in lines if "responses_total" in name}

    def refused(path: str, method: str) -> dict[str, float]:
        before = counted()
        if path:
            assert call(connection, "GET", path)[0] == 401
        else:
            with Client(running) as stranger:
                assert refusal(stranger.call, method)[0] == "UNAUTHENTICATED"
        return {name: now - before.get(name, 0) for name, now in counted().items()
                if now != before.get(name, 0)}  # fmt: skip

    for path, method in (
        ("/v2", "ServerMetadata"), ("/v2/models/mlp", "ModelMetadata"),
        ("/v2/models/mlp/ready", "ModelReady"),
    ):  # fmt: skip
        assert refused(path, method) == refused("", method)
    connection.close()


@pytest.mark.parametrize("name", ["mlp/ready", "mlp/drift", "mlp/", "mlp%2Fready"])
def test_a_name_is_no_path(client: Client, running: Server, name: str) -> None:
    message = CLASSES["ModelMetadataRequest"](name=name)
    assert refusal(client.call, "ModelMetadata", message)[0] == "NOT_FOUND"
    message = CLASSES["ModelMetadataRequest"](name="mlp", version="1/ready")
    assert refusal(client.call, "ModelMetadata", message)[0] == "NOT_FOUND"
    assert "Traceback" not in running.errors.read_text()


def _lines(site: Site, since: int, count: int) -> list[dict[str, Any]]:
    """The lines of gRPC calls from a moment on, once there are so many of them."""
    deadline = time.monotonic() + 20
    found: list[dict[str, Any]] = []
    while time.monotonic() < deadline and len(found) < count:
        time.sleep(0.02)
        log = site.logs / "access.jsonl"  # there with the first lines
        lines = log.read_text().splitlines() if log.exists() else []
        found = [
            each for each in map(json.loads, lines)
            if each["time_us"] >= since and each["path"].startswith(("/inference.", "/grpc."))
        ]  # fmt: skip
    return found


# What is refused.


def _message(**changes: Any) -> Any:
    message = row("mlp")
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def _tensor(change: Callable[[Any], Any], *, raw: bool = False) -> Any:
    message = row("mlp", raw=raw)
    change(message)
    return message


WRONG: dict[str, tuple[Any, str, str]] = {
    "model": (_message(model_name="x y"), "NOT_FOUND", "unknown model 'x%20y'; served is 'mlp'"),
    "version": (_message(model_version="7"), "NOT_FOUND", "version '7' of model 'mlp'"),
    "nothing": (CLASSES["ModelInferRequest"](model_name="mlp"), "INVALID_ARGUMENT",
                "must have a list of inputs"),
    "both forms": (_tensor(lambda m: m.inputs[0].contents.fp32_contents.append(1), raw=True),
                   "INVALID_ARGUMENT", "has both contents and raw_input_contents"),
    "raw count": (_tensor(lambda m: m.raw_input_contents.append(b""), raw=True),
                  "INVALID_ARGUMENT", "raw_input_contents has 2 entries for 1 inputs"),
    "raw size": (_tensor(lambda m: m.raw_input_contents.__setitem__(0, b"1234"), raw=True),
                 "INVALID_ARGUMENT", "4 bytes of binary data, but shape [1, 64] of FP32 takes"),
    "typed size": (_tensor(lambda m: m.inputs[0].contents.fp32_contents.append(1)),
                   "INVALID_ARGUMENT", "65 elements in data, but shape [1, 64] means 64"),
    "field": (_tensor(lambda m: m.inputs[0].contents.int_contents.append(1)),
              "INVALID_ARGUMENT", "FP32 data must be in fp32_contents; got int_contents"),
    "datatype": (_tensor(lambda m: setattr(m.inputs[0], "datatype", "FP64")),
                 "INVALID_ARGUMENT", "must be in fp64_contents"),
    "unknown datatype": (_tensor(lambda m: setattr(m.inputs[0], "datatype", "FP8")),
                         "INVALID_ARGUMENT", "datatype 'FP8', the model expects FP32"),
    "name": (_tensor(lambda m: setattr(m.inputs[0], "name", "other")), "INVALID_ARGUMENT",
             "unknown input 'other'; the model's inputs are: input"),
    "twice": (_tensor(lambda m: m.inputs.append(m.inputs[0])), "INVALID_ARGUMENT",
              "input 'input' is there twice"),
    "output": (_tensor(lambda m: m.outputs.add(name="nope")), "INVALID_ARGUMENT",
               "unknown output 'nope'"),
    "rows": (_tensor(lambda m: m.inputs[0].shape.__setitem__(0, 65)), "INVALID_ARGUMENT",
             "[65] rows in one request; at most 64 are allowed"),
    "negative": (_tensor(lambda m: m.inputs[0].shape.__setitem__(0, -1)), "INVALID_ARGUMENT",
                 "doesn't fit the model's"),
    "sizes": (_tensor(lambda m: m.inputs[0].shape.extend([2**62] * 5000)), "INVALID_ARGUMENT",
              "5002 dimensions"),
    "nan": (row("mlp", [float("nan")] * 64), "INVALID_ARGUMENT", "NaN or infinite"),
    "infinite": (row("mlp", [float("inf")] * 64, raw=True), "INVALID_ARGUMENT", "NaN or infinite"),
    "classification": (
        _tensor(lambda m: setattr(
            m.outputs.add(name="probabilities").parameters["classification"], "int64_param", 3
        )),
        "INVALID_ARGUMENT", "classification belongs to an extension not offered here"),
    "long id": (_message(id="x" * 2000), "INVALID_ARGUMENT", "at most 1024 characters"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_told(client: Client, kind: str) -> None:
    message, code, words = WRONG[kind]
    found, details = refusal(client.infer, message)
    assert (found, words in details) == (code, True), details


def test_without_grpc_the_port_speaks_http_alone(site: Site, start: Start) -> None:
    site.write(grpc=False)
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    with Client(server, token=site.token()) as client:
        assert refusal(client.infer, row(client.model))[0] == "UNAVAILABLE"
    assert not processes(server)
    connection = server.connect("caller")
    assert call(connection, "POST", "/v2/models/mlp/infer", body=http_row())[0] == 200


def test_who_calls_by_http_alone_has_no_process(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    connection = server.connect("caller")
    assert call(connection, "POST", "/v2/models/mlp/infer", body=http_row())[0] == 200
    assert not processes(server)


# Requests by four ways, which say the same.

MODEL_INFER = METHODS[INFERENCE]["ModelInfer"]
TYPED = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def _by_grpc(served: Any, message: Any) -> Any:
    asked = MODEL_INFER.ask(message.SerializeToString())
    inference = served.schema.read(asked.body, asked.header_length)
    body, length = served.schema.write(inference, served.run(inference))
    return CLASSES["ModelInferResponse"].FromString(
        MODEL_INFER.tell(asked, Told(200, body, length))
    )


def _elements(datatype: str) -> st.SearchStrategy[Any]:
    if datatype == "BOOL":
        return st.booleans()
    if datatype == "BYTES":
        return st.text(max_size=8)
    if datatype == "FP16":
        return st.integers(-2048, 2048).map(lambda whole: whole / 4)
    if datatype.startswith("FP"):
        width = int(datatype[2:])
        return st.floats(width=width, allow_nan=False, allow_infinity=False)
    info = np.iinfo(datatype.lower())
    return st.integers(int(info.min), int(info.max))


@pytest.mark.parametrize("datatype", KINDS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_four_ways_say_the_same(datatype: str, data: Any) -> None:
    served = ECHO[datatype]
    rows = data.draw(st.integers(1, 6))
    values = data.draw(st.lists(_elements(datatype), min_size=2 * rows, max_size=2 * rows))
    array = np.array(values, dtype=object if datatype == "BYTES" else datatype_of(datatype))
    spec = served.schema.inputs["x"]
    blob = spec.to_binary(array)

    message = CLASSES["ModelInferRequest"](model_name="mlp")
    tensor = message.inputs.add(name="x", datatype=datatype, shape=[rows, 2])
    message.raw_input_contents.append(blob)
    raw = _by_grpc(served, message)
    assert list(raw.raw_output_contents) == [blob]
    assert list(raw.outputs[0].shape) == [rows, 2]

    head = {"inputs": [{"name": "x", "datatype": datatype, "shape": [rows, 2],
                        "parameters": {"binary_data_size": len(blob)}}],
            "parameters": {"binary_data_output": True}}  # fmt: skip
    text = json.dumps(head).encode()
    inference = served.schema.read(text + blob, len(text))
    body, length = served.schema.write(inference, served.run(inference))
    assert body[length:] == blob

    if datatype == "FP16":  # neither JSON nor contents have it
        return
    del message.raw_input_contents[:]
    given = [each.encode() for each in values] if datatype == "BYTES" else values
    getattr(tensor.contents, TYPED[datatype]).extend(given)
    typed = _by_grpc(served, message)
    assert list(getattr(typed.outputs[0].contents, TYPED[datatype])) == given

    document = {"inputs": [{"name": "x", "datatype": datatype, "shape": [rows, 2],
                            "data": values}]}  # fmt: skip
    inference = served.schema.read(json.dumps(document).encode(), None)
    body, _ = served.schema.write(inference, served.run(inference))
    found = json.loads(body)["outputs"][0]["data"]
    assert np.array(found, dtype=array.dtype).tolist() == array.tolist()


def datatype_of(name: str) -> Any:
    return {"BOOL": np.bool_, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}.get(
        name, name.lower()
    )


@pytest.mark.parametrize(("datatype", "value"), [("INT8", 128), ("INT8", -129), ("UINT8", 256)])
def test_what_a_datatype_cannot_hold_is_refused(datatype: str, value: int) -> None:
    message = CLASSES["ModelInferRequest"](model_name="mlp")
    tensor = message.inputs.add(name="x", datatype=datatype, shape=[1, 2])
    getattr(tensor.contents, TYPED[datatype]).extend([0, value])
    with pytest.raises(RequestError, match=f"out of the range of {datatype}"):
        _by_grpc(ECHO[datatype], message)


def test_missing_values_and_texts_of_a_table() -> None:
    message = CLASSES["ModelInferRequest"](model_name="mlp")
    age = message.inputs.add(name="age", datatype="FP32", shape=[2, 1])
    age.contents.fp32_contents.extend([20, float("nan")])
    city = message.inputs.add(name="city", datatype="BYTES", shape=[2, 1])
    city.contents.bytes_contents.extend(["دبي".encode(), b""])
    found = _by_grpc(TABLE, message)
    score, label = found.outputs
    assert list(score.contents.fp32_contents) == [20, 40]
    assert list(label.contents.bytes_contents) == ["دبي".encode(), b""]
    message.outputs.add(name="label")
    assert [each.name for each in _by_grpc(TABLE, message).outputs] == ["label"]
    city.contents.bytes_contents[0] = b"\xff"
    with pytest.raises(RequestError, match="isn't UTF-8"):
        _by_grpc(TABLE, message)


@given(data=st.binary(max_size=300))
@settings(max_examples=examples(150))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for methods in METHODS.values():
        for method in methods.values():
            with contextlib.suppress(RequestError):
                asked = method.ask(data)
                if asked.header_length is not None:
                    MLP.schema.read(asked.body, asked.header_length)


# Frames: where another may be put in between.

BLOCK = b"\x88"


@given(
    st.lists(
        st.one_of(
            st.builds(lambda size: [frame(raw_h2.DATA, 0, 1, bytes(size))], st.integers(0, 40)),
            st.just([frame(raw_h2.HEADERS, raw_h2.END_HEADERS, 1, BLOCK)]),
            st.builds(
                lambda more: [
                    frame(raw_h2.HEADERS, 0, 1, BLOCK),
                    *[frame(raw_h2.CONTINUATION, 0, 1, b"")] * more,
                    frame(raw_h2.CONTINUATION, raw_h2.END_HEADERS, 1, b""),
                ],
                st.integers(0, 3),
            ),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_a_farewell_stands_between_frames(groups: list[list[bytes]], data: Any) -> None:
    """However the stream is cut, it is where a frame ends and no block of headers goes on."""
    stream = b"".join(b"".join(group) for group in groups)
    places, at = set[int](), 0
    for group in groups:
        at += len(b"".join(group))
        places.add(at)
    frames, position, found = Frames(), 0, None
    wanted_from = data.draw(st.integers(0, len(stream)))
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        place = frames.follow(stream[position : position + size], position >= wanted_from)
        if place is not None and found is None:
            found = position + place
        position += size
        assert frames.between == (position in places)
    assert found is None or found in places
    assert frame(raw_h2.GOAWAY, 0, 0, struct.pack(">II", 2**31 - 1, 0)) == GOAWAY


# The relay: a client that catches up when the gRPC process has left already.


class Transport:
    """What a relay needs of a transport; one that is closed can't be resumed."""

    def __init__(self) -> None:
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0 if name == "get_write_buffer_size" else None

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def resume_reading(self) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")

    pause_reading = resume_reading

    def close(self) -> None:
        self.closed = True


def test_a_slow_client_may_catch_up_after_the_process_has_left(site: Site) -> None:
    async def run() -> None:
        _, _, _, service = _front(site)
        relay = Relay(service, cast("Any", Transport()), lambda: None)
        inner = Transport()
        relay._inner = cast("Any", inner)
        relay.pause_writing()
        inner.close()
        relay.close()
        farewell = relay.deadline
        relay.resume_writing()
        assert relay.deadline == farewell
        relay.pause_writing()

    asyncio.run(run())


def test_a_relay_counts_for_the_two_descriptors_that_it_takes(site: Site) -> None:
    async def run() -> None:
        _, _, _, service = _front(site)
        service.max_connections = 4
        relays = [Relay(service, cast("Any", Transport()), lambda: None) for _ in range(2)]
        Connection(service).connection_made(cast("Any", Transport()))
        assert (len(service.connections), service.counters.refused_connections) == (2, 1)
        for relay in relays:
            relay.connection_lost(None)
        Connection(service).connection_made(cast("Any", Transport()))
        assert (len(service.connections), service.counters.refused_connections) == (1, 1)

    asyncio.run(run())


def test_a_name_is_nobodys_once_its_end_is_closed(site: Site) -> None:
    """Its client may still be taking the last bytes; who binds the name then is somebody else."""

    async def run() -> None:
        _, _, _, service = _front(site)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        gone: list[bool] = []
        relay = Relay(service, cast("Any", Transport()), lambda: gone.append(True))
        await relay.join(ours)
        theirs.close()
        async with asyncio.timeout(20):
            while not gone:
                await asyncio.sleep(0.01)
        assert relay in service.connections

    asyncio.run(run())


# Slow messages: who sends most of them loses one.


async def _reads(callers: list[str], most: int, sweeps: int) -> list[str]:
    reads = Reads(most, 60)
    ended: list[str] = []

    async def read(call: int, caller: str) -> None:
        try:
            async with reads.one(call, caller):
                await asyncio.sleep(3600)
        except RequestError as error:
            ended.append(f"{caller} {error.status}")

    tasks = [asyncio.create_task(read(*each)) for each in enumerate(callers)]
    await asyncio.sleep(0)
    for _ in range(sweeps):
        reads.sweep()
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return ended


def test_messages_that_come_slowly_are_shared_fairly() -> None:
    assert asyncio.run(_reads(["a"] * 5, 2, 2)) == []
    assert asyncio.run(_reads(["a"] * 5, 2, 4)) == ["a 503"] * 3
    assert asyncio.run(_reads(["a", "b", "a", "a", "b"], 3, 8)) == ["a 503"] * 2
    assert asyncio.run(_reads(["a", "b"], 2, 8)) == []


# The queue: a deadline is looked at before it, and a call that is given up leaves it.


class Inner:
    """A gRPC process that says what a test has it say."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.channel = self

    def send(self, kind: int, payload: bytes) -> None:
        assert kind == calls.ANSWER
        self.sent.append(calls.unpack(payload)[0])


class Peer:
    """What a front needs of a relay."""

    certificate = None
    client = b'"127.0.0.1:1"'
    calls = 0
    answers = 0


class Held:
    """Makes the model's runs wait for a sign, in their thread."""

    def __init__(self, served: Any) -> None:
        self.go = threading.Event()
        run = served.run
        served.run = lambda inference: (self.go.wait(20), run(inference))[1]
        served.expected = [1.0] * 32


TOGETHER = Plan(8, "on: for the test")


def _front(site: Site, batching: Plan | None = None) -> tuple[front.Front, Inner, Held, Service]:
    configuration = service_settings.read(site.config)
    loaded = model.load(
        models.mlp(), name="mlp", version="1", manifest={}, threads=1,
        limits=configuration.limits,
    )  # fmt: skip
    held = Held(loaded)

    async def no_metrics() -> bytes:
        return b""

    service = Service(
        configuration, model=loaded, authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1), threads=1, metrics=no_metrics, batching=batching,
    )  # fmt: skip
    made = front.Front(service)
    inner = Inner()
    made._process = cast("Any", inner)
    made._relays["known"] = cast("Any", Peer())
    return made, inner, held, service


def _head(site: Site, call_id: int, **more: Any) -> tuple[dict[str, Any], bytes]:
    asked = MODEL_INFER.ask(row("mlp").SerializeToString())
    head = {
        "call": call_id, "peer": "known", "path": INFER, "token": f"Bearer {site.token()}",
        "place": "/v2/models/{}/infer", "named": None, "key": None,
        "method": asked.method, "url": asked.url, "header": asked.header_length, "left": None,
    }  # fmt: skip
    return head | more, asked.body


@pytest.mark.parametrize("batching", [None, TOGETHER], ids=["one by one", "together"])
def test_the_queue_of_calls(site: Site, batching: Plan | None) -> None:
    async def run() -> None:
        made, inner, held, service = _front(site, batching)

        def ask(call_id: int, **more: Any) -> None:
            made.received(calls.CALL, calls.pack(*_head(site, call_id, **more)))

        ask(1)
        ask(2)
        await asyncio.sleep(0.05)
        assert (service.runs.waiting, inner.sent) == (2, [])
        held_bytes = service.bodies.held
        made.received(calls.CANCEL, calls.pack({"call": 2}))
        await asyncio.sleep(0.05)
        assert service.runs.waiting == 1
        assert service.bodies.held == held_bytes // 2
        # Who isn't known to the worker is nobody, whatever the process says.
        ask(4, peer="unknown")
        assert (inner.sent[-1]["call"], inner.sent[-1]["status"]) == (4, 503)
        ask(5, token=None)
        assert (inner.sent[-1]["call"], inner.sent[-1]["status"]) == (5, 401)
        held.go.set()
        async with asyncio.timeout(20):
            while not any(each["call"] == 1 for each in inner.sent):
                await asyncio.sleep(0.01)
        assert (service.runs.waiting, service.bodies.held) == (0, 0)
        assert not [each for each in inner.sent if each["call"] == 2]

    asyncio.run(run())


@pytest.mark.parametrize("batching", [None, TOGETHER], ids=["one by one", "together"])
def test_a_call_that_is_given_up_at_once_leaves_the_queue(
    site: Site, batching: Plan | None
) -> None:
    """A busy worker finds a call and its end together, before the call's task has begun."""

    async def run() -> None:
        made, inner, held, service = _front(site, batching)
        relay = made._relays["known"]
        for call_id in range(1, 31):
            made.received(calls.CALL, calls.pack(*_head(site, call_id)))
            made.received(calls.CANCEL, calls.pack({"call": call_id}))
        await asyncio.sleep(0.05)
        assert (service.runs.waiting, service.bodies.held, relay.calls) == (0, 0, 0)
        assert not made._tasks
        # The same where the process ends.
        made.received(calls.CALL, calls.pack(*_head(site, 41)))
        made.ended(cast("Any", Inner()))
        await asyncio.sleep(0.05)
        assert (service.runs.waiting, service.bodies.held, relay.calls) == (0, 0, 0)
        held.go.set()
        made.received(calls.CALL, calls.pack(*_head(site, 42)))
        async with asyncio.timeout(20):
            while not inner.sent:
                await asyncio.sleep(0.01)
        assert (inner.sent[-1]["call"], inner.sent[-1]["status"]) == (42, 200)

    asyncio.run(run())


def test_a_deadline_is_looked_at_before_the_queue(site: Site) -> None:
    async def run() -> None:
        made, inner, held, service = _front(site)
        for call_id in range(3):
            made.received(calls.CALL, calls.pack(*_head(site, call_id)))
        await asyncio.sleep(0.05)
        made.received(calls.CALL, calls.pack(*_head(site, 9, left=1.5)))
        assert inner.sent[-1]["status"] == 408
        assert inner.sent[-1]["error"].startswith("1500 ms are left of the deadline, and 3000 ms")
        # Who asks whether the server lives doesn't queue.
        live = {"method": "GET", "url": "/v2/health/live", "place": "/v2/health/live"}
        made.received(calls.CALL, calls.pack(_head(site, 11, left=1.5, **live)[0]))
        assert (inner.sent[-1]["call"], inner.sent[-1]["status"]) == (11, 200)
        made.received(calls.CALL, calls.pack(*_head(site, 10, left=60)))
        assert service.runs.waiting == 4
        held.go.set()
        async with asyncio.timeout(20):
            while service.runs.waiting:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_call_whose_deadline_ends_in_the_queue_is_not_run(site: Site) -> None:
    async def run() -> None:
        made, inner, held, service = _front(site, TOGETHER)
        cast("Any", service.model).expected = [0.001] * 32  # longer than anybody thought
        made.received(calls.CALL, calls.pack(*_head(site, 1)))
        await asyncio.sleep(0.05)
        # The gRPC process tells of the end, too: this is who comes to the worker first.
        made.received(calls.CALL, calls.pack(*_head(site, 2, left=0.03)))
        made.received(calls.CALL, calls.pack(*_head(site, 3, left=60)))
        await asyncio.sleep(0.05)
        held.go.set()
        async with asyncio.timeout(20):
            while service.runs.waiting:
                await asyncio.sleep(0.01)
        statuses = {each["call"]: each["status"] for each in inner.sent}
        assert statuses == {1: 200, 2: 408, 3: 200}
        assert (service.counters.batches, service.bodies.held) == ({"1": 2}, 0)

    asyncio.run(run())


# Versions change, and the server leaves.


@pytest.mark.slow
def test_versions_change_under_load_without_a_failed_call(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    token = site.token()
    stop = threading.Event()
    done: list[str] = []
    failed: list[str] = []

    def load() -> None:
        with Client(server, token=token) as mine:
            while not stop.is_set():
                try:
                    done.append(mine.infer(row(mine.model, raw=True)).model_version)
                except grpc.RpcError as error:
                    failed.append(f"{error.code()} {error.details()}")  # type: ignore[attr-defined]

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(1, 4):
            server.serving(site.publish(models.mlp(seed)))
            version = str(seed + 1)
            deadline = time.monotonic() + 30
            while version not in done and time.monotonic() < deadline:
                time.sleep(0.02)
        # Old workers have gone, as nobody stays with them.
        server.wait(lambda s: len(s["workers"]) == 1, "an old worker stays")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert set(done) == {"1", "2", "3", "4"}
    assert len(processes(server)) == 1
    assert server.stop() == 0
    assert "Traceback" not in server.errors.read_text()


def test_a_server_that_leaves_answers_what_it_has(site: Site, start: Start) -> None:
    version = site.publish(models.heavy())
    server = start(site).serving(version)
    with Client(server, token=site.token()) as client:
        client.infer(row(client.model))
        ready = client.channel.unary_unary(INFER)
        under_way = [
            ready.future(row(client.model).SerializeToString(), metadata=client.metadata)
            for _ in range(20)
        ]
        under_way[0].result(20)
        assert server.stop() == 0
        codes = {each.code().name for each in under_way}
    assert codes == {"OK"}
