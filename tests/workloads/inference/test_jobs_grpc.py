"""Jobs by gRPC: the same jobs as HTTP's, and nothing that a client sends is the server's fault."""

from __future__ import annotations

import json
import random
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.inference import rpc
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.rpc.messages import CLASSES, INFERENCE, JOBS
from falaj.workloads.inference.rpc.translation import METHODS, Asked, Told
from tests.examples import examples
from tests.workloads.inference import models
from tests.workloads.inference.grpc_calls import Client, processes, refusal, row
from tests.workloads.inference.serving import PATIENCE, Server, Site, started
from tests.workloads.inference.serving import row as http_row
from tests.workloads.inference.test_jobs_served import Caller, token_of

VALUES = np.random.default_rng(7).random(64, dtype=np.float32).tolist()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("jobs-grpc") / "site")
    limits = {"max_body_bytes": 64 * 1024, "max_rows": 64}
    site.write(jobs={"keep_hours": 24}, limits=limits)
    with started(site, site.publish(models.mlp())) as server:
        yield server
    assert "Traceback" not in server.errors.read_text()


class Asker(Client):
    """A client of jobs."""

    def submit(self, message: Any, key: str | None = None) -> Any:
        metadata = () if key is None else (("idempotency-key", key),)
        answer = self.raw(
            "SubmitJob", message.SerializeToString(), service=JOBS, metadata=metadata
        )
        return CLASSES["Job"].FromString(answer)

    def about(self, method: str, identifier: str, model: str = "mlp") -> bytes:
        given = CLASSES["JobRequest"](model_name=model, id=identifier)
        return self.raw(method, given.SerializeToString(), service=JOBS)

    def state(self, identifier: str) -> Any:
        return CLASSES["Job"].FromString(self.about("GetJob", identifier))

    def result(self, identifier: str) -> Any:
        return CLASSES["ModelInferResponse"].FromString(self.about("GetJobResult", identifier))

    def wait(self, identifier: str) -> Any:
        until = time.monotonic() + PATIENCE
        while (found := self.state(identifier)).state in ("queued", "running"):
            assert time.monotonic() < until, found
            time.sleep(0.02)
        return found


@pytest.fixture
def asker(served: Server) -> Iterator[Asker]:
    with Asker(served, token=token_of(served.site, "tester")) as asker:
        yield asker
        asker.infer(row(asker.model))


def numbers(answer: Any) -> list[float]:
    (blob,) = answer.raw_output_contents
    return list(struct.unpack("<10f", blob))


# -- what is answered --------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
def test_a_job_answers_what_the_inference_does(asker: Asker, raw: bool) -> None:
    made = asker.submit(row("mlp", VALUES, raw=raw, id="42", model_version="1"))
    assert made.state == "queued"
    assert made.created < made.expires
    done = asker.wait(made.id)
    assert (done.id, done.state, done.error) == (made.id, "done", "")
    found = asker.result(made.id)
    assert (found.model_name, found.model_version, found.id) == ("mlp", "1", "42")
    assert [list(each.shape) for each in found.outputs] == [[1, 10]]
    wanted = asker.infer(row("mlp", VALUES, raw=True))
    np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=1e-6)


def test_a_job_of_one_protocol_is_one_of_the_other(served: Server, asker: Asker) -> None:
    caller = Caller(served)
    made = caller.send(http_row(VALUES))
    assert asker.wait(made).state == "done"
    wanted = json.loads(caller.result(made)[2])["outputs"][0]["data"]
    np.testing.assert_allclose(numbers(asker.result(made)), wanted, rtol=1e-6)
    other = asker.submit(row("mlp", VALUES)).id
    assert caller.wait(other) == "done"
    status, headers, content = caller.result(other)
    assert status == 200
    length = int(headers["Inference-Header-Content-Length"])
    np.testing.assert_allclose(struct.unpack("<10f", content[length:]), wanted, rtol=1e-6)


def test_a_request_that_is_sent_again_is_the_same_job(asker: Asker) -> None:
    first = asker.submit(row("mlp", VALUES), key="once")
    assert asker.submit(row("mlp", VALUES), key="once").id == first.id
    code, said = refusal(asker.submit, row("mlp"), key="once")
    assert (code, "was another request's" in said) == ("INVALID_ARGUMENT", True)
    assert asker.submit(row("mlp", VALUES)).id != first.id


@pytest.mark.parametrize("name", ["idempotency-key", "x-request-id"])
def test_what_is_named_twice_is_refused_as_by_http(asker: Asker, name: str) -> None:
    code, said = refusal(
        asker.raw, "SubmitJob", row("mlp").SerializeToString(), service=JOBS,
        metadata=((name, "a"), (name, "b")),
    )  # fmt: skip
    assert (code, said) == ("INVALID_ARGUMENT", f"{name} is in the metadata more than once")


