"""OpenAI's API for language models: `/v1/completions`, and `/v1/models` that lists the one served.

https://platform.openai.com/docs/api-reference/completions: a request is checked whole before it
starts, and what it asks for that isn't offered is refused by name. Its text goes neither into logs
nor metrics.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, ClassVar, Final, Protocol, cast

import numpy as np
import orjson

from falaj.workloads.documents import is_dictionary
from falaj.workloads.inference.connections.http import EVENTS, Answer, Exchange, event
from falaj.workloads.inference.errors import RequestError, json_of
from falaj.workloads.inference.language.generation import (
    Generation,
    Growing,
    Language,
    Prompt,
    Sampling,
    Text,
)
from falaj.workloads.inference.language.likelihoods import MOST_LOGPROBS
from falaj.workloads.inference.language.prefixes import Begun, Left, whose
from falaj.workloads.inference.language.relayed import Relayed
from falaj.workloads.inference.metrics import GENERATED, PROMPT, Counters
from falaj.workloads.inference.protocol.oip import Inference

MOST_PROMPTS: Final = 16
MOST_CHOICES: Final = 8
MOST_TEXTS: Final = 16
"""Of a request: its prompts times their choices, which are the rows of a run."""
MOST_STOPS: Final = 4
MOST_STOP_CHARACTERS: Final = 128
MOST_ECHOED: Final = 65_536
"""Characters of prompts that an answer gives back."""
MOST_TEMPERATURE: Final = 2.0
USUAL_TOKENS: Final = 16
SEEDS: Final = (-(2**63), 2**63 - 1)
OBFUSCATION: Final = "include_obfuscation"
"""What pads the pieces of a stream, and isn't offered."""
OF_VERSION: Final = "version-"
"""Before the version's number in an answer's ``system_fingerprint``."""
_DONE: Final = event(b"[DONE]")


