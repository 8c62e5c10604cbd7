"""A server of OpenAI's completions beside this one that runs a language model: vLLM.

It is asked for tokens and answers with tokens, by their numbers: what callers send is cut into
tokens here, and what they get is put together here, so that it needs no vocabulary and sees no
text. Each text is one call, that streams. Where a text outgrows the window that is looked back on,
another call goes on with the window that begins anew, as this server does by itself.

``return_token_ids``, which vLLM has since 0.10.2, is needed; ``cache_salt``, so that no caller
finds by time what another one sent, since 0.9.
https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#completions-api

Nothing that it answers is believed unchecked: sizes, numbers and the time that it takes are
bounded. https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from falaj.workloads.documents import is_dictionary, is_sequence, mapping
from falaj.workloads.inference.language.generation import Sampling

LEAST_BIAS: Final = -100
"""Added to the logit of what is never to be generated: the least that is allowed."""
_MOST_EVENT: Final = 1 << 20
"""Bytes of an event: a token with its likelihoods has some hundred."""
_MOST_EMPTY: Final = 64
"""Events in a row that bring nothing."""
_LOOK_SECONDS: Final = 2.0
_TOKEN: Final = "token_id:"  # noqa: S105 - of a text
_DONE: Final = b"[DONE]"
_STOP: Final = "stop"
_LENGTH: Final = "length"


class EngineError(Exception):
    """The engine gave no answer that can be used; the message says why, and has none of a text.

    ``slow`` tells that it took too long; ``refused`` that it took this request for a wrong one.
    """

    def __init__(self, message: str, *, slow: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.slow = slow
        self.refused = refused


@dataclass(frozen=True)
class Going:
    """How a text is gone on with.

    Attributes:
        tokens: it begins with, at least one.
        most: to generate.
        sampling: how they are chosen.
        seed: of this call alone; None: what is drawn isn't repeatable.
        end: the token that ends a text; None: none does.
        never: tokens that aren't to be generated.
        logprobs: how many of the likeliest are told with each; None: nothing is.
        salt: tells callers apart, who find nothing of each other's.
    """

    tokens: Sequence[int]
    most: int
    sampling: Sampling
    seed: int | None
    end: int | None
    never: Sequence[int]
    logprobs: int | None
    salt: str


@dataclass(frozen=True)
class Chosen:
    """A token that was generated.

    Attributes:
        place: its number.
        logprob: natural logarithm of its probability; None: it wasn't asked for.
        likeliest: the same of the likeliest, by number, the likeliest first.
    """

    place: int
    logprob: float | None = None
    likeliest: Mapping[int, float] | None = None


def body_of(going: Going, model: str) -> bytes:
    """Return the request, of which nothing is a caller's own but numbers that were checked."""
    sampling = going.sampling
    document: dict[str, Any] = {
        "model": model, "prompt": list(going.tokens), "max_tokens": going.most, "n": 1,
        "stream": True, "return_token_ids": True, "cache_salt": going.salt,
        # What is the end, the template says: of the engine's own none is known.
        "ignore_eos": True, "stop_token_ids": [] if going.end is None else [going.end],
        # Where nothing at all may be drawn from, the likeliest is left.
        "temperature": sampling.temperature if sampling.top_p else 0.0,
        "top_p": sampling.top_p or 1.0,
    }  # fmt: skip
    if going.seed is not None:
        document["seed"] = going.seed
    if going.never:
        document["logit_bias"] = {str(each): LEAST_BIAS for each in going.never}
    if going.logprobs is not None:
        # Of what is never generated, some may be among the likeliest, and isn't told.
        document["logprobs"] = going.logprobs + len(going.never)
        document["return_tokens_as_token_ids"] = True
    return orjson.dumps(document)


class Events:
    """The data of server-sent events, put together from pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """Take a piece; return the data of the events that are whole by it.

        Raises:
            EngineError: one is longer than any of a token.
        """
        self._buffer += piece
        *whole, rest = bytes(self._buffer).replace(b"\r\n", b"\n").split(b"\n\n")
        self._buffer = bytearray(rest)
        if max(map(len, (rest, *whole))) > _MOST_EVENT:
            raise EngineError(f"an event has more than {_MOST_EVENT} bytes")
        return [data for each in whole if (data := _data_of(each))]

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an event is there that isn't whole."""
        return not self._buffer.strip()


def _data_of(event: bytes) -> bytes:
    lines = [each.removeprefix(b"data:") for each in event.split(b"\n") if each[:5] == b"data:"]
    return b"\n".join(each.removeprefix(b" ") for each in lines)