def test_a_removed_job_is_gone(asker: Asker) -> None:
    made = asker.submit(row("mlp")).id
    removed = CLASSES["Job"].FromString(asker.about("RemoveJob", made))
    assert (removed.id, removed.state) == (made, "removed")
    for method in ("GetJob", "GetJobResult", "RemoveJob"):
        assert refusal(asker.about, method, made)[0] == "NOT_FOUND"


def test_calls_are_recorded_with_their_caller(served: Server, asker: Asker) -> None:
    asker.state(asker.submit(row("mlp")).id)
    log = served.site.logs / "access.jsonl"
    until = time.monotonic() + PATIENCE
    wanted = {f"/{JOBS}/SubmitJob", f"/{JOBS}/GetJob"}
    found: set[str] = set()
    while not wanted <= found:
        assert time.monotonic() < until, found
        time.sleep(0.05)
        # It is there from the first flush on.
        lines = log.read_text().splitlines() if log.exists() else []
        told = map(json.loads, lines)
        found = {each["path"] for each in told if each["subject"] == "tester"}


# -- who is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS[JOBS])
def test_without_credentials_or_their_scope_nothing_is_told(served: Server, method: str) -> None:
    with Asker(served) as stranger:
        assert refusal(stranger.about, method, "x")[0] == "UNAUTHENTICATED"
    with Asker(served, token=token_of(served.site, "watcher", "observe")) as watcher:
        assert refusal(watcher.about, method, "x")[0] == "PERMISSION_DENIED"


def test_a_job_is_its_callers_alone(served: Server, asker: Asker) -> None:
    made = asker.submit(row("mlp")).id
    asker.wait(made)
    with Asker(served, token=token_of(served.site, "another")) as another:
        for method in ("GetJob", "GetJobResult", "RemoveJob"):
            code, said = refusal(another.about, method, made)
            assert (code, "you have no such job" in said) == ("NOT_FOUND", True)
    # The same name in a certificate is another caller's.
    with Asker(served, certificate="caller") as known:
        assert refusal(known.about, "GetJob", made)[0] == "NOT_FOUND"
        assert known.wait(known.submit(row("mlp")).id).state == "done"
    assert asker.state(made).state == "done"


def test_where_no_jobs_are_taken(running: Server) -> None:
    with Asker(running, token=running.site.token("predict")) as asker:
        code, said = refusal(asker.submit, row("mlp"))
        assert (code, "no jobs are taken here" in said) == ("NOT_FOUND", True)


# -- what is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (row("other"), "NOT_FOUND", "unknown model 'other'"),
        (row("mlp", model_version="7"), "NOT_FOUND", "version '7'"),
        (row("mlp", [0.5] * 63), "INVALID_ARGUMENT", "63 elements in data"),
        (row("mlp", [float("nan")] * 64), "INVALID_ARGUMENT", "NaN or infinite"),
        (CLASSES["ModelInferRequest"](model_name="mlp"), "INVALID_ARGUMENT", "list of inputs"),
        (row("mlp/jobs"), "NOT_FOUND", "unknown model"),
    ],
)
def test_what_can_not_be_run_is_not_kept(
    asker: Asker, message: Any, code: str, words: str
) -> None:
    found, said = refusal(asker.submit, message)
    assert (found, words in said) == (code, True), said


@pytest.mark.parametrize("key", ["", "x" * 256, "two words"])
def test_keys_that_are_none(asker: Asker, key: str) -> None:
    code, said = refusal(asker.submit, row("mlp"), key=key)
    assert (code, "Idempotency-Key must be" in said) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("method", ["GetJob", "GetJobResult", "RemoveJob"])
@pytest.mark.parametrize(
    ("identifier", "model", "code"),
    [
        ("", "mlp", "INVALID_ARGUMENT"),
        ("0" * 32, "mlp", "NOT_FOUND"),
        ("x/result", "mlp", "NOT_FOUND"),
        ("../" * 40, "mlp", "NOT_FOUND"),
        ("\0دبي%2F?x#y", "mlp", "NOT_FOUND"),
        ("x" * 5000, "mlp", "NOT_FOUND"),
        ("0" * 32, "other", "NOT_FOUND"),
        ("0" * 32, "", "NOT_FOUND"),
    ],
)
def test_ids_that_are_none(
    asker: Asker, method: str, identifier: str, model: str, code: str
) -> None:
    assert refusal(asker.about, method, identifier, model)[0] == code


