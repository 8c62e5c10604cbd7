"""The fifth turn of a conversation: with keys and values of the four before it, and without.

Two servers are asked for the same conversations; one keeps what texts leave (`keep_seconds`), the
other doesn't.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.training.decoder_size import DECODER_WIDTH, DecoderSize
from tests.benchmarks.texts import FORGETTING, KEEPING, served, streamed
from tests.workloads.inference.serving import Server

pytestmark = pytest.mark.benchmark_suite
TURNS = 5
ROUNDS = 9
SIZES = {
    "the default size": (1_024, DECODER_WIDTH, DecoderSize()),
    "4 layers of 256": (2_048, 256, DecoderSize(layers=4, heads=8, key_value_heads=4)),
}


@pytest.fixture(params=SIZES)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Server]]:
    context, width, size = SIZES[request.param]
    kept = {KEEPING: 600, FORGETTING: 0}
    ways = {name: (bytes, {"keep_seconds": seconds}) for name, seconds in kept.items()}
    with served(tmp_path, context, width, size, ways) as found:
        yield found


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
        text, took = "", 0.0
        connection, token = servers[name].connect(), servers[name].site.token("predict")
        for turn in range(TURNS):
            text += f"{number} {turn} ".ljust(part - answered, "-")
            body = {"prompt": text, "max_tokens": answered, "temperature": 0}
            came = list(streamed(connection, token, body))
            took = came[0][0]
            text += "".join(piece["choices"][0]["text"] for _, piece in came)
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
