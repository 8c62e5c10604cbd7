"""The rendered replica of a language model on GPUs runs, with a stand-in for vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.kubernetes.serving_processes import MEMORY, replica
from tests.components.kubernetes.serving_services import TEXTS, pod_of, service
from tests.components.kubernetes.test_serving_pods_run import (
    AUDIENCE,
    MODEL,
    Site,
    infer,
    ready,
)
from tests.ports import free_port
from tests.workloads.inference import decoders
from tests.workloads.inference.serving import call
from tests.workloads.inference.test_engine import CONTEXT, Beside, here, texts

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_texts_on_gpus_are_an_engine_s_by_what_was_opened_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path, *decoders.published(CONTEXT))
    (tmp_path / "engine").mkdir()
    beside = Beside(tmp_path / "engine")
    pod = pod_of(service("texts", **TEXTS, token_audience=AUDIENCE), "texts-v7")
    try:
        with replica(pod, tmp_path / "gpu", site.contents) as made:
            there = beside.url.removeprefix("http://")
            made.names |= {"8443": str(free_port()), "127.0.0.1:8000": there}
            made.prepare()
            engine = made.container("vllm")
            folder = Path(made.local(engine, engine["command"][2]))
            assert folder.is_relative_to(MEMORY)
            assert sorted(each.name for each in folder.iterdir()) == [
                "config.json", "model.safetensors",
            ]  # fmt: skip
            made.start("server")
            port = ready(site, made)
            asked = {"model": MODEL, "prompt": "abcdefgh", "max_tokens": 20, "temperature": 0}
            status, answer = call(
                site.connect(port), "POST", "/v1/completions", token=site.token(), body=asked
            )
            assert status == 200, answer
            ((text, _, _),) = here(texts("abcdefgh", 20))
            assert answer["choices"][0]["text"] == text
            assert infer(site, port, token=site.token())[0] in {400, 404}
    finally:
        beside.process.kill()
        beside.process.wait()
