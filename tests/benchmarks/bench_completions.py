"""A language model of the default size that keeps keys and values of a text, against one that
doesn't.

Both are asked for texts whose window is all but full.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.training.decoder_size import DECODER_WIDTH, DecoderSize
from tests.benchmarks.texts import FORGETTING, KEEPING, served, streamed
from tests.workloads.inference import decoders
from tests.workloads.inference.serving import Server

pytestmark = pytest.mark.benchmark_suite
CONTEXTS = (128, 512, 2048)
ROUNDS = 7
TOKENS = 24
"""Of each text, after the first."""


@pytest.fixture(params=CONTEXTS)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Server]]:
    """Serve the same weights both ways."""
    ways = {KEEPING: (bytes, {}), FORGETTING: (decoders.forgetful, {})}
    with served(tmp_path, request.param, DECODER_WIDTH, DecoderSize(), ways) as found:
        yield found


@pytest.mark.timeout(900)
def test_a_token_with_and_without_what_is_kept(
    servers: dict[str, Server], benchmark: BenchmarkFixture, request: pytest.FixtureRequest
) -> None:
    context: int = request.node.callspec.params["servers"]
    body = {"prompt": "a" * (context - TOKENS), "max_tokens": 1 + TOKENS}
    seconds: dict[tuple[str, str], list[float]] = {}

    def one(name: str) -> None:
        connection = servers[name].connect()
        token = servers[name].site.token("predict")
        came = [after for after, _ in streamed(connection, token, body)]
        connection.close()
        assert len(came) == 1 + TOKENS
        gaps = [after - before for before, after in pairwise(came)]
        seconds.setdefault((name, "token"), []).append(statistics.median(gaps))
        seconds.setdefault((name, "first"), []).append(came[0])

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
