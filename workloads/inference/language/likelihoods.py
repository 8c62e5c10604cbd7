"""How likely a model says that the tokens of a text are: the ``logprobs`` of a completion.

They are the model's own, natural logarithms, before temperature and ``top_p``:
https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.vocabulary import content_of

MOST_LOGPROBS: Final = 5
"""Likeliest tokens that are told beside each."""


@dataclass(frozen=True)
class Shown:
    """What is told of a token.

    Attributes:
        name: its text, or its bytes where these are no whole characters.
        length: the characters that are whole with it, and weren't before.
    """

    name: str
    length: int


@dataclass(frozen=True)
class Judged:
    """A token of a text.

    Attributes:
        token: of the text.
        logprob: natural logarithm of its probability; None: nothing is before it.
        likeliest: the same of the likeliest and of itself, the likeliest first; None likewise.
    """

    token: Shown
    logprob: float | None = None
    likeliest: Mapping[str, float] | None = None


def of_logits(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithms of the probabilities that logits (..., V) stand for."""
    numbers = logits.astype(np.float64)
    numbers -= numbers.max(axis=-1, keepdims=True)
    return numbers - np.log(np.exp(numbers).sum(axis=-1, keepdims=True))


def of_probabilities(probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return logarithms of probabilities (..., V); 0 is taken for the least number above it."""
    least = np.finfo(np.float32).smallest_subnormal
    return np.log(np.maximum(probabilities, least).astype(np.float64))


def judge(
    logprobs: NDArray[np.float64],
    place: int,
    token: Shown,
    names: Sequence[str],
    *,
    first: int,
    most: int,
) -> Judged:
    """Return what is told of a token.

    Args:
        logprobs: of all tokens (V,).
        place: of the token, among these.
        token: what is told of it.
        names: of all.
        first: the first place that is told as likely; those before are never generated.
        most: of the likeliest that are told.

    Raises:
        RequestError: 500, they aren't numbers.
    """
    if not np.isfinite(logprobs).all():
        raise RequestError(500, "the model's probabilities of what follows aren't numbers")
    order = first + np.argsort(-logprobs[first:], kind="stable")[:most]
    likeliest = {str(names[each]): float(logprobs[each]) for each in order.tolist()}
    own = float(logprobs[place])
    likeliest.setdefault(token.name, own)
    return Judged(token, own, likeliest)


class Told:
    """What was told of a text's tokens, and where in the text they stand."""

    def __init__(self) -> None:
        self._waiting: list[Judged] = []
        self._shown = 0
        self._offset = 0

    def add(self, judged: Judged) -> None:
        """Take the next token, whether it is shown yet or not."""
        self._waiting.append(judged)

    def take(self, shown: str) -> Mapping[str, Any]:
        """Return the tokens of what is shown next of the text, in OpenAI's form of completions.

        Offsets are characters from the beginning of all that is shown of the text.
        """
        taken, offsets = self._take(shown)
        return {
            "tokens": [each.token.name for each in taken],
            "token_logprobs": [each.logprob for each in taken],
            "top_logprobs": [each.likeliest for each in taken],
            "text_offset": offsets,
        }

    def take_of_chat(self, shown: str, most: int) -> Mapping[str, Any]:
        """Return the same in OpenAI's form of chats, with ``most`` of the likeliest for each."""
        taken, _ = self._take(shown)
        return {
            "content": [
                {
                    **_named(each.token.name, each.logprob or 0.0),
                    "top_logprobs": [
                        _named(*one) for one in [*(each.likeliest or {}).items()][:most]
                    ],
                }
                for each in taken
            ],
            "refusal": None,
        }

    def _take(self, shown: str) -> tuple[list[Judged], list[int]]:
        """The tokens of what is shown next, and where in all that is shown each begins."""
        self._shown += len(shown)
        taken: list[Judged] = []
        offsets: list[int] = []
        for each in self._waiting:
            if self._offset >= self._shown:
                break
            taken.append(each)
            offsets.append(self._offset)
            self._offset += each.token.length
        del self._waiting[: len(taken)]
        return taken, offsets


def _named(name: str, logprob: float) -> Mapping[str, Any]:
    return {"token": name, "logprob": logprob, "bytes": list(content_of(name))}