# -- requests ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A checked request.

    Attributes:
        prompts: at least one, each as long as it was sent.
        begun: the tokens of each.
        most: tokens to generate for each text.
        choices: texts for each prompt.
        usage: whether a stream ends with the counts of tokens.
        logprobs: how many of the likeliest tokens are told with each; None: no likelihoods are.
        callers: texts by which a caller tells its own callers apart, or None.
    """

    prompts: Sequence[str]
    begun: Sequence[Prompt]
    most: int
    choices: int
    sampling: Sampling
    stops: Sequence[str]
    stream: bool
    usage: bool
    echo: bool
    logprobs: int | None
    callers: Sequence[str | None] = ()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(each.count for each in self.begun)

    @property
    def most_tokens(self) -> int:
        """What it may come to: those, and all that may be generated."""
        return self.prompt_tokens + self.most * self.choices * len(self.begun)


class Fields:
    """The members of a request, taken out one by one; null is as if one weren't there.

    Args:
        body: of the request.
        needed: the member that has what is gone on from.

    Raises:
        RequestError: 400, it is no object.
    """

    def __init__(self, body: bytes | bytearray, needed: str) -> None:
        document = json_of(body)
        if type(document) is not dict:
            raise RequestError(400, f"the request must be a JSON object with a model and {needed}")
        self.values = cast("dict[str, Any]", document)

    def take(self, name: str) -> Any:
        """Return a member, which then is out; None: it isn't there."""
        return self.values.pop(name, None)

    @staticmethod
    def error(name: str, given: object, allowed: str) -> RequestError:
        """Return the refusal of a member's value."""
        return RequestError(400, f"{name}: got {_shown(given)}, allowed is {allowed}", field=name)

    def whole(self, name: str, low: int, high: int, usual: int | None) -> int | None:
        """Return a whole number from ``low`` to ``high``, else ``usual``."""
        value = self.take(name)
        if value is None:
            return usual
        if type(value) is not int or not low <= value <= high:
            raise self.error(name, value, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, high: float) -> float:
        """A number from 0 to another; by default 1."""
        value = self.take(name)
        if value is None:
            return 1.0
        if type(value) not in (int, float) or not 0 <= value <= high:
            raise self.error(name, value, f"a number from 0 to {high:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return whether something is asked for; by default it isn't."""
        value = self.take(name)
        if value is None:
            return False
        if type(value) is not bool:
            raise self.error(name, value, "true or false")
        return value

    def texts(self, name: str, most: int, value: Any) -> list[str]:
        """A text, or a list of up to so many."""
        found = [value] if type(value) is str else value
        if (
            type(found) is not list
            or not 1 <= len(cast("list[Any]", found)) <= most
            or any(type(each) is not str for each in cast("list[Any]", found))
        ):
            # Without what was given: it may be a person's words.
            raise RequestError(
                400, f"{name}: allowed is a text, or a list of 1 to {most} texts", field=name
            )
        return cast("list[str]", found)

    def refuse(self, name: str, *allowed: Any) -> None:
        """Refuse a member that would change the answer and isn't offered."""
        value = self.take(name)
        if value is not None and value not in allowed:
            words = " or ".join(orjson.dumps(each).decode() for each in (*allowed, None))
            raise self.error(name, value, f"{words}: it isn't offered here")

    def model(self, served: str) -> None:
        """Refuse a request for another model.

        Raises:
            RequestError: 404, or 400 where none is named.
        """
        given = self.take("model")
        if type(given) is not str:
            raise self.error("model", given, f'the name of the model that is served, "{served}"')
        require_model(given, served)

    def sampling(self) -> Sampling:
        """Return how tokens are to be chosen."""
        return Sampling(
            temperature=self.number("temperature", MOST_TEMPERATURE),
            top_p=self.number("top_p", 1),
            seed=self.whole("seed", *SEEDS, None),
        )

    def streaming(self) -> tuple[bool, bool]:
        """Return whether a stream is asked for, and the counts of tokens at its end."""
        stream, usage = self.flag("stream"), self._usage()
        if usage and not stream:
            raise RequestError(
                400, "stream_options is for streams: set stream, or leave it out",
                field="stream_options",
            )  # fmt: skip
        return stream, usage

    def _usage(self) -> bool:
        options = self.take("stream_options")
        if options is None:
            return False
        known: dict[str, Any] = dict(options) if is_dictionary(options) else {"": options}
        usage = known.pop("include_usage", None)
        padded = known.pop(OBFUSCATION, None)
        # For Python 1 is true and 0 is false.
        if known or type(usage) not in (NoneType, bool) or not (padded is None or padded is False):
            raise self.error(
                "stream_options", options,
                f'{{"include_usage": true}} or false; {OBFUSCATION} may be false',
            )  # fmt: skip
        return usage is True

    def stops(self) -> list[str]:
        """Return the texts before which a text ends."""
        given = self.take("stop")
        if given is None or given == []:
            return []
        found = self.texts("stop", MOST_STOPS, given)
        if not all(1 <= len(each) <= MOST_STOP_CHARACTERS for each in found):
            raise RequestError(
                400, f"stop: allowed are texts of 1 to {MOST_STOP_CHARACTERS} characters",
                field="stop",
            )  # fmt: skip
        return found

    def callers(self, *names: str) -> list[str | None]:
        """Take texts about a caller's own caller, of whom nothing else here knows."""
        found = [self.take(name) for name in names]
        for name, value in zip(names, found, strict=True):
            if value is not None and type(value) is not str:
                raise RequestError(400, f"{name}: allowed is a text", field=name)
        return found

    def refuse_others(self, allowed: Sequence[str]) -> None:
        """Refuse what is left, as nothing is known by such a name."""
        if self.values:
            name = sorted(self.values)[0]
            raise RequestError(
                400,
                f"'{name[:80]}' is no field of a request here; allowed are {', '.join(allowed)}",
                field=name[:80],
            )


def _shown(value: object) -> str:
    """Return a value for a message; of lists and objects, which may be deep, what they are."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def read(body: bytes | bytearray, model: str, language: Language, most_tokens: int) -> Asked:
    """Check a request's body.

    Args:
        body: of the request.
        model: the name of the one that is served.
        language: its tokens.
        most_tokens: that may be asked for.

    Raises:
        RequestError: 404, it is for another model; 400 for anything else that is wrong, with the
            field, what was given and what is allowed.
    """
    fields = Fields(body, "a prompt")
    fields.model(model)
    prompts = fields.texts("prompt", MOST_PROMPTS, fields.take("prompt"))
    allowed = language.most_characters
    if allowed is not None and (given := sum(map(len, prompts))) > allowed:
        raise RequestError(
            400, f"prompt: {given} characters in all; allowed are {allowed}, of which the last "
            f"{language.context} tokens of each are looked back on", field="prompt",
        )  # fmt: skip
    choices = fields.whole("n", 1, MOST_CHOICES, 1) or 1
    if len(prompts) * choices > MOST_TEXTS:
        raise fields.error(
            "n", choices, f"at most {MOST_TEXTS} texts of all {len(prompts)} prompts together"
        )
    most = fields.whole("max_tokens", 1, most_tokens, min(USUAL_TOKENS, most_tokens))
    sampling = fields.sampling()
    stream, usage = fields.streaming()
    echo = fields.flag("echo")
    if echo and sum(map(len, prompts)) * choices > MOST_ECHOED:
        raise RequestError(
            400, f"echo: the prompts' characters times n are more than {MOST_ECHOED}, the most "
            "that is given back; leave echo out, or send less", field="echo",
        )  # fmt: skip
    stops = fields.stops()
    logprobs = fields.whole("logprobs", 0, MOST_LOGPROBS, None)
    callers = fields.callers("user")
    _refuse_others(fields, choices)
    is_judged = echo and logprobs is not None
    begun = [language.prompt(each, is_judged=is_judged) for each in prompts]
    return Asked(
        prompts, begun, most or 1, choices, sampling, stops, stream, usage, echo, logprobs, callers
    )


def require_model(given: str, model: str) -> None:
    """Refuse another model than the one that is served.

    Raises:
        RequestError: 404.
    """
    if given != model:
        raise RequestError(
            404, f"unknown model '{given[:80]}'; served is '{model}'", field="model",
            code="model_not_found",
        )  # fmt: skip


def _refuse_others(fields: Fields, choices: int) -> None:
    fields.refuse("best_of", choices)
    fields.refuse("frequency_penalty", 0)
    fields.refuse("presence_penalty", 0)
    fields.refuse("logit_bias", {})
    fields.refuse("suffix")
    fields.refuse_others(FIELDS)


FIELDS: Final = (
    "model", "prompt", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options",
    "stop", "seed", "echo", "logprobs", "user",
)  # fmt: skip


# -- answers -------------------------------------------------------------------------------


class Steps(Protocol):
    """Who runs the steps of texts: the worker's queue."""

    def begin_text(self, size: int) -> None:
        """Take a place for a request's texts, and so many bytes for what is kept of them.

        Raises:
            RequestError: 503, there is none, or there aren't so many.
        """

    def free(self, size: int) -> None:
        """Give bytes back."""

    def end_text(self) -> None:
        """Give the place back."""

    def find(self, whose: bytes, tokens: Sequence[int], most: int) -> Begun | None:
        """Return what an earlier text of a caller left of this one, which may come to so many
        tokens; None: nothing."""
        ...

    def keep(self, whose: bytes, left: Left) -> None:
        """Take what a text left, for the next one of the same caller."""

    async def step(self, rows: int, work: Callable[[], Any], seconds: float | None) -> Any:
        """Do a step's work in a thread; return what it does.

        Args:
            rows: of its runs.
            work: the step's.
            seconds: that it may take; None: as a run over whole rows.
        """


class Completion(Awaitable[Answer]):
    """A request for texts, that has a place, and its answer.

    Args:
        asked: what for.
        exchange: the request; its line in the access log tells the tokens.
        language: the model's.
        name: the model's.
        version: of the model.
        run: runs it, and words its failure.
        steps: where.
        counters: of the worker.
        log: what an access line says of the request's head.
        settle: told how many tokens there were in the end.
        make: makes what an engine beside generates, of the texts, how tokens are chosen, how many
            likelihoods are told, and what tells callers apart. Default: texts are generated here.
    """

    prefix: ClassVar[str] = "cmpl"
    """Of an answer's id."""
    kind: ClassVar[str] = "text_completion"
    """What an answer is called."""
    piece: ClassVar[str] = kind
    """What an event of a stream is called."""

    def __init__(
        self,
        asked: Asked,
        exchange: Exchange,
        *,
        language: Language,
        name: str,
        version: str,
        run: Callable[[Inference], Sequence[Any]],
        steps: Steps,
        counters: Counters,
        log: bytes,
        settle: Callable[[int], None],
        make: Callable[[Sequence[Text], Sampling, int | None, bytes], Relayed] | None = None,
    ) -> None:
        self.hung_up: Callable[[], bool] = lambda: False
        """Tells whether nobody hears the answer."""
        self._asked = asked
        self._exchange = exchange
        self._run = run
        self._steps = steps
        self._counters = counters
        self._log = log
        self._settle = settle
        self._has_begun = False
        # Of the last step, as the next one may take.
        self._seconds: float | None = None
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}", "object": self.kind,
            "created": int(time.time()), "model": name,
            "system_fingerprint": f"{OF_VERSION}{version}",
        }  # fmt: skip
        texts = _texts(asked)
        self._whose = whose(exchange.identity, asked.callers)
        # Whether a step is under way, or came to no end: then nobody knows what is kept.
        self._is_stepping = False
        # By text, until it ends.
        self._kept_bytes = {
            text.index: language.bytes_of(text.length + asked.most) for text in texts
        }
        steps.begin_text(sum(self._kept_bytes.values()))
        self._generation: Growing
        if make is not None:
            self._generation = make(texts, asked.sampling, asked.logprobs, self._whose)
        else:
            begun = self._begun(texts)
            self._generation = Generation(language, texts, asked.sampling, asked.logprobs, begun)

    def _begun(self, texts: Sequence[Text]) -> Begun | None:
        """What needn't be run again: of a text that is alone, whole, and not to be judged."""
        text = texts[0]
        if len(texts) > 1 or text.skipped or text.echoed:
            return None
        return self._steps.find(self._whose, text.places, text.length + self._asked.most)

    def _keep(self) -> None:
        left = self._generation.leave()
        if left is not None:
            self._steps.keep(self._whose, left)

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._answer().__await__()

    async def _answer(self) -> Answer:
        if not self._asked.stream:
            return await self._whole()
        events = self._events()
        # What fails before anything is sent has a status of its own.
        first = b""
        while not first:
            first = await anext(events)
        return Answer(200, first, EVENTS, events=events)

    async def _whole(self) -> Answer:
        parts: list[list[str]] = [[self._echoed(text)] for text in self._generation.texts]
        try:
            while self._generation.unfinished:
                for text, more in await self._step():
                    parts[text.index].append(more)
        finally:
            self._end()
        choices = [
            self.choice(text, "".join(parts[text.index])) for text in self._generation.texts
        ]
        return Answer(200, orjson.dumps({**self._head, "choices": choices, "usage": self._usage}))

    async def _events(self) -> AsyncGenerator[bytes]:
        try:
            echoed = {text.index: self._echoed(text) for text in self._generation.texts}
            first = self.beginnings(self._generation.texts)
            while self._generation.unfinished:
                piece = b""
                for text, more in await self._step():
                    shown = echoed.pop(text.index, "") + more
                    if shown or text.finish:
                        piece += self._event([self.part(text, shown)])
                if piece:
                    piece, first = b"".join(self._event([each]) for each in first) + piece, ()
                yield piece
            if self._asked.usage:
                yield self._event([], self._usage)
            yield _DONE
        finally:
            self._end()

    async def _step(self) -> list[tuple[Text, str]]:
        if self.hung_up():
            raise RequestError(408, "the client hung up before its text was whole", close=True)
        self._is_stepping = True
        grown = await self._stepped(self._generation)
        self._is_stepping = False
        if grown and not self._has_begun:
            self._has_begun = True
            self._counters.began(time.perf_counter() - self._exchange.started)
        for text, _ in grown:
            if text.finish is not None:
                self._steps.free(self._kept_bytes.pop(text.index))
                self._keep()
        return grown

    async def _stepped(self, generation: Growing) -> list[tuple[Text, str]]:
        if isinstance(generation, Relayed):
            return await generation.step(self.hung_up)
        assert isinstance(generation, Generation)  # noqa: S101 - there is no third one
        work = partial(self._timed_step, generation)
        found = await self._steps.step(len(generation.unfinished), work, self._seconds)
        return cast("list[tuple[Text, str]]", found)

    def _timed_step(self, generation: Generation) -> list[tuple[Text, str]]:
        start = time.perf_counter()
        found = generation.step(self._run)
        self._seconds = time.perf_counter() - start
        return found

    def _end(self) -> None:
        """Give the place back and what is still kept, and count."""
        self._steps.free(sum(self._kept_bytes.values()))
        if not self._is_stepping:
            self._keep()
        self._generation.drop()
        self._steps.end_text()
        tokens = {PROMPT: self._asked.prompt_tokens, GENERATED: self._generation.generated}
        self._settle(sum(tokens.values()))
        self._counters.generated(time.perf_counter() - self._exchange.started, tokens)
        self._counters.reused += self._generation.reused
        self._exchange.log = self._log + b"".join(
            b',"%b_tokens":%d' % (kind.encode(), count) for kind, count in tokens.items()
        )

    def _echoed(self, text: Text) -> str:
        asked = self._asked
        return asked.prompts[text.index // asked.choices] if asked.echo else ""

    @property
    def logprobs(self) -> int | None:
        """How many of the likeliest tokens are told with each; None: no likelihoods are."""
        return self._asked.logprobs

    def choice(self, text: Text, shown: str) -> Mapping[str, Any]:
        """Return what an answer says of a text that has ended."""
        logprobs = None if self.logprobs is None else text.told.take(shown)
        return {
            "index": text.index, "text": shown, "logprobs": logprobs, "finish_reason": text.finish,
        }  # fmt: skip

    def part(self, text: Text, shown: str) -> Mapping[str, Any]:
        """Return what an event of a stream says of a text that has grown."""
        return self.choice(text, shown)

    def beginnings(self, texts: Sequence[Text]) -> Sequence[Mapping[str, Any]]:
        """Return what events of a stream say before anything of the texts is there."""
        del texts
        return ()

    @property
    def _usage(self) -> Mapping[str, Any]:
        prompt, generated = self._asked.prompt_tokens, self._generation.generated
        return {
            "prompt_tokens": prompt, "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": self._generation.reused},
        }  # fmt: skip

    def _event(self, choices: Sequence[Any], usage: Mapping[str, Any] | None = None) -> bytes:
        document: dict[str, Any] = {**self._head, "object": self.piece, "choices": choices}
        if self._asked.usage:
            document["usage"] = usage
        return event(orjson.dumps(document))


def _texts(asked: Asked) -> list[Text]:
    found: list[Text] = []
    for prompt in asked.begun:
        for choice in range(asked.choices):
            seed = asked.sampling.seed
            random = np.random.default_rng(None if seed is None else [seed % 2**64, choice])
            text = Text(
                len(found), prompt.places, skipped=prompt.skipped, echoed=prompt.echoed,
                most=asked.most, stops=asked.stops, random=random,
            )  # fmt: skip
            found.append(text)
    return found


def card(name: str, created: int) -> dict[str, Any]:
    """Return what `/v1/models` says of the served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "falaj"}
