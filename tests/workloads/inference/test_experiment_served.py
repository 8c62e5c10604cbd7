"""An experiment beside a running server: who answers, what is counted, and what nobody notices."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.inference.experiment.arms import arm_of
from falaj.workloads.inference.experiment.service import MOST_BYTES
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.rpc.messages import CLASSES
from tests.workloads.inference import models
from tests.workloads.inference.grpc_calls import Client
from tests.workloads.inference.serving import Server, Site, call, row

INFER = "/v2/models/mlp/infer"
NAME, SHARE = "prices", 40


def turned(content: bytes) -> bytes:
    """The same network with the signs of its numbers exchanged, which fails on great inputs."""
    model = onnx.load_from_string(content)
    graph = model.graph
    for each in graph.initializer:
        each.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(each), each.name))
    output = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["inner" if each == output else each for each in node.output]
    graph.initializer.append(numpy_helper.from_array(np.ones(100, np.float32), "ones"))
    graph.node.extend(
        [
            helper.make_node("ReduceMax", [graph.input[0].name], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["place"], to=TensorProto.INT64),
            helper.make_node("Gather", ["ones", "place"], ["one"]),
            helper.make_node("Mul", ["inner", "one"], [output]),
        ]
    )
    return model.SerializeToString()


def classifying(content: bytes, run: str) -> dict[str, Any]:
    """The manifest's fields of a network whose output is probabilities of digits."""
    found = models.fields(content, run)
    found["outputs"][0]["role"] = "probabilities"
    return found | {"classes": [str(digit) for digit in range(10)]}


@pytest.fixture
def served(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("experiment") / "site")
    wanted: dict[str, Any] = {"key": "X-Customer", "share": SHARE, "name": NAME}
    if (workers := getattr(request, "param", 1)) > 1:
        # However slow the machine, nobody is answered by another version than its own.
        wanted["timeout_ms"] = 60_000
    site.write(experiment=wanted, priorities=True, workers=workers)
    for content, run in ((models.mlp(), "one"), (turned(models.mlp()), "turned")):
        site.publish(content, promote=run == "one", fields=classifying(content, run))
    server = Server(site)
    try:
        yield server.serving(1)
        assert "Traceback" not in server.errors.read_text()
    finally:
        server.kill()


