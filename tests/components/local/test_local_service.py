"""Key rings and services through the provider: real keys, real packages, a real server."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from onnx import TensorProto, helper
from pulumi.runtime import proto

from falaj.components.local import machine
from falaj.components.local.provider.resources import KeyRingHandler
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import seal, unseal
from tests.ports import free_port
from tests.waiting import wait_for
from tests.workloads.inference import models


def workload(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def tiny_model(factor: float, width: int = 1) -> bytes:
    """``prediction`` = `factor` times ``value``, of so many numbers."""
    constant = helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])
    return models.model_of(
        [helper.make_node("Mul", ["value", "factor"], ["prediction"])],
        [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("prediction", TensorProto.FLOAT, ["batch", width])],
        [constant],
    )


def fields(width: int) -> dict[str, Any]:
    return {
        "dataset": {"digest": "0" * 64},
        "inputs": [{"name": "value", "datatype": "FP32", "shape": [-1, width]}],
        "outputs": [{"name": "prediction", "datatype": "FP32", "shape": [-1, width]}],
    }


@dataclass
class Stack:
    """A site with keys, certificates and packages, ready for a service."""

    site: Path
    keys: dict[str, Any]
    inputs: dict[str, Any]

    def publish(self, factor: float, width: int = 1) -> int:
        folder = self.site / "made"
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(tiny_model(factor, width))
        (folder / "fields.json").write_text(
            json.dumps({**fields(width), "lineage": {"run": f"run-{factor}"}})
        )
        published = workload(
            "falaj.workloads.registry", "publish", "--registry", str(self.site / "registry"),
            "--model", "tiny", "--keyring", self.keys["path"], "--from", str(folder),
            "--fields", str(folder / "fields.json"), "--json",
        )  # fmt: skip
        return int(published["version"])

    def token(self) -> str:
        return subprocess.run(
            [
                sys.executable, "-m", "falaj.workloads.inference", "token", "--key",
                self.keys["tokenKeyPath"], "--issuer", "falaj:test", "--audience",
                "falaj:test:tiny", "--subject", "tester", "--scope", "predict",
            ],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    def predict(self, endpoint: str, token: str) -> float:
        body = {"inputs": [{"name": "value", "datatype": "FP32", "shape": [1, 1], "data": [2.0]}]}
        request = urllib.request.Request(  # noqa: S310 - the endpoint is https
            f"{endpoint}/v2/models/tiny/infer",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        trust = ssl.create_default_context(cafile=str(self.site / "pki" / "ca.crt"))
        with urllib.request.urlopen(request, context=trust, timeout=20) as answer:  # noqa: S310
            return float(json.load(answer)["outputs"][0]["data"][0])


@pytest.fixture
def stack(provider: Any, tmp_path: Path) -> Iterator[Stack]:
    site = tmp_path / "site"
    made, workspace = provider.create("Workspace", {"path": str(site)})
    _, keys = provider.create("KeyRing", {"site": str(site)})
    _, authority = provider.create("CertificateAuthority", {"site": str(site)})
    leaf = {
        "site": str(site),
        "fileName": "server",
        "commonName": "localhost",
        "authorityFingerprint": authority["fingerprint"],
    }
    _, server = provider.create("Certificate", leaf)
    inputs = {
        "site": str(site),
        "name": "tiny",
        "model": "tiny",
        "keyring": keys["path"],
        "port": free_port(),
        "certificate": server["certificatePath"],
        "privateKey": server["privateKeyPath"],
        "clientCa": authority["certificatePath"],
        "certificateFingerprint": server["fingerprint"],
        "issuer": "falaj:test",
        "audience": "falaj:test:tiny",
        "drainSeconds": 1,
        "supervisor": "supervisord",
    }
    yield Stack(site, keys, inputs)
    # Removing the workspace ends whatever a failed test has left running.
    provider.delete("Workspace", made, {**workspace, "claim": None, "retain": False})
    leftovers = machine.find_processes((str(site),))
    assert leftovers == []


def test_rotation_does_not_go_back(provider: Any, site: Path) -> None:
    old = {"site": str(site), "rotation": 3}
    _, failures = provider.check("KeyRing", {**old, "rotation": 2}, old)
    assert failures["rotation"].startswith("given 2; allowed: 3 or more")


@pytest.mark.parametrize("key", ["jobsKeepHours", "jobsMost", "jobsMostBytes"])
def test_what_is_said_of_jobs_that_are_not_taken_is_refused(provider: Any, key: str) -> None:
    texts = ("name", "model", "issuer", "audience", "certificateFingerprint")
    paths = ("site", "keyring", "certificate", "privateKey", "clientCa")
    given: dict[str, Any] = {
        **dict.fromkeys(texts, "x"), **dict.fromkeys(paths, "/x"), "version": 1, "port": 1_024,
        key: 1 << 20 if key == "jobsMostBytes" else 24,
    }  # fmt: skip
    for more in ({}, {"jobs": False}):
        _, failures = provider.check("InferenceService", given | more)
        assert set(failures) == {key}
        assert "no jobs are taken; set jobs to true, or leave it out" in failures[key]
    for more in ({"jobs": True}, {key: None}):
        checked, failures = provider.check("InferenceService", given | more)
        assert not failures
        assert checked["jobs"] == ("jobs" in more)


_OF_SHADOW = ({"shadow": True}, "there is no shadow; set shadow to true, or leave it out")
_OF_EXPERIMENT = (
    {"experimentKey": "X-Customer"},
    "there is no experiment; give experimentKey, or leave it out",
)


@pytest.mark.parametrize(
    ("key", "value", "with_it", "says"),
    [
        ("shadowPercent", 10, *_OF_SHADOW),
        ("shadowFirst", True, *_OF_SHADOW),
        ("experimentShare", 20, *_OF_EXPERIMENT),
        ("experimentName", "prices", *_OF_EXPERIMENT),
        ("experimentTimeoutMs", 500, *_OF_EXPERIMENT),
        ("experimentFirst", True, *_OF_EXPERIMENT),
        ("experimentShare", 100, {"experimentKey": "x"}, "a number from 0.01 to 99"),
        ("experimentKey", "host", {"experimentKey": "x"}, "means something to the server"),
        ("experimentKey", "a b", {"experimentKey": "x"}, "1 to 64 letters, digits and '-'"),
        ("experimentKey", "x", {"shadow": False}, "one version beside the one that serves"),
    ],
)
def test_what_is_said_of_a_second_version_that_is_not_there_is_refused(
    provider: Any, key: str, value: Any, with_it: dict[str, Any], says: str
) -> None:
    texts = ("name", "model", "issuer", "audience", "certificateFingerprint")
    paths = ("site", "keyring", "certificate", "privateKey", "clientCa")
    given: dict[str, Any] = {
        **dict.fromkeys(texts, "x"), **dict.fromkeys(paths, "/x"), "version": 1, "port": 1_024,
        key: value,
    }  # fmt: skip
    if with_it == {"shadow": False}:
        given["shadow"] = True
    elif key in ("experimentShare",) and value > 99:
        given |= with_it
    _, failures = provider.check("InferenceService", given)
    assert set(failures) == {key}
    assert says in failures[key]
    mended = {"experimentShare": 50} if value == 100 else {}
    _, failures = provider.check("InferenceService", given | with_it | mended)
    assert not failures


def test_a_lost_key_ring_is_not_replaced_while_sealed_data_is_there(
    provider: Any, stack: Stack
) -> None:
    stack.publish(1.0)
    for file in (stack.site / "keyring").iterdir():
        file.unlink()
    inputs = {"site": str(stack.site)}
    state = {**stack.keys}
    assert list(provider.diff("KeyRing", state["path"], state, inputs).detailedDiff) == ["path"]
    with pytest.raises(grpc.RpcError) as caught:
        provider.update("KeyRing", state["path"], state, inputs)
    assert "put the folder back from a backup" in caught.value.details()
    assert provider.read("KeyRing", state["path"], state)[0] == ""


def test_key_ring_life(provider: Any, stack: Stack) -> None:
    version = stack.publish(3.0)
    keys = stack.keys
    inputs = {"site": str(stack.site), "rotation": 0}
    again, adopted = provider.create("KeyRing", inputs)
    assert adopted["signingKeyId"] == keys["signingKeyId"]
    unchanged = provider.diff("KeyRing", again, adopted, inputs)
    assert unchanged.changes == proto.DiffResponse.DIFF_NONE
    ring = KeyRing.open(Path(keys["path"]))
    job = stack.site / "service" / "tiny" / "state.jobs" / "job.request.sealed"
    job.parent.mkdir(parents=True)
    seal(job, b"asked", ring, b"job")
    damaged = job.with_name("cut.answer.sealed")
    damaged.write_bytes(b"cut")
    rotated = provider.update("KeyRing", again, adopted, {**inputs, "rotation": 1})
    assert rotated["primary"] != keys["primary"]
    assert rotated["versions"] == [rotated["primary"]]
    assert rotated["signingKeyId"] != keys["signingKeyId"]
    assert rotated["tokenKeyId"] != keys["tokenKeyId"]
    # The jobs of a service open with the new key alone.
    assert unseal(job, ring, b"job") == b"asked"
    assert any(
        str(damaged) in line and "can't be read any more" in line
        for _, line, _ in provider.engine.messages
    )
    verified = workload(
        "falaj.workloads.registry", "verify", "--registry", str(stack.site / "registry"),
        "--model", "tiny", "--version", str(version), "--keyring", keys["path"], "--json",
    )  # fmt: skip
    assert verified
    provider.delete("KeyRing", again, rotated)
    assert not Path(keys["path"]).exists()


def test_no_key_reaches_the_state(stack: Stack) -> None:
    files = [path for path in (stack.site / "keyring").iterdir() if path.suffix == ".key"]
    assert files
    for file in files:
        assert file.read_bytes().hex() not in repr(stack.keys)
        assert file.stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in repr(stack.keys)


def test_every_key_output_is_declared(stack: Stack) -> None:
    assert stack.keys.keys() >= KeyRingHandler.outputs.keys()


@pytest.mark.slow
def test_an_experiments_candidate_has_to_fit_before_an_update_is_done(
    provider: Any, stack: Stack
) -> None:
    first, other, same = stack.publish(3.0), stack.publish(5.0, width=2), stack.publish(7.0)
    aliases = stack.site / "registry" / "tiny" / "aliases.json"
    asked = {"experimentKey": "X-Customer", "experimentShare": 50, "experimentName": "prices"}
    made, state = provider.create("InferenceService", {**stack.inputs, "version": first, **asked})
    inputs = {**stack.inputs, "version": other, **asked, "maxRows": 7, "experimentFirst": True}
    with pytest.raises(grpc.RpcError) as caught:
        provider.update("InferenceService", made, state, inputs)
    details = caught.value.details()
    assert f"version {other}, the experiment's candidate, can't answer" in details
    assert "another signature than the version that serves: the input 'value'" in details
    path = Path(state["configPath"])
    assert json.loads(path.read_text())["limits"]["max_rows"] != 7
    assert "candidate" not in json.loads(aliases.read_text())
    assert stack.predict(state["endpoint"], stack.token()) == 6.0
    inputs["version"] = same
    updated = provider.update("InferenceService", made, state, inputs)
    assert updated["servedVersion"] == first
    assert json.loads(aliases.read_text())["candidate"]["version"] == same
    assert json.loads(path.read_text())["experiment"] == {
        "key": "X-Customer", "share": 50, "alias": "candidate", "name": "prices",
        "timeout_ms": 1000,
    }  # fmt: skip
    standing = json.loads(path.with_name("state.json").read_text())["experiment"]
    assert (standing["version"], standing["state"]) == (same, "ready")
    provider.delete("InferenceService", made, updated)


@pytest.mark.slow
def test_a_service_serves_rolls_fails_well_and_leaves_nothing(provider: Any, stack: Stack) -> None:
    first, second = stack.publish(3.0), stack.publish(5.0)
    inputs = {**stack.inputs, "version": first}
    made, state = provider.create("InferenceService", inputs)
    assert (state["status"], state["servedVersion"], state["keptBy"]) == (
        "serving",
        first,
        "supervisord",
    )
    token = stack.token()
    assert stack.predict(state["endpoint"], token) == 6.0
    same = provider.diff("InferenceService", made, state, inputs)
    assert same.changes == proto.DiffResponse.DIFF_NONE

    # Another version, while a client goes on asking: no request fails.
    answers: list[float] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.append(stack.predict(state["endpoint"], token))
            except Exception as error:
                failures.append(error)

    client = threading.Thread(target=ask)
    client.start()
    inputs["version"] = second
    rolled = provider.update("InferenceService", made, state, inputs)
    wait_for(lambda: answers[-1:] == [10.0], "an answer of the new version")
    stop.set()
    client.join()
    assert failures == []
    assert set(answers) == {6.0, 10.0}
    assert (rolled["servedVersion"], rolled["pid"]) == (second, state["pid"])

    # A rolled-back alias is told, and stays: also through an update of something else.
    workload(
        "falaj.workloads.registry", "rollback", "--registry", str(stack.site / "registry"),
        "--keyring", str(stack.site / "keyring"), "--model", "tiny", "--json",
    )  # fmt: skip
    wait_for(
        lambda: provider.read("InferenceService", made, rolled)[1]["servedVersion"] == first,
        "the older version",
    )
    back = provider.read("InferenceService", made, rolled)[1]
    same = provider.diff("InferenceService", made, back, inputs)
    assert same.changes == proto.DiffResponse.DIFF_NONE
    inputs |= {"maxRows": 7, "maxTokens": 9, "tokensPerMinute": 90, "batching": True}
    inputs["keepSeconds"] = 0
    limited = provider.update("InferenceService", made, back, inputs)
    assert limited["servedVersion"] == first
    configured = json.loads(Path(limited["configPath"]).read_text())
    limits = configured["limits"]
    assert (limits["tokens_per_minute"], limits["keep_seconds"]) == (90, 0)
    assert (limits["max_rows"], limits["max_tokens"], configured["batching"]) == (7, 9, True)

    # A new version looks on, where it is to be the shadow first; whoever promotes it has it serve.
    third = stack.publish(7.0)
    inputs |= {
        "version": third, "shadow": True, "shadowPercent": 100, "shadowFirst": True,
        "priorities": True,
    }  # fmt: skip
    limited = provider.update("InferenceService", made, limited, inputs)
    assert limited["servedVersion"] == first
    account = Path(limited["configPath"]).with_name("state.json")

    def looks_on() -> bool:
        assert stack.predict(state["endpoint"], token) == 6.0
        shadow = json.loads(account.read_text())["shadow"]
        return shadow is not None and shadow["requests"]["compared"] > 0

    wait_for(looks_on, "copies of requests")
    shadow = json.loads(account.read_text())["shadow"]
    assert (shadow["version"], shadow["agreement"]) == (third, 0.0)
    again = provider.update("InferenceService", made, limited, inputs | {"maxRows": 8})
    assert again["servedVersion"] == first

    # A version that can't be loaded: the reason is told, the old one goes on.
    inputs["shadowFirst"] = False
    with pytest.raises(grpc.RpcError) as caught:
        provider.update("InferenceService", made, limited, {**inputs, "version": 99})
    assert "99" in caught.value.details()
    assert "Traceback" not in caught.value.details()
    assert stack.predict(state["endpoint"], token) == 6.0

    provider.delete("InferenceService", made, limited)
    assert not (stack.site / "service" / "tiny").exists()
    assert machine.find_processes((str(stack.site / "service"),)) == []
    with socket.create_server(("127.0.0.1", inputs["port"])):
        pass
    provider.delete("InferenceService", made, limited)  # gone is fine


@pytest.mark.thorough
@pytest.mark.slow
def test_a_service_comes_back_after_kills_and_moves_to_another_port(
    provider: Any, stack: Stack
) -> None:
    inputs = {**stack.inputs, "version": stack.publish(3.0)}
    made, state = provider.create("InferenceService", inputs)
    token = stack.token()

    # The server is killed: the supervisor brings it back at the same port.
    os.kill(int(state["pid"]), signal.SIGKILL)
    wait_for(
        lambda: (
            provider.read("InferenceService", made, state)[1]["pid"] not in (None, state["pid"])
        ),
        "another server",
    )
    wait_for(
        lambda: provider.read("InferenceService", made, state)[1]["status"] == "serving", "serving"
    )
    assert stack.predict(state["endpoint"], token) == 6.0

    # Supervisor and server are gone, as after a reboot: a change that `up` puts right.
    found = provider.read("InferenceService", made, state)[1]
    server = psutil.Process(int(found["pid"]))
    supervisor = server.parent()
    assert supervisor is not None
    supervisor.kill()
    server.kill()
    wait_for(
        lambda: provider.read("InferenceService", made, state)[1]["status"] == "stopped", "its end"
    )
    down = provider.diff("InferenceService", made, found, inputs)
    assert list(down.detailedDiff) == ["status"]
    assert not down.detailedDiff["status"].inputDiff
    up = provider.update("InferenceService", made, found, inputs)
    assert up["status"] == "serving"
    assert stack.predict(up["endpoint"], token) == 6.0

    # A held port is refused, and the service stays where it was.
    with socket.create_server(("127.0.0.1", 0)) as other:
        held = int(other.getsockname()[1])
        with pytest.raises(grpc.RpcError) as caught:
            provider.update("InferenceService", made, up, {**inputs, "port": held})
        assert (
            f"port {held} on 127.0.0.1 is in use by {psutil.Process().name()} ("
            in caught.value.details()
        )
    assert stack.predict(up["endpoint"], token) == 6.0

    moved = provider.update("InferenceService", made, up, {**inputs, "port": held})
    assert moved["endpoint"] == f"https://localhost:{held}"
    assert stack.predict(moved["endpoint"], token) == 6.0
    with socket.create_server(("127.0.0.1", inputs["port"])):
        pass

    # Interrupted right after the start: the next creation adopts the running server.
    _, adopted = provider.create("InferenceService", {**inputs, "port": held})
    assert adopted["pid"] == moved["pid"]
    provider.delete("InferenceService", made, adopted)
    assert machine.find_processes((str(stack.site / "service"),)) == []


@pytest.mark.slow
def test_a_first_version_that_cannot_be_served_leaves_nothing(provider: Any, stack: Stack) -> None:
    version = stack.publish(3.0)
    manifest = stack.site / "registry" / "tiny" / "versions" / str(version) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"prediction", b"predictiom"))
    with pytest.raises(grpc.RpcError) as caught:
        provider.create("InferenceService", {**stack.inputs, "version": version})
    assert "Traceback" not in caught.value.details()
    assert "signature" in caught.value.details()
    assert machine.find_processes((str(stack.site / "service"),)) == []
