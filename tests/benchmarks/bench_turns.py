"""The fifth turn of a conversation: with keys and values of the four before it, and without.

Two servers of the same weights are asked in turns, over TLS, for the same conversations; one keeps
what texts leave (`keep_seconds`), the other doesn't. Weights are as training starts with them:
times don't depend on what they are.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DECODER_WIDTH, DecoderSize
from falaj.workloads.training.language import UNKNOWN
from tests.workloads.inference import decoders
from tests.workloads.inference.languages import COMPLETIONS, NAME
from tests.workloads.inference.serving import Server, Site

pytestmark = pytest.mark.benchmark_suite
CHARACTERS = UNKNOWN + "".join(map(chr, range(32, 131)))
TURNS = 5
ROUNDS = 9
SIZES = {
    "the default size": (1_024, DECODER_WIDTH, DecoderSize()),
    "4 layers of 256": (2_048, 256, DecoderSize(layers=4, heads=8, key_value_heads=4)),
}
KEEPING, FORGETTING = "keeping", "forgetting"


@pytest.fixture(params=SIZES)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Server]]:
    context, width, size = SIZES[request.param]
    torch.manual_seed(0)
    module = Decoder(context, len(CHARACTERS), width, size).eval()
    graph, fields = decoders.packaged(module, decoders.serving(context, CHARACTERS))
    found: dict[str, Server] = {}
    try:
        for name, seconds in ((KEEPING, 600), (FORGETTING, 0)):
            site = Site(tmp_path / name)
            site.write(limits={"max_rows": 1, "keep_seconds": seconds})
            site.publish(graph, fields=fields)
            found[name] = Server(site).serving(1)
        yield found
    finally:
        for server in found.values():
            server.kill()


@pytest.mark.timeout(900)
def test_a_fifth_turn_with_and_without_what_the_others_left(
    servers: dict[str, Server], benchmark: BenchmarkFixture, request: pytest.FixtureRequest
) -> None:
    of: str = request.node.callspec.params["servers"]
    part = SIZES[of][0] // (TURNS + 1)
    answered = part // 4
    first: dict[str, list[float]] = {name: [] for name in servers}
    said: dict[str, str] = {}

    def one(name: str, number: int) -> None:
        server, text, took = servers[name], "", 0.0
        connection = server.connect()
        headers = {"Authorization": f"Bearer {server.site.token('predict')}"}
        for turn in range(TURNS):
            text += f"{number} {turn} ".ljust(part - answered, "-")
            body = {
                "model": NAME, "prompt": text, "max_tokens": answered, "stream": True,
                "temperature": 0,
            }  # fmt: skip
            start = time.perf_counter()
            connection.request("POST", COMPLETIONS, body=json.dumps(body), headers=headers)
            answer, took = connection.getresponse(), 0.0
            assert answer.status == 200
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    took = took or time.perf_counter() - start
                    text += json.loads(line[6:])["choices"][0]["text"]
        connection.close()
        first[name].append(took)
        said[name] = text

    rounds = iter(range(1_000))
    order = list(servers)

    def one_round() -> None:
        number = next(rounds)
        for name in order:
            one(name, number)
        assert said[KEEPING] == said[FORGETTING]
        order.reverse()

    one_round()
    for each in first.values():
        each.clear()
    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    kept, forgot = (first[name] for name in (KEEPING, FORGETTING))
    ratio = statistics.median(b / a for a, b in zip(kept, forgot, strict=True))
    load = f"load {os.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores"
    print(
        f"\n{of}, a prompt of {TURNS * part - answered} characters, of which {part - answered} "
        f"are new; {load}\n  first token of turn {TURNS}, medians in ms: "
        f"{1000 * statistics.median(kept):.2f} keeping, "
        f"{1000 * statistics.median(forgot):.2f} forgetting: {ratio:.1f} times as fast"
    )
    assert ratio > 1
