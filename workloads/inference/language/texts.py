"""OpenAI's routes of a model: its texts, and the card that says that it has them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson

from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.language import chats, completions
from falaj.workloads.inference.language.completions import Completion, Steps
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language, Sampling, Text
from falaj.workloads.inference.language.quota import TokenQuota
from falaj.workloads.inference.language.relayed import Relayed
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.inference.settings import Limits


class Texts:
    """Begins a worker's texts.

    Args:
        language: of the model; None: it has none, and every request is refused.
        schema: says the model's name and version.
        limits: of the service.
        run: runs the model here, and words its failure.
        steps: where.
        counters: of the worker.
        engine: generates texts instead, beside; None: they are generated here.
    """

    def __init__(
        self,
        language: Language | None,
        schema: Schema,
        *,
        limits: Limits,
        run: Callable[[Inference], Sequence[Any]],
        steps: Steps,
        counters: Counters,
        engine: Engine | None,
    ) -> None:
        self.engine_failures: dict[str, int] = {}
        """Why the engine gave no answer since the last flush, for the audit record."""
        self._language = language
        self._name = schema.name
        self._version = schema.version
        self._limits = limits
        self._run = run
        self._steps = steps
        self._counters = counters
        self._engine = engine
        self._quota = TokenQuota(limits.tokens_per_minute)
        self._started = int(time.time())
        # What tells callers apart for the engine, which can't know it from another start's.
        self._salt = secrets.token_bytes(32)

    def begin(self, exchange: Exchange, log: bytes) -> Completion:
        """Take a request for texts over; nothing of its body is needed any more.

        Args:
            exchange: the request.
            log: what an access line says of its head.

        Raises:
            RequestError: it is refused, or nobody has room for it now.
        """
        language = self._require_language()
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        is_chat = exchange.route.name == routes.CHATS
        read = chats.read if is_chat else completions.read
        asked = read(exchange.content, self._name, language, self._limits.max_tokens)
        if asked.stream and exchange.version != "1.1":
            raise RequestError(
                400, "stream: HTTP/1.0 knows none; leave it out, or ask by HTTP/1.1",
                field="stream",
            )  # fmt: skip
        engine = self._engine
        if engine is not None and any(each.echoed for each in asked.begun):
            raise RequestError(
                400, "logprobs: the model's engine tells none of prompts: leave echo out, or "
                "logprobs", field="logprobs",
            )  # fmt: skip
        caller = exchange.identity.subject if exchange.identity is not None else ""
        self._quota.take(caller, asked.most_tokens)
        settle = partial(self._quota.settle, caller, asked.most_tokens)
        try:
            return (chats.ChatCompletion if is_chat else Completion)(
                asked, exchange, language=language, name=self._name, version=self._version,
                run=self._run, steps=self._steps, counters=self._counters, log=log,
                settle=settle,
                make=None if engine is None else partial(self._relayed, engine),
            )  # fmt: skip
        except RequestError:
            settle(0)
            raise

    def _relayed(
        self,
        engine: Engine,
        texts: Sequence[Text],
        sampling: Sampling,
        logprobs: int | None,
        whose: bytes,
    ) -> Relayed:
        # What is kept for nobody's next turn is found by none.
        salt = whose if self._limits.keep_seconds else secrets.token_bytes(32)
        return Relayed(
            engine, self._require_language(), texts, sampling, logprobs, salt=self._salt + salt,
            failed=self._count_failure,
        )  # fmt: skip

    def _count_failure(self, reason: str) -> None:
        self.engine_failures[reason] = self.engine_failures.get(reason, 0) + 1

    def cards(self, exchange: Exchange) -> Answer:
        """Answer a request for the model's card, or for all cards, of which there is one.

        Raises:
            RequestError: 404, the model has no texts, or another one is asked for.
        """
        self._require_language()
        card = completions.card(self._name, self._started)
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.name == routes.CARDS:
            return Answer(200, orjson.dumps({"object": "list", "data": [card]}))
        completions.require_model(routes.Router.card_of(exchange.url), self._name)
        return Answer(200, orjson.dumps(card))

    def _require_language(self) -> Language:
        if self._language is None:
            raise RequestError(
                404, f"'{self._name}' isn't a language model that runs in this server; it answers "
                f"at /v2/models/{self._name}/infer", code="model_not_found",
            )  # fmt: skip
        return self._language