def read_event(data: bytes, going: Going, size: int) -> tuple[list[Chosen], str | None]:
    """Return the tokens of an event, and why the text ends, which is None where it goes on.

    Args:
        data: of the event.
        going: what was asked for.
        size: how many tokens there are.

    Raises:
        EngineError: it isn't one, or tells of an error.
    """
    try:
        document: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineError("an event isn't JSON") from error
    if not is_dictionary(document) or "error" in document:
        raise EngineError("it tells of an error" if is_dictionary(document) else _WRONG)
    choices = document.get("choices")
    if not is_sequence(choices) or len(choices) > 1:
        raise EngineError("an event has no choices, or several")
    if not choices:  # it has the counts alone
        return [], None
    choice = mapping(choices[0])
    finish, tokens = choice.get("finish_reason"), choice.get("token_ids")
    if choice.get("index") != 0 or finish not in (None, _STOP, _LENGTH):
        raise EngineError("an event is of another text, or ends it for a reason that isn't known")
    if not is_sequence(tokens):
        raise EngineError(
            "an event has no token_ids: vLLM 0.10.2 or a later one is needed, which has them"
        )
    for each in tokens:
        if type(each) is not int or not 0 <= each < size or each in going.never:
            raise EngineError("an event has a token that isn't one that may be generated")
    if going.logprobs is None:
        return [Chosen(each) for each in tokens], finish
    told = mapping(choice.get("logprobs"))
    own, likeliest = told.get("token_logprobs"), told.get("top_logprobs")
    if not is_sequence(own) or not is_sequence(likeliest):
        raise EngineError("an event has no likelihoods, which were asked for")
    if not len(tokens) == len(own) == len(likeliest):
        raise EngineError("an event has likelihoods of other tokens than its own")
    return [
        Chosen(token, _number(one), _likeliest(others, going, size))
        for token, one, others in zip(tokens, own, likeliest, strict=True)
    ], finish


_WRONG: Final = "an event isn't an object"


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise EngineError("a likelihood isn't a number")
    return float(value)


def _likeliest(value: Any, going: Going, size: int) -> dict[int, float]:
    """The likeliest that may be told, by number."""
    found: dict[int, float] = {}
    for name, number in mapping(value).items():
        digits = name.removeprefix(_TOKEN)
        if not (name.startswith(_TOKEN) and digits.isascii() and digits.isdecimal()):
            raise EngineError("a likelihood is of no token's number")
        if len(digits) > len(str(size)) or int(digits) >= size:
            raise EngineError("a likelihood is of a token that there isn't")
        if int(digits) not in going.never:
            found[int(digits)] = _number(number)
    order = sorted(found, key=lambda each: (-found[each], each))
    return {each: found[each] for each in order[: going.logprobs]}


class Engine:
    """Connections to one engine, for one model.

    Args:
        url: scheme, host and port, on the loopback interface.
        model: its name there.
        size: tokens that it tells apart.
        timeout_seconds: from a token to the next one, and to the first one.
        connections: calls under way at most; more wait within the time.
    """

    def __init__(
        self, url: str, model: str, size: int, *, timeout_seconds: float, connections: int
    ) -> None:
        self.url = url
        self.connections = connections
        self._model = model
        self._size = size
        self._seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        """Made with the first call: it belongs to the running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
            )
        return self._session

    async def go_on(self, going: Going) -> AsyncGenerator[list[Chosen]]:
        """Yield the tokens of a text as they come; at the end all were there.

        Closing it ends the call, which the engine notices.

        Raises:
            EngineError: it isn't there, takes too long, or answers what isn't an answer.
        """
        try:
            async with asyncio.timeout(self._seconds) as patience:
                async with self._open().post(
                    f"{self.url}/v1/completions", data=body_of(going, self._model),
                    headers={"Content-Type": "application/json"}, allow_redirects=False,
                ) as answer:  # fmt: skip
                    if answer.status != 200:
                        # What it says of the reason may have what it was asked.
                        raise EngineError(
                            f"it answered {answer.status}",
                            refused=answer.status in {400, 404, 422},
                        )
                    async for found in self._read(answer, going):
                        patience.reschedule(None)
                        yield found
                        patience.reschedule(asyncio.get_running_loop().time() + self._seconds)
        except TimeoutError as error:
            raise EngineError(
                f"it gave no token within {self._seconds:g} seconds", slow=True
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(f"it can't be reached ({type(error).__name__})") from error

    async def _read(
        self, answer: aiohttp.ClientResponse, going: Going
    ) -> AsyncGenerator[list[Chosen]]:
        events, left, empty = Events(), going.most, 0
        async for piece in answer.content.iter_any():
            for data in events.add(piece):
                if data == _DONE:
                    raise EngineError("it ended a text early")
                chosen, finish = read_event(data, going, self._size)
                left -= len(chosen)
                empty = 0 if chosen else empty + 1
                if left < 0 or empty > _MOST_EMPTY:
                    raise EngineError("it gave more tokens than were asked for, or none at all")
                ended = bool(chosen) and chosen[-1].place == going.end
                if any(each.place == going.end for each in chosen[:-1]):
                    raise EngineError("it gave tokens after the one that ends a text")
                if finish == _STOP and not ended:
                    # Some leave the token out that they stop at.
                    if going.end is None:
                        raise EngineError("it ended a text that nothing ends")
                    chosen, ended = [*chosen, Chosen(going.end, 0.0, {})], True
                if chosen:
                    yield chosen
                if ended or left == 0:
                    return
                if finish is not None:
                    raise EngineError("it ended a text early")
        raise EngineError(
            "its answer broke off" if events.is_empty else "its answer broke off within an event"
        )

    async def is_ready(self) -> bool:
        """Tell whether it can be asked."""
        try:
            async with self._open().get(
                f"{self.url}/health", timeout=aiohttp.ClientTimeout(total=_LOOK_SECONDS),
                allow_redirects=False,
            ) as answer:  # fmt: skip
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError):
            return False

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
