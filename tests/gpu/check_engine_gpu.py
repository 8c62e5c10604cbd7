"""Real vLLM behind the server's client; run by `make test-gpu`, never skipped.

Needs an NVIDIA GPU, and vLLM's program `vllm` on `PATH`, from an environment of its own: it can't
share one with what is pinned here. It is started as a pod starts it, with the container's own
command and variables but for folders and port, on what `unseal --layout vllm` writes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.llama_layout import write_folder
from tests.components.kubernetes.serving_services import TEXTS, pod_of, service
from tests.workloads.inference import decoders
from tests.workloads.inference.test_engine import Beside, here, texts, there
from tests.workloads.registry.test_llama_layout import published

CONTEXT = 64
START_SECONDS = 900.0


class Real(Beside):
    """vLLM's process."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("vllm")
        assert program, "vLLM isn't there: install it in an environment of its own, on PATH"
        graph, fields = decoders.published(CONTEXT)
        package, _ = published(folder, graph, fields)
        opened = write_folder(package, folder / "open")
        asked = service("texts", **TEXTS, model="text", precision="float32")
        steps = {each["name"]: each for each in pod_of(asked, "texts-v7")["initContainers"]}
        container = steps["vllm"]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [program, "serve", str(opened), *container["command"][3:], f"--port={port}"]
        scratch = folder / "scratch"
        scratch.mkdir()
        named = {each["name"]: each["value"] for each in container["env"]}
        own = {
            name: value.replace("/run/falaj/engine", str(scratch)) for name, value in named.items()
        }
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | own, stdout=log, stderr=subprocess.STDOUT
            )
        self.url = f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    found = Real(tmp_path_factory.mktemp("vllm"))
    try:
        yield found
    finally:
        found.process.terminate()
        found.process.wait(60)


def ready(real: Real) -> None:
    import asyncio

    async def looked() -> bool:
        client = real.client()
        try:
            return await client.is_ready()
        finally:
            await client.close()

    end = time.monotonic() + START_SECONDS
    while not asyncio.run(looked()):
        assert real.process.poll() is None, real.log.read_text()[-4000:]
        assert time.monotonic() < end, real.log.read_text()[-4000:]
        time.sleep(2)


def test_its_likeliest_texts_are_ours(real: Real) -> None:
    """Also where the window begins anew, and with what is told of each token."""
    ready(real)
    for prompt, most in (("ab", 30), ("abcdefgh" * 7, 40)):
        given: tuple[Any, Any] = (texts(prompt, most, context=CONTEXT), 2)
        (own,) = here(texts(prompt, most, context=CONTEXT), 2, context=CONTEXT)
        (other,) = there(real, *given, context=CONTEXT)
        assert own[:2] == other[:2]
        assert own[2]["token_logprobs"] == pytest.approx(other[2]["token_logprobs"], abs=1e-3)
    assert "abcdefgh" not in real.log.read_text()