def test_a_result_before_its_time(site: Site) -> None:
    """And a job that is removed while it runs leaves the worker to the others."""
    site.write(jobs={"keep_hours": 1})
    content = models.counting()
    with started(site, site.publish(content)) as server:
        message = CLASSES["ModelInferRequest"](model_name="mlp")
        tensor = message.inputs.add(name="steps", datatype="INT64", shape=[1, 1])
        tensor.contents.int64_contents.append(2_000_000_000)
        with Asker(server, token=token_of(site, "tester")) as asker:
            made = asker.submit(message).id
            until = time.monotonic() + PATIENCE
            while asker.state(made).state != "running":
                assert time.monotonic() < until
                time.sleep(0.02)
            code, said = refusal(asker.result, made)
            assert (code, "the job is running" in said) == ("FAILED_PRECONDITION", True)
            asker.about("RemoveJob", made)
            tensor.contents.int64_contents[0] = 3
            other = asker.submit(message).id
            assert asker.wait(other).state == "done"
            assert asker.result(other).raw_output_contents[0] == struct.pack("<q", 6)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_get_clean_codes(served: Server, asker: Asker, seed: int) -> None:
    draw = random.Random(seed)
    made = asker.submit(row("mlp")).id
    about = CLASSES["JobRequest"](model_name="mlp", id=made).SerializeToString()
    valid: dict[str, Any] = dict.fromkeys(METHODS[JOBS], about) | {
        "SubmitJob": row("mlp", raw=bool(seed % 2)).SerializeToString()
    }
    (before,) = processes(served)
    for _ in range(80):
        method = draw.choice(list(valid))
        known: bytes = valid[method]
        data = bytearray(known if draw.random() < 0.8 else draw.randbytes(draw.randrange(200)))
        for _ in range(draw.randrange(1, 6)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        key = "".join(chr(draw.randrange(33, 127)) for _ in range(draw.randrange(1, 9)))
        try:
            asker.raw(method, bytes(data), service=JOBS, metadata=(("idempotency-key", key),))
        except grpc.RpcError as error:
            assert error.code().name in {  # type: ignore[attr-defined]
                "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION",
            }, error  # fmt: skip
    assert [each.pid for each in processes(served)] == [before.pid]


# -- messages ----------------------------------------------------------------------------------


@given(data=st.binary(max_size=200))
@settings(max_examples=examples(100))
def test_any_bytes_are_a_path_of_jobs_or_refused(data: bytes) -> None:
    for name, method in METHODS[JOBS].items():
        try:
            asked = method.ask(data)
        except RequestError as error:
            assert error.status == 400
            continue
        assert asked.url.startswith("/v2/models/")
        assert asked.method == {"SubmitJob": "POST", "RemoveJob": "DELETE"}.get(name, "GET")


_DATA = {
    "FP32": st.none() | st.floats(width=32, allow_nan=False),
    "FP16": st.none() | st.floats(width=16, allow_nan=False, allow_infinity=False),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT8": st.integers(0, 255),
    "BOOL": st.booleans(),
    "BYTES": st.text(max_size=5),
}


@given(data=st.data(), datatype=st.sampled_from(sorted(_DATA)))
@settings(max_examples=examples(60))
def test_an_answer_in_json_is_one_in_binary(data: Any, datatype: str) -> None:
    """What a job of HTTP has answered is told by gRPC as well."""
    values = data.draw(st.lists(_DATA[datatype], max_size=6))
    output = {"name": "y", "datatype": datatype, "shape": [len(values)], "data": values}
    body = json.dumps({"model_name": "m", "model_version": "1", "outputs": [output]}).encode()
    told = METHODS[JOBS]["GetJobResult"].tell(Asked("GET", ""), Told(200, body))
    (blob,) = CLASSES["ModelInferResponse"].FromString(told).raw_output_contents
    if datatype == "BYTES":
        wanted = b"".join(struct.pack("<I", len(e)) + e for e in map(str.encode, values))
        assert blob == wanted
        return
    kinds = {"FP32": "f4", "FP16": "f2", "INT64": "i8", "UINT8": "u1", "BOOL": "?"}
    found = np.frombuffer(blob, f"<{kinds[datatype]}" if datatype != "BOOL" else "?")
    wanted_array = np.array([np.nan if e is None else e for e in values], found.dtype)
    np.testing.assert_array_equal(found, wanted_array)


def test_the_file_for_makers_of_clients_says_the_same() -> None:
    text = (Path(rpc.__file__).parent / "jobs.proto").read_text()
    package = re.search(r"^package (\S+);$", text, re.MULTILINE)
    assert package is not None
    assert f"{package[1]}.Jobs" == JOBS
    methods = re.findall(r"rpc (\w+)\((\S+)\) returns \((\S+)\);", text)
    assert [name for name, *_ in methods] == list(METHODS[JOBS])
    foreign = INFERENCE.partition(".")[0]
    for _, *kinds in methods:
        for kind in kinds:
            assert kind.removeprefix(f".{foreign}.") in CLASSES
    said = dict(re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    assert said.keys() == {"JobRequest", "Job"}
    for name, body in said.items():
        fields = re.findall(r"^  (\w+) (\w+) = (\d+);$", body, re.MULTILINE)
        ours = CLASSES[name].DESCRIPTOR.fields
        assert [(each, int(number)) for _, each, number in fields] == [
            (each.name, each.number) for each in ours
        ]
        assert {kind for kind, *_ in fields} == {"string"}
        assert {each.type for each in ours} == {ours[0].TYPE_STRING}
