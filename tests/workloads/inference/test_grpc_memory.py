"""A gRPC process that may take so much memory and no more, asked for more than that."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.rpc.messages import CLASSES
from falaj.workloads.inference.settings import read
from tests.workloads.inference import models
from tests.workloads.inference.grpc_calls import Client, processes, resident, row
from tests.workloads.inference.serving import Server, Site, call, started
from tests.workloads.inference.serving import row as http_row

MIB = 1024 * 1024
BODY = 4 * MIB
CEILING = 160 * MIB
FILES = 32 * MIB
"""Of the interpreter and its libraries, which are read from files: no data of the process."""
CLIENTS, CALLS = 16, 2


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("bounded") / "site")
    site.write(limits={"max_body_bytes": BODY, "max_rows": 1 << 18, "grpc_memory_bytes": CEILING})
    with started(site, site.publish(models.mlp())) as server:
        yield server


def largest(model: str) -> Any:
    """A request that is nearly as large as one may be."""
    rows = (BODY - 64 * 1024) // 256
    message = CLASSES["ModelInferRequest"](model_name=model)
    message.inputs.add(name="input", datatype="FP32", shape=[rows, 64])
    message.raw_input_contents.append(bytes(256 * rows))
    return message


def test_threads_leave_the_ceiling_to_messages(bounded: Server) -> None:
    """On a machine of many cores as well, which has more of them."""
    with Client(bounded, token=bounded.site.token("predict")) as client:
        client.infer(row(client.model))
    [process] = processes(bounded)
    assert process.memory_info().data < 64 * MIB


def test_what_was_refused_is_gone(bounded: Server) -> None:
    codes: Counter[str] = Counter()
    with Client(bounded, token=bounded.site.token("predict")) as client:
        client.infer(row(client.model))
        before = processes(bounded)
        [worker] = psutil.Process(bounded.process.pid).children()
        held = resident(worker)
        wrong = largest(client.model)
        wrong.inputs[0].shape[0] += 1
        for _ in range(2 * CEILING // BODY):
            with pytest.raises(grpc.RpcError) as refused:
                client.infer(wrong)
            codes[refused.value.code().name] += 1  # type: ignore[attr-defined]
        assert set(codes) == {"INVALID_ARGUMENT"}, codes
        assert processes(bounded) == before
        assert resident(worker) < held + 16 * BODY


def test_more_than_there_is_memory_for_is_put_off_and_http_goes_on(bounded: Server) -> None:
    token = bounded.site.token("predict")
    codes: Counter[str] = Counter()
    seen: list[int] = []
    over = threading.Event()

    def ask() -> None:
        with Client(bounded, token=token) as client:
            message = largest(client.model)
            for _ in range(CALLS):
                try:
                    client.infer(message, seconds=60)
                    codes["OK"] += 1
                except grpc.RpcError as error:
                    codes[error.code().name] += 1  # type: ignore[attr-defined]

    def watch() -> None:
        while not over.wait(0.01):
            with contextlib.suppress(psutil.Error):
                seen.append(sum(map(resident, processes(bounded))))

    with Client(bounded, token=token) as client:
        client.infer(row(client.model))
    watcher = threading.Thread(target=watch)
    askers = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in (watcher, *askers):
        thread.start()
    path = f"/v2/models/{bounded.site.document['model']}/infer"
    while any(thread.is_alive() for thread in askers):
        status, _ = call(bounded.connect(), "POST", path, body=http_row(), token=token)
        assert status in {200, 503}
        askers[0].join(0.1)
    for thread in askers:
        thread.join()
    over.set()
    watcher.join()
    assert max(seen) < CEILING + FILES, max(seen)
    # Nobody is told that what was right is wrong: those who can't be answered may come again.
    assert set(codes) <= {"OK", "UNAVAILABLE"}, codes
    assert codes["OK"] > 0
    with Client(bounded, token=token) as client:
        client.infer(row(client.model))
        client.infer(largest(client.model))


@pytest.mark.parametrize("kind", ["int", "int64", "bytes"])
def test_values_that_take_more_once_read_are_not_called_malformed(
    kind: str, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    site.write(limits={"max_body_bytes": 4 * BODY, "grpc_memory_bytes": 128 * MIB})
    version = site.publish(models.mlp())
    server = Server(site)
    message = CLASSES["ModelInferRequest"](model_name=site.document["model"])
    values = getattr(message.inputs.add(name="input").contents, f"{kind}_contents")
    values.extend([b""] * (6 * MIB) if kind == "bytes" else [0] * (12 * MIB))
    try:
        server.serving(version)
        with Client(server, token=site.token("predict")) as client:
            with pytest.raises(grpc.RpcError) as refused:
                client.infer(message)
            assert refused.value.code().name == "UNAVAILABLE"  # type: ignore[attr-defined]
            with pytest.raises(grpc.RpcError) as refused:
                client.raw("ModelInfer", b"\xff" * MIB)
            assert refused.value.code().name == "INVALID_ARGUMENT"  # type: ignore[attr-defined]
            client.infer(row(client.model))
    finally:
        server.kill()


@pytest.mark.parametrize("given", [0, 128 * MIB - 1, 2**36 + 1, "much", None, True, 1.5e9])
def test_a_ceiling_that_is_none_is_refused(given: Any, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.write(limits={"grpc_memory_bytes": given})
    with pytest.raises(InferenceError, match=r"grpc_memory_bytes: got .*, allowed is a whole nu"):
        read(site.config)
