"""How many tokens each caller may have in a minute, of the prompt and of what is generated.

A bucket for each caller, which holds what a minute gives and fills up steadily. Each worker has
its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from falaj.workloads.inference.errors import RequestError, retry_after

_MINUTE = 60.0
_MOST_CALLERS = 10_000
"""Above it, those whose buckets are full are forgotten, who are as new ones."""


class TokenQuota:
    """The buckets of a worker.

    Args:
        per_minute: tokens for each caller; None: as many as they like.
        clock: seconds that only grow.
    """

    def __init__(
        self, per_minute: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str, tokens: int) -> None:
        """Take what a request may come to; `settle` gives back what it didn't.

        Raises:
            RequestError: 429, there isn't so much now; or 400, there never is.
        """
        most = self.per_minute
        if most is None:
            return
        if tokens > most:
            raise RequestError(
                400,
                f"the request may come to {tokens:,} tokens, of its prompts and max_tokens for "
                f"each text, and {most:,} a minute are allowed to each caller: ask for less",
                field="max_tokens",
            )
        left, now = self._now(caller)
        if tokens > left:
            seconds = math.ceil((tokens - left) * _MINUTE / most)
            raise RequestError(
                429,
                f"the request may come to {tokens:,} tokens, and {int(left):,} of the {most:,} a "
                f"minute that are allowed to you are left; try again in {seconds} s",
                headers=(retry_after(seconds),),
                code="rate_limit_exceeded",
            )
        self._left[caller] = (left - tokens, now)
        if len(self._left) > _MOST_CALLERS:
            self._forget()

    def settle(self, caller: str, taken: int, used: int) -> None:
        """Give back what was taken and not used."""
        if self.per_minute is not None:
            left, now = self._now(caller)
            self._left[caller] = (min(left + taken - used, self.per_minute), now)

    def _now(self, caller: str) -> tuple[float, float]:
        """What a caller has left, and when that is."""
        most, now = self.per_minute or 0, self._clock()
        left, then = self._left.get(caller, (float(most), now))
        return min(left + (now - then) * most / _MINUTE, most), now

    def _forget(self) -> None:
        kept = {caller: self._now(caller) for caller in self._left}
        self._left = {
            caller: each for caller, each in kept.items() if each[0] < (self.per_minute or 0)
        }
