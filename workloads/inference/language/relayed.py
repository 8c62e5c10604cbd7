"""Texts that an engine beside generates: what `Generation` is for those generated here."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from falaj.workloads.inference.errors import RequestError, retry_after
from falaj.workloads.inference.language.engine import Chosen, Engine, EngineError, Going
from falaj.workloads.inference.language.generation import Growing, Language, Sampling, Text
from falaj.workloads.inference.language.likelihoods import Judged, Shown

_LOOK_SECONDS: Final = 0.2
"""How often it is looked whether somebody still hears the answer."""
_SEEDS: Final = 2**63 - 1


class Relayed(Growing):
    """Texts that are generated together, each by calls of its own.

    Args:
        engine: generates them.
        language: the model's.
        texts: of one request, none of which is to be judged.
        sampling: how tokens are chosen.
        logprobs: how many of the likeliest are told with each token; None: nothing is.
        salt: tells callers apart, for the engine alone.
        failed: told why the engine gave no answer, in words without any of a text.
    """

    def __init__(
        self,
        engine: Engine,
        language: Language,
        texts: Sequence[Text],
        sampling: Sampling,
        logprobs: int | None,
        *,
        salt: bytes,
        failed: Callable[[str], None],
    ) -> None:
        super().__init__(language, texts, logprobs)
        self._engine = engine
        self._sampling = sampling
        self._salt = hashlib.sha256(salt).hexdigest()
        self._failed = failed
        self._calls: list[asyncio.Task[None]] = []
        self._grown: asyncio.Queue[tuple[Text, str] | EngineError] = asyncio.Queue()
        self._came = asyncio.Event()
        # Texts by index, whose end was told.
        self._told: set[int] = set()
        # Why no more comes, once what came before is told.
        self._broken: EngineError | None = None

    async def step(self, hung_up: Callable[[], bool]) -> list[tuple[Text, str]]:
        """Wait until texts have grown; return what is sure of those that have.

        Raises:
            RequestError: 408, nobody hears it any more; 503, the engine isn't there, or what
                it answers isn't an answer; 504, it takes too long; 500, it refuses.
        """
        if not self._calls:
            self._calls = [asyncio.ensure_future(self._call(each)) for each in self.texts]
        await self._wait(hung_up)
        # All that has come by now, without waiting: of a text that has ended nothing is left.
        found: dict[int, tuple[Text, str]] = {}
        while self._broken is None and not self._grown.empty():
            each = self._grown.get_nowait()
            if isinstance(each, EngineError):
                self._broken = each
            else:
                text, more = each
                before = found.get(text.index, (text, ""))[1]
                found[text.index] = text, before + more
        if not found and self._broken is not None:
            raise self._refusal(self._broken) from self._broken
        self._told |= {index for index, (text, _) in found.items() if text.finish is not None}
        return list(found.values())

    @property
    def unfinished(self) -> list[Text]:
        """The texts whose end wasn't told yet, whether or not it has come."""
        return [each for each in self.texts if each.index not in self._told]

    async def _wait(self, hung_up: Callable[[], bool]) -> None:
        """Wait until something has come."""
        while self._broken is None and self._grown.empty():
            self._came.clear()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._came.wait()
            except TimeoutError as error:
                if hung_up():
                    raise RequestError(
                        408, "the client hung up before its text was whole", close=True
                    ) from error

    def _come(self, each: tuple[Text, str] | EngineError) -> None:
        self._grown.put_nowait(each)
        self._came.set()

    def drop(self) -> None:
        """End the calls, however far the texts have come: the engine then generates no more."""
        for each in self._calls:
            each.cancel()

    async def _call(self, text: Text) -> None:
        try:
            while text.finish is None:
                await self._window(text)
        except EngineError as error:
            self._come(error)
        except Exception as error:  # who waits for the text has to hear of it
            self._come(EngineError(f"a fault of ours: {type(error).__name__}"))
            raise

    async def _window(self, text: Text) -> None:
        """Go on with a text as far as one window goes."""
        language, sampling = self._language, self._sampling
        self._look_back(text)
        # A full window says one token more.
        room = language.context + 1 - len(text.places)
        going = Going(
            tokens=tuple(text.places),
            most=min(text.most - text.generated, room),
            sampling=sampling,
            seed=None if sampling.seed is None else int(text.random.integers(0, _SEEDS)),
            end=language.end,
            never=(*range(language.first), *language.never),
            logprobs=self._logprobs,
            salt=self._salt,
        )
        async with aclosing(self._engine.go_on(going)) as answered:
            async for chosen in answered:
                for each in chosen:
                    self._come((text, self._add(text, each)))
                    if text.finish is not None:
                        return

    def _add(self, text: Text, chosen: Chosen) -> str:
        if chosen.place == self._language.end:
            return self._ended(text)
        return self._added(text, chosen.place, lambda shown: self._judge(text, chosen, shown))

    def _judge(self, text: Text, chosen: Chosen, shown: Shown) -> None:
        if chosen.logprob is None or chosen.likeliest is None:
            return
        names = self._language.vocabulary.shown
        likeliest = {names[each]: number for each, number in chosen.likeliest.items()}
        likeliest.setdefault(shown.name, chosen.logprob)
        text.told.add(Judged(shown, chosen.logprob, likeliest))

    def _refusal(self, error: EngineError) -> RequestError:
        self._failed(str(error))
        print(f"the engine failed on a request: {error}"[:300], file=sys.stderr, flush=True)
        again = (retry_after(1),)
        if error.refused:
            return RequestError(500, "the model's engine did not take this request")
        if error.slow:
            return RequestError(
                504, "the model's engine took too long; try again later", headers=again
            )
        return RequestError(
            503, "the model's engine is busy or not there; try again", headers=again
        )