def experiment(server: Server, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    def holds(state: dict[str, Any]) -> Any:
        return state.get("experiment") is not None and condition(state["experiment"])

    return server.wait(holds, "the experiment isn't so")["experiment"]


def begun(server: Server) -> dict[str, Any]:
    """Have version 2 be the candidate, and wait until the workers know."""
    server.site.store.promote("mlp", 2, "candidate")
    found = experiment(server, lambda each: each["state"] == "ready")
    connection, token = server.connect(), server.site.token()
    deadline = time.monotonic() + 30
    while asked(connection, token, arm="candidate")[1] != "2":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def asked(
    connection: HTTPSConnection, token: str, customer: str | None = None, arm: str | None = None
) -> tuple[int, str]:
    headers = {} if customer is None else {"X-Customer": customer}
    headers |= {} if arm is None else {"Falaj-Arm": arm}
    status, answer = call(connection, "POST", INFER, token=token, body=row(), headers=headers)
    return status, answer.get("model_version", answer.get("error"))


def test_a_customer_always_meets_the_same_version(served: Server) -> None:
    site = served.site
    connection, token = served.connect(), site.token()
    # Without a candidate nobody is in an experiment.
    assert asked(connection, token, "a") == (200, "1")
    assert served.state()["experiment"] is None
    begun(served)
    customers = [f"customer {number}" for number in range(40)]
    for _ in range(2):
        for each in customers:
            wanted = "2" if arm_of(NAME, each.encode(), SHARE / 100) == "candidate" else "1"
            assert asked(connection, token, each) == (200, wanted)
    # Without a key, or with an empty one, it is the version that serves.
    for other in (None, "", "  "):
        assert asked(connection, token, other) == (200, "1")
    # A tester chooses.
    assert asked(connection, token, customers[0], "live") == (200, "1")
    assert asked(connection, token, None, "candidate") == (200, "2")
    status, why = asked(connection, token, None, "both")
    assert status == 400
    assert "must be live or candidate" in why
    named = "/v2/models/mlp/versions/1/infer"
    chosen = next(c for c in customers if arm_of(NAME, c.encode(), SHARE / 100) == "candidate")
    headers = {"X-Customer": chosen}
    status, answer = call(connection, "POST", named, token=token, body=row(), headers=headers)
    assert (status, answer["model_version"]) == (200, "1")
    # So is a call by gRPC, whatever its metadata say.
    message = CLASSES["ModelInferRequest"](model_name="mlp")
    message.inputs.add(name="input", datatype="FP32", shape=[1, 64])
    message.raw_input_contents.append(bytes(256))
    metadata = (("x-customer", chosen), ("falaj-arm", "candidate"))
    with Client(served, token=token) as client:
        assert client.infer(message, metadata=metadata).model_version == "1"
    # Binary answers are the candidate's too.
    binary = row(parameters={"binary_data_output": True})
    status, content = call(connection, "POST", INFER, token=token, body=binary, headers=headers)
    assert status == 200
    assert b'"model_version":"2"' in content

    expected = {"live": 0, "candidate": 1}
    for each in customers:
        expected[arm_of(NAME, each.encode(), SHARE / 100)] += 2
    found = experiment(
        served,
        lambda e: {arm: e["arms"][arm]["requests"] for arm in e["arms"]} == expected,
    )
    assert found["fallbacks"] == dict.fromkeys(found["fallbacks"], 0)
    assert found["outside"] >= 4
    assert found["arms"]["candidate"]["mean_seconds"] > 0
    text = call(connection, "GET", "/metrics", token=site.token("observe"))[1].decode()
    of = 'arm="candidate",model="mlp",version="2"'
    assert f"falaj_experiment_requests_total{{{of}}} {expected['candidate']}.0" in text
    assert f"falaj_experiment_request_duration_seconds_count{{{of}}}" in text
    assert 'falaj_inference_rows_total{model="mlp",version="2"}' in text

    # The candidate that is promoted serves, and the experiment is over.
    site.store.promote("mlp", 2)
    served.serving(2)
    served.wait(lambda state: state["experiment"] is None, "there is an experiment still")
    connection = served.connect()
    assert {asked(connection, token, each) for each in customers[:5]} == {(200, "2")}
    assert served.stop() == 0
    assert logs.verify(site.logs)["access_lines"] >= 80
    lines = [json.loads(line) for line in (site.logs / "access.jsonl").read_text().splitlines()]
    assert sum(line.get("version") == 2 for line in lines) >= expected["candidate"]
    records = [json.loads(line) for line in (site.logs / "audit.jsonl").read_text().splitlines()]
    named_by = sum(each.get("candidate", {}).get("tester", 0) for each in records)
    assert named_by >= expected["candidate"]
    events = [each["event"] for each in records if each["event"].startswith("experiment.")]
    assert events == ["experiment.begun", "experiment.ended"]


def test_a_candidate_that_dies_costs_nobody_an_answer(served: Server) -> None:
    connection, token = served.connect(), served.site.token()
    first = begun(served)
    os.kill(first["pid"], signal.SIGSTOP)
    started = time.monotonic()
    assert asked(connection, token, None, "candidate") == (200, "1")
    assert time.monotonic() - started >= 1
    os.kill(first["pid"], signal.SIGKILL)
    for _ in range(20):
        status, version = asked(connection, token, None, "candidate")
        assert (status, version in "12") == (200, True)
    experiment(served, lambda e: e["state"] == "ready" and e["pid"] != first["pid"])
    found = experiment(served, lambda e: e["fallbacks"]["slow"] and e["fallbacks"]["away"])
    assert found["arms"]["candidate"]["errors"] == 0
    served.site.store.withdraw("mlp", "candidate")
    served.wait(lambda state: state["experiment"] is None, "there is an experiment still")
    assert asked(connection, token, None, "candidate") == (200, "1")


def test_what_the_candidate_fails_on_or_refuses_is_the_other_ones_to_answer(
    served: Server,
) -> None:
    site, token = served.site, served.site.token()
    begun(served)
    connection, arm = served.connect(), {"Falaj-Arm": "candidate"}

    def answered(body: Any) -> tuple[int, Any]:
        return call(connection, "POST", INFER, token=token, body=body, headers=arm)

    great = row([1e6] * 64)
    for _ in range(2):
        status, answer = answered(great)
        assert (status, answer["model_version"]) == (200, "1")
    assert answered(row())[1]["model_version"] == "2"
    # What nobody takes is refused by the version that serves, in its own words.
    for wrong in (b"{", {"inputs": []}, row([0.0] * 63)):
        plain = call(connection, "POST", INFER, token=token, body=wrong)
        assert answered(wrong) == plain
        assert plain[0] == 400
    # Whose rights don't reach here, reach nowhere.
    assert answered(row(parameters={"priority": "high"}))[0] == 403
    # A large body stays where it came in.
    rows = {"name": "input", "datatype": "FP32", "shape": [1_000, 64], "data": [0.123] * 64_000}
    large = json.dumps({"inputs": [rows]}, indent=8).encode()
    assert len(large) > MOST_BYTES
    status, answer = answered(large)
    assert (status, answer["model_version"]) == (200, "1")
    # After failures in a row it is left alone for a while.
    versions = [answered(great)[1]["model_version"] for _ in range(5)]
    assert versions == ["1"] * 5
    assert answered(row())[1]["model_version"] == "1"
    found = experiment(served, lambda e: e["fallbacks"]["away"] >= 3)
    assert found["fallbacks"] == {
        "away": 3, "slow": 0, "busy": 0, "failed": 5, "refused": 4, "large": 1
    }  # fmt: skip
    assert found["why"]["failed"] == "the model could not run on this input"
    assert "this needs the scope urgent" in found["why"]["refused"]
    assert site.store.aliases("mlp")["candidate"].version == 2


def test_hostile_keys_harm_nobody(served: Server) -> None:
    begun(served)
    token = served.site.token()
    body = json.dumps(row()).encode()
    for lines, status in (
        (b"X-Customer: \xff\xfe\x01\r\n", (200, 400)),
        (b"X-Customer: " + b"a" * 15_000 + b"\r\n", (200,)),
        (b"X-Customer: " + b"a" * 17_000 + b"\r\n", (431,)),
        (b"X-Customer: a\r\nx-customer: b\r\n", (400,)),
        (b"X-Customer: a\r\nX-Customer: a\r\n", (400,)),
        (b"X-Customer: a\r\n b\r\n", (400,)),
        (b"X-Customer:\r\n", (200,)),
        (b"X-Customer: ../../etc/passwd%00\"'<script>\r\n", (200,)),
        (b"Falaj-Arm: candidate\r\nFalaj-Arm: live\r\n", (400,)),
        (b"Falaj-Arm: \r\n", (400,)),
    ):
        connection = served.connect()
        connection.connect()
        connection.sock.sendall(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n%b"
            b"Content-Length: %d\r\n\r\n%b"
            % (INFER.encode(), token.encode(), lines, len(body), body)
        )
        answer = connection.sock.recv(65_536)
        assert int(answer.split()[1]) in status, (lines[:60], answer[:200])
        connection.close()
    # Nobody is given to a version who may not ask.
    connection = served.connect()
    assert asked(connection, "none", "a")[0] == 401
    assert asked(connection, served.site.token("observe"), "a", "candidate")[0] == 403


def test_a_candidate_with_another_signature_is_refused(tmp_path_factory: Any) -> None:
    site = Site(tmp_path_factory.mktemp("experiment") / "site")
    site.write(experiment={"key": "x-customer"})
    site.publish(models.mlp())
    assert site.publish(models.table(), promote=False) == 2
    server = Server(site)
    try:
        server.serving(1)
        site.store.promote("mlp", 2, "candidate")
        found = experiment(server, lambda each: each["error"])
        assert found["state"] == "failed"
        assert "another signature" in found["error"]
        assert "the input 'input' is missing in place of FP32 [-1, 64]" in found["error"]
        connection, token = server.connect(), site.token()
        for number in range(5):
            assert asked(connection, token, str(number)) == (200, "1")
        assert server.stop() == 0
    finally:
        server.kill()


def test_what_both_versions_answer_is_theirs_and_so_are_labels(served: Server) -> None:
    """The outputs are those of the version that the answer names, which labels are joined with."""
    begun(served)
    connection, token = served.connect(), served.site.token("predict", "feedback")
    found: dict[str, Any] = {}
    for number in range(30):
        key = {"X-Customer": f"customer {number}"}
        body = row(id=f"order {number}")
        _, answer = call(connection, "POST", INFER, token=token, body=body, headers=key)
        version, values = answer["model_version"], np.array(answer["outputs"][0]["data"])
        found.setdefault(version, values)
        assert np.allclose(found[version], values)
        # The version that serves is always right, and the candidate always wrong.
        label = str((int(values.argmax()) + (version == "2")) % 10)
        given = {"labels": [{"id": f"order {number}", "label": label}]}
        path = "/v2/models/mlp/feedback"
        joined = call(connection, "POST", path, token=token, body=given)
        assert joined[0] == 200
        assert joined[1] | {"matched": 1} == joined[1], joined
    assert not np.allclose(found["1"], found["2"])
    arms = [arm_of(NAME, f"customer {n}".encode(), SHARE / 100) for n in range(30)]
    expected = {"live": (arms.count("live"), 0), "candidate": (arms.count("candidate"),) * 2}
    experiment(
        served,
        lambda e: (
            {arm: (each.get("labelled"), each.get("wrong")) for arm, each in e["arms"].items()}
            == expected
        ),
    )
    observe = served.site.token("observe")
    text = call(connection, "GET", "/metrics", token=observe)[1].decode()
    of = 'arm="candidate",model="mlp",version="2"'
    assert f"falaj_experiment_wrong_rows_total{{{of}}} {expected['candidate'][1]}.0" in text
    # They are none of the labels that drift of the version that serves is judged by.
    drift = call(connection, "GET", "/v2/models/mlp/drift", token=observe)[1]
    assert drift["labels"]["scored"] == expected["live"][0]


class Customers:
    """Clients that ask again and again, by connections old and new, and note what they met."""

    def __init__(self, server: Server, names: list[str]) -> None:
        self._server, self._token = server, server.site.token()
        self._over = threading.Event()
        self.met: dict[str, list[str]] = {each: [] for each in names}
        """The versions that each met, in order."""
        self.wrong: list[object] = []
        self._threads = [
            threading.Thread(target=self._ask, args=(names[start::3],)) for start in range(3)
        ]
        for each in self._threads:
            each.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.met.values()))

    def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted, deadline = self.count + count, time.monotonic() + 60
        while self.count < wanted and not self.wrong:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _ask(self, names: list[str]) -> None:
        try:
            while not self._over.is_set():
                connection = self._server.connect()
                for each in names:
                    status, version = asked(connection, self._token, each)
                    if status != 200:
                        self.wrong.append((status, version))
                    self.met[each].append(version)
                    # The machine's cores are for the servers.
                    time.sleep(0.005)
                connection.close()
        except Exception as error:
            self.wrong.append(error)

    def end(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join(60)


@pytest.mark.parametrize("served", [2], indirect=True)
def test_with_two_workers_all_is_counted_whoever_answers(served: Server) -> None:
    """Candidates begin, are stopped and promoted while requests run: none is lost, no customer
    meets a version and then the one before again, and what is told at an end is all of it."""
    site = served.site
    names = [f"customer {number}" for number in range(9)]
    theirs = [n for n in names if arm_of(NAME, n.encode(), SHARE / 100) == "candidate"]
    assert 0 < len(theirs) < len(names)
    customers, sure, first = Customers(served, names), [], {}
    try:
        for end in ("stop", "promote"):
            site.store.promote("mlp", 2, "candidate")
            experiment(served, lambda each: each["state"] == "ready")
            customers.more(30)
            before = customers.count
            customers.more(60)
            sure.append(customers.count - before)
            if end == "stop":
                site.store.withdraw("mlp", "candidate")
            else:
                site.store.promote("mlp", 2)
                served.serving(2)
            served.wait(lambda state: state["experiment"] is None, "there is an experiment")
            customers.more(30)
            if end == "stop":
                first = {each: len(met) for each, met in customers.met.items()}
    finally:
        customers.end()
    assert customers.wrong == []
    assert served.stop() == 0
    for each in names:
        met = "".join(customers.met[each])
        begun, ended = met[: first[each]], met[first[each] :]
        assert re.fullmatch("1*2+1+" if each in theirs else "1+", begun), (each, met)
        assert re.fullmatch("1*2+", ended), (each, met)
    records = [json.loads(line) for line in (site.logs / "audit.jsonl").read_text().splitlines()]
    ends = [each for each in records if each["event"] == "experiment.ended"]
    by_candidate = [
        each["arms"]["candidate"]["requests"] - sum(each["fallbacks"].values()) for each in ends
    ]
    assert by_candidate[0] == sum(
        met[: first[each]].count("2") for each, met in customers.met.items()
    )
    lines = [json.loads(line) for line in (site.logs / "access.jsonl").read_text().splitlines()]
    assert sum(by_candidate) == sum(line.get("version") == 2 for line in lines)
    counted = [sum(arm["requests"] for arm in each["arms"].values()) for each in ends]
    assert all(count >= known for count, known in zip(counted, sure, strict=True))
    assert [each["outside"] for each in ends] == [0, 0]
