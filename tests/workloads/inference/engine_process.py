"""A stand-in for vLLM's server of completions, in a process of its own.

Written from what vLLM documents and from its own models of requests and answers (0.33): it takes
``prompt`` as token ids, streams server-sent events whose choices have ``token_ids`` and, if asked
for, ``logprobs`` with tokens named ``token_id:N``, and ends with ``[DONE]``. The tokens are those
of a graph of Falaj's, run over the whole prompt for each. It also answers as no server should:
``python -m tests.workloads.inference.engine_process GRAPH FOLDER`` reads how from ``FOLDER/mode``
at each request, writes what it was asked into ``FOLDER/asked`` and its port into ``FOLDER/port``.

vLLM itself is asked by `tests/gpu`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Write = Callable[[bytes], Any]


def head(status: int, kind: str = "text/event-stream") -> bytes:
    return (
        f"HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = chunk(b"")


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def choice(tokens: list[int], finish: str | None = None, **more: Any) -> bytes:
    found = {"index": 0, "text": "", "finish_reason": finish, "token_ids": tokens} | more
    return event({"id": "cmpl-1", "object": "text_completion", "choices": [found]})


HOSTILE: dict[str, list[bytes]] = {
    "half": [choice([2]), b'data: {"id": "cmpl'],
    "no json": [b"data: {nothing\n\n"],
    "a list": [event([1])],
    "no tokens": [event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})],
    "another": [choice([2], index=1)],
    "unknown": [choice([10_000])],
    "negative": [choice([-1])],
    "a number": [event({"choices": [{"index": 0, "token_ids": [1.5]}]})],
    "never": [choice([0])],
    "too many": [choice([2] * 50)],
    "early": [choice([2], "length")],
    "ended": [choice([2], "stop")],
    "aborted": [choice([2], "abort")],
    "done": [choice([2]), b"data: [DONE]\n\n"],
    "error": [event({"error": {"message": "words of a text", "code": 500}})],
    "empty": [choice([])] * 100,
    "two": [event({"choices": [{"index": 0, "token_ids": []}, {"index": 1, "token_ids": []}]})],
}


class Engine:
    def __init__(self, graph: Path, folder: Path) -> None:
        self._session = ort.InferenceSession(graph.read_bytes())
        self._folder = folder

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._folder / "port.new"
        port.write_text(str(server.sockets[0].getsockname()[1]))
        port.rename(self._folder / "port")
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answered(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _note(self, document: Any) -> None:
        with (self._folder / "asked").open("a") as file:
            file.write(json.dumps(document) + "\n")

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(each.lower().split(": ", 1) for each in lines[1:] if each)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if lines[0].startswith("GET /health "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return True
        asked = json.loads(body)
        self._note(asked)
        mode = (self._folder / "mode").read_text()
        if mode.isdecimal():
            writer.write(head(int(mode), "application/json") + chunk(b'{"error": "words"}') + LAST)
            return True
        if mode == "hung up":
            return False
        writer.write(head(200))
        if mode in HOSTILE:
            for each in HOSTILE[mode]:
                writer.write(chunk(each))
            writer.write(LAST)
            return False
        if mode == "endless line":
            for _ in range(3):
                writer.write(chunk(b"data: " + b"x" * (1 << 20)))
                await writer.drain()
            return False
        pieces = self._tokens(asked) if mode != "silent" else comments()
        async for each in pieces:
            # Cut anywhere, as a network does.
            for part in (each[:7], each[7:]) if mode == "cut" else (each,):
                writer.write(chunk(part))
                await writer.drain()
            if mode == "slow":
                await self._slowly(reader)
        writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
        return True

    async def _slowly(self, reader: asyncio.StreamReader) -> None:
        """Until the client is gone, which ends the text as it does vLLM's."""
        try:
            async with asyncio.timeout(1):
                ended = not await reader.read(1)
        except TimeoutError:
            return
        if ended:
            self._note("the client hung up")
            raise ConnectionError

    async def _tokens(self, asked: dict[str, Any]) -> AsyncIterator[bytes]:
        tokens: list[int] = asked["prompt"]
        rng = np.random.default_rng(asked.get("seed"))
        for number in range(asked["max_tokens"]):
            (found,) = self._session.run(["logits"], {"tokens": np.array([tokens])})
            logits = np.asarray(found)[0, -1].astype(np.float64)
            said = told(logits, asked.get("logprobs"))
            for each, more in asked.get("logit_bias", {}).items():
                logits[int(each)] += more
            place = int(logits.argmax())
            if asked["temperature"]:
                chances = np.exp((logits - logits.max()) / asked["temperature"])
                place = int(rng.choice(len(chances), p=chances / chances.sum()))
            tokens = [*tokens, place]
            last = number + 1 == asked["max_tokens"]
            ends = place in asked["stop_token_ids"]
            logprobs = None if said is None else said(place)
            finish = "stop" if ends else "length" if last else None
            yield choice([place], finish, logprobs=logprobs)
            if ends:
                return


def told(logits: NDArray[np.float64], most: int | None) -> Callable[[int], Any] | None:
    """What is said of a token: the model's own likelihoods, before all that changes them."""
    if most is None:
        return None
    own = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def said(place: int) -> Any:
        order = dict.fromkeys([place, *np.argsort(-own, kind="stable")[:most].tolist()])
        return {
            "tokens": [f"token_id:{place}"],
            "token_logprobs": [own[place]],
            "top_logprobs": [{f"token_id:{each}": own[each] for each in order}],
            "text_offset": [0],
        }

    return said


async def comments() -> AsyncIterator[bytes]:
    while True:
        yield b": still there\n\n"
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(Engine(Path(sys.argv[1]), Path(sys.argv[2])).serve())
