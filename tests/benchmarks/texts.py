"""A language model that is served in two ways side by side, and asked in turns over TLS.

Weights are as training starts with them: times don't depend on what they are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import torch

from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.language import UNKNOWN
from tests.workloads.inference import decoders
from tests.workloads.inference.languages import COMPLETIONS, NAME
from tests.workloads.inference.serving import Server, Site

CHARACTERS = UNKNOWN + "".join(map(chr, range(32, 131)))
KEEPING, FORGETTING = "keeping", "forgetting"


@contextmanager
def served(
    folder: Path,
    context: int,
    width: int,
    size: DecoderSize,
    ways: Mapping[str, tuple[Callable[[bytes], bytes], Mapping[str, Any]]],
) -> Generator[dict[str, Server]]:
    """Serve the same weights in each way, by its name: what is made of the graph, and limits."""
    torch.manual_seed(0)
    module = Decoder(context, len(CHARACTERS), width, size).eval()
    graph, fields = decoders.packaged(module, decoders.serving(context, CHARACTERS))
    found: dict[str, Server] = {}
    try:
        for name, (changed, limits) in ways.items():
            site = Site(folder / name)
            # One row: else a start runs sixteen of the whole context some times.
            site.write(limits={"max_rows": 1, **limits})
            site.publish(changed(graph), fields=fields)
            found[name] = Server(site).serving(1)
        yield found
    finally:
        for server in found.values():
            server.kill()


def streamed(
    connection: HTTPConnection, token: str, body: Mapping[str, Any]
) -> Iterator[tuple[float, Any]]:
    """Ask for a text: each piece, and the seconds until it came."""
    headers = {"Authorization": f"Bearer {token}"}
    asked = json.dumps({"model": NAME, "stream": True, **body})
    start = time.perf_counter()
    connection.request("POST", COMPLETIONS, body=asked, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    while line := answer.readline():
        if line.startswith(b"data: {"):
            yield time.perf_counter() - start, json.loads(line[6:])
