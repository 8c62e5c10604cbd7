"""A language model of the default size that keeps keys and values of a text, against one that
doesn't.

Both are served side by side and asked in turns, over TLS, for texts whose window is all but full.
Weights are as training starts with them: times don't depend on what they are.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DECODER_WIDTH
from falaj.workloads.training.language import UNKNOWN
from tests.workloads.inference import decoders
from tests.workloads.inference.languages import COMPLETIONS, NAME
from tests.workloads.inference.serving import Server, Site

pytestmark = pytest.mark.benchmark_suite
CHARACTERS = UNKNOWN + "".join(map(chr, range(32, 131)))
CONTEXTS = (128, 512, 2048)
ROUNDS = 7
TOKENS = 24
"""Of each text, after the first."""
KEEPING, FORGETTING = "keeping", "forgetting"


@pytest.fixture(params=CONTEXTS)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Server]]:
    """Serve the same weights both ways."""
    context: int = request.param
    torch.manual_seed(0)
    module = Decoder(context, len(CHARACTERS), DECODER_WIDTH).eval()
    graph, fields = decoders.packaged(module, decoders.serving(context, CHARACTERS))
    found: dict[str, Server] = {}
    try:
        for name, model in ((KEEPING, graph), (FORGETTING, decoders.forgetful(graph))):
            site = Site(tmp_path / name)
            # One row: else a start runs sixteen of the whole context some times.
            site.write(limits={"max_rows": 1})
            site.publish(model, fields=fields)
            found[name] = Server(site).serving(1)
        yield found
    finally:
        for server in found.values():
            server.kill()


@pytest.mark.timeout(900)
def test_a_token_with_and_without_what_is_kept(
    servers: dict[str, Server], benchmark: BenchmarkFixture, request: pytest.FixtureRequest
) -> None:
    context: int = request.node.callspec.params["servers"]
    body = {
        "model": NAME, "prompt": "a" * (context - TOKENS), "max_tokens": 1 + TOKENS, "stream": True
    }  # fmt: skip
    seconds: dict[tuple[str, str], list[float]] = {}

    def one(name: str) -> None:
        server = servers[name]
        connection = server.connect()
        headers = {"Authorization": f"Bearer {server.site.token('predict')}"}
        start = time.perf_counter()
        connection.request("POST", COMPLETIONS, body=json.dumps(body), headers=headers)
        answer, came = connection.getresponse(), list[float]()
        assert answer.status == 200
        while line := answer.readline():
            if line.startswith(b"data: {"):
                came.append(time.perf_counter())
        connection.close()
        assert len(came) == 1 + TOKENS
        gaps = [after - before for before, after in pairwise(came)]
        seconds.setdefault((name, "token"), []).append(statistics.median(gaps))
        seconds.setdefault((name, "first"), []).append(came[0] - start)

    order = list(servers)

    def one_round() -> None:
        for name in order:
            one(name)
        order.reverse()

    one_round()
    seconds.clear()
    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    load = f"load {os.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores"
    print(f"\ncontext {context}, one worker of one thread, one text; {load}; medians in ms")
    for what in ("token", "first"):
        kept, forgot = (seconds[name, what] for name in (KEEPING, FORGETTING))
        ratio = statistics.median(b / a for a, b in zip(kept, forgot, strict=True))
        print(
            f"  {what}: {1000 * statistics.median(kept):9.2f} keeping, "
            f"{1000 * statistics.median(forgot):9.2f} forgetting: {ratio:6.1f} times as fast"
        )
        if what == "token":
            assert ratio > 1
