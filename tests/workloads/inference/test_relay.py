"""Requests written anew for another server, and its answers believed only as far as checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.models import remote
from falaj.workloads.inference.models.remote import AnswerError, Remote, RemoteError, schema_of
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.inference.settings import Limits
from tests.workloads.inference import models
from tests.workloads.inference.runtime import Runtime, listen, runtime
from tests.workloads.inference.serving import row

LIMITS = Limits(max_body_bytes=64 * 1024, max_rows=8)


def made_of(content: bytes) -> Schema:
    return schema_of("m", "1", models.fields(content), LIMITS)


SCHEMA = made_of(models.mlp())
LABELS = made_of(models.classifier())


def asked(**more: Any) -> Inference:
    return SCHEMA.read(orjson.dumps(row(**more)), None)


def image(rows: int = 2) -> Inference:
    tensor = {"name": "image", "datatype": "FP32", "shape": [rows, 1, 8, 8],
              "data": [0.5] * 64 * rows}  # fmt: skip
    return LABELS.read(orjson.dumps({"inputs": [tensor]}), None)


def answer(*outputs: dict[str, Any], blobs: bytes = b"") -> tuple[bytes, int]:
    head = orjson.dumps({"model_name": "m", "outputs": list(outputs)})
    return head + blobs, len(head)


def probabilities(data: Any = None, **more: Any) -> dict[str, Any]:
    found = {"name": "probabilities", "datatype": "FP32", "shape": [1, 10]}
    return {**found, **({"data": [0.1] * 10} if data is None else data), **more}


def test_a_request_is_what_was_checked_and_not_what_was_sent() -> None:
    """Of a key that is there twice, another parser may take the other one."""
    one = orjson.dumps(row()["inputs"])
    two = orjson.dumps([{"name": "input", "datatype": "FP32", "shape": [1, 64], "data": [1.0] * 64,
                         "parameters": {"custom": "x"}}])  # fmt: skip
    sent = b'{"inputs":%b,"inputs":%b,"parameters":{"sequence_id":7}}' % (one, two)
    inference = SCHEMA.read(sent, None)
    body, length = remote.encode(SCHEMA, inference)
    document = orjson.loads(body[:length])
    assert body.count(b'"inputs"') == 1
    assert set(document) == {"inputs", "outputs"}
    assert document["inputs"][0]["parameters"] == {"binary_data_size": 256}
    assert body[length:] == np.ones(64, np.float32).tobytes()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8))
def test_texts_come_through(texts: list[str]) -> None:
    schema = made_of(models.table())
    tensor = {"name": "city", "datatype": "BYTES", "shape": [len(texts), 1], "data": texts}
    age = {"name": "age", "datatype": "FP32", "shape": [len(texts), 1], "data": [1] * len(texts)}
    inference = schema.read(orjson.dumps({"inputs": [tensor, age]}), None)
    body, length = remote.encode(schema, inference)
    again = schema.read(body, length)
    assert again.feed["city"].tolist() == inference.feed["city"].tolist()
    assert again.rows == len(texts)


BROKEN: list[tuple[bytes, int | None, str]] = [
    (b"", None, "malformed"),
    (b"not json", None, "malformed"),
    (b"[]", None, "malformed"),
    (b'{"outputs":null}', None, "malformed"),
    (b'{"outputs":[1]}', None, "malformed"),
    (b'{"outputs":[]}', None, "lacks"),
    (b"{}", 99, "its JSON part has 99 bytes"),
    (*answer(probabilities(name="other")), "malformed"),
    (*answer(probabilities(datatype="FP64")), "FP64, not FP32"),
    (*answer(probabilities(shape=[1, 11])), "doesn't fit"),
    (*answer(probabilities(shape=[-1, 10])), "doesn't fit"),
    (*answer(probabilities(shape=[2, 10], data={"data": [0.1] * 20})), "2 rows for 1"),
    (*answer(probabilities(shape=[2**62, 10])), "rows"),
    (*answer(probabilities({"data": [0.1] * 9})), "9 elements"),
    (*answer(probabilities({"data": ["x"] * 10})), "must be numbers"),
    (*answer(probabilities({"parameters": {"binary_data_size": 40}}), blobs=b"\0" * 39),
     "39 bytes"),
    (*answer(probabilities({"parameters": {"binary_data_size": "40"}})), "malformed"),
    (*answer(probabilities({"parameters": {"shared_memory_region": "r"}})), "malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "length", "words"), BROKEN)
def test_answers_that_are_none_are_not_believed(
    body: bytes, length: int | None, words: str
) -> None:
    with pytest.raises(AnswerError, match=words):
        remote.decode(SCHEMA, asked(), body, length)


@given(st.binary(max_size=300), st.none() | st.integers(0, 400))
def test_any_answer_is_read_or_refused(body: bytes, length: int | None) -> None:
    with pytest.raises(AnswerError):
        remote.decode(SCHEMA, asked(), body, length)


def test_one_value_a_row_comes_with_triton_s_size() -> None:
    inference = image()
    blob = np.array([3, 4], np.int64).tobytes()
    head = {"name": "label", "datatype": "INT64", "parameters": {"binary_data_size": 16}}
    inference.outputs = ["label"]
    for shape in ([2], [2, 1]):
        body, length = answer({**head, "shape": shape}, blobs=blob)
        (label,) = remote.decode(LABELS, inference, body, length)
        assert label.tolist() == [3, 4]


# -- over a connection ---------------------------------------------------------------------------


def with_runtime(
    content: bytes, schema: Schema, use: Callable[[Remote, Runtime], Awaitable[None]],
    *, seconds: float = 10, slow: float = 0,
) -> None:  # fmt: skip
    async def run() -> None:
        made = runtime(content, schema.name, schema.version, slow=slow)
        server, port = await listen(made)
        remote = Remote(f"http://127.0.0.1:{port}", schema, timeout_seconds=seconds, connections=8)
        try:
            await use(remote, made)
        finally:
            await remote.close()
            server.close()

    asyncio.run(run())


def test_a_remote_run_is_the_local_one() -> None:
    async def use(remote: Remote, made: Runtime) -> None:
        inference = image()
        here = made.model.run(inference)
        there = await remote.infer(inference)
        for one, other in zip(here, there, strict=True):
            assert np.array_equal(np.asarray(one), other)
        inference.outputs = ["label"]
        (label,) = await remote.infer(inference)
        assert label.shape == (2,)
        assert await remote.is_ready()
        assert await remote.statistics() == (0, 0.0)
        # Nothing of the caller goes to the runtime.
        assert all(b"authorization" not in each.headers for each in made.seen)

    with_runtime(models.classifier(), LABELS, use)


def test_a_slow_runtime_is_left_in_time() -> None:
    async def use(remote: Remote, made: Runtime) -> None:
        del made
        with pytest.raises(RemoteError, match="in time"):
            await remote.infer(asked())
        assert remote.running == 0

    with_runtime(models.mlp(), SCHEMA, use, seconds=0.2, slow=1.0)


def test_another_version_is_refused_and_a_missing_server_told() -> None:
    async def use(remote: Remote, made: Runtime) -> None:
        other = schema_of("m", "2", models.fields(models.mlp()), LIMITS)
        there = Remote(remote.url, other, timeout_seconds=5, connections=1)
        with pytest.raises(RemoteError, match="404"):
            await there.infer(asked())
        assert not await there.is_ready()
        await there.close()
        gone = Remote("http://127.0.0.1:1", SCHEMA, timeout_seconds=5, connections=1)
        with pytest.raises(RemoteError, match="can't be reached"):
            await gone.infer(asked())
        assert not await gone.is_ready()
        assert await gone.statistics() is None
        await gone.close()

    with_runtime(models.mlp(), SCHEMA, use)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "malformed"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
         "302"),
        (b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: x\r\nContent-Length: 2\r\n\r\n{}",
         "can't be used"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 2_000_000, "more than"),
        (b"garbage\r\n\r\n", "can't be reached"),
        (b"", "can't be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}", "can't be reached"),
    ],
)  # fmt: skip
def test_servers_that_misbehave_are_errors_in_words(reply: bytes, words: str) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(misbehave, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        remote = Remote(f"http://127.0.0.1:{port}", SCHEMA, timeout_seconds=5, connections=1)
        with pytest.raises(RemoteError, match=words):
            await remote.infer(asked())
        await remote.close()
        server.close()

    asyncio.run(run())


def test_no_answer_is_asked_to_be_compressed() -> None:
    """Triton would: and the length of the JSON part is then not that of the bytes that came."""
    heads: list[bytes] = []

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        remote = Remote(f"http://127.0.0.1:{port}", SCHEMA, timeout_seconds=5, connections=1)
        with pytest.raises(RemoteError):
            await remote.infer(asked())
        await remote.close()
        server.close()

    asyncio.run(run())
    assert b"\r\nAccept-Encoding: identity\r\n" in heads[0]
    assert b"deflate" not in heads[0]
