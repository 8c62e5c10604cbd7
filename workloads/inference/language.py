"""A language model's vocabulary, and texts that are generated with it, one character at a time.

A token is a character. There is no memory of what the model has computed for those before: each
step runs it on the last ``context`` characters of every text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.oip import Inference, Schema

TASK: Final = "language"
"""What a manifest says of such a model."""
TOKENS: Final = "tokens"
"""Its input."""
PROBABILITIES: Final = "probabilities"
"""Its output: for each row how likely each character is to follow."""
UNKNOWN: Final = 0
"""Place of what stands for all characters that aren't in the vocabulary."""
_START: Final = "\n"
"""What an empty prompt is begun from."""
STOP: Final = "stop"
LENGTH: Final = "length"


@dataclass(frozen=True)
class Language:
    """The characters that a model knows.

    Attributes:
        characters: by place; the first stands for all others.
        context: how many characters of a text's end matter.
    """

    characters: tuple[str, ...]
    places: Mapping[str, int]
    context: int

    def encode(self, text: str) -> list[int]:
        """Return the places of the characters that matter: at least one."""
        return [self.places.get(each, UNKNOWN) for each in text[-self.context :] or _START]


def read(manifest: Mapping[str, Any], schema: Schema) -> Language | None:
    """Return what a verified manifest says of the characters; None: it is another kind of model.

    Raises:
        InferenceError: it is a language model that can't be one.
    """
    if manifest.get("task") != TASK:
        return None
    given = manifest.get("classes")
    characters: list[Any] = given if isinstance(given, list) else []
    tokens, output = schema.inputs.get(TOKENS), schema.outputs.get(PROBABILITIES)
    if not all(isinstance(each, str) and len(each) == 1 for each in characters):
        raise _wrong("its classes aren't single characters")
    if len(characters) < 2 or len(set(characters)) != len(characters):
        raise _wrong("its classes are fewer than two, or one is there twice")
    if tokens is None or len(schema.inputs) > 1 or (tokens.datatype, tokens.shape) != (
        "INT64", (-1, -1)
    ):  # fmt: skip
        raise _wrong(f"its one input isn't '{TOKENS}', INT64 of the shape [-1, -1]")
    if output is None or output.datatype != "FP32" or output.shape[1:] != (len(characters),):
        raise _wrong(f"it has no output '{PROBABILITIES}', FP32 of {len(characters)} classes")
    return Language(
        tuple(characters), {each: place for place, each in enumerate(characters) if place},
        tokens.context,
    )  # fmt: skip


def _wrong(reason: str) -> InferenceError:
    return InferenceError(f"the package says that its model is one of language, but {reason}")


@dataclass(frozen=True)
class Sampling:
    """How the next character is chosen.

    Attributes:
        temperature: 0 chooses the likeliest, 1 as the model says; more evens the chances out.
        top_p: only the likeliest are chosen from that have so much of the whole together.
        seed: makes the choices repeatable; None: they aren't.
    """

    temperature: float
    top_p: float
    seed: int | None


def choose(
    probabilities: NDArray[np.float32], sampling: Sampling, random: np.random.Generator
) -> int:
    """Return the place of a character that is known.

    Raises:
        RequestError: 500, the model's probabilities aren't numbers.
    """
    chances = probabilities[UNKNOWN + 1 :].astype(np.float64)
    if not np.isfinite(chances).all():
        raise RequestError(500, "the model's probabilities of what follows aren't numbers")
    likeliest = int(chances.argmax())
    if sampling.temperature > 0 and chances[likeliest] > 0:
        with np.errstate(divide="ignore", over="ignore"):
            powers = (np.log(chances) - np.log(chances[likeliest])) / sampling.temperature
        chances = np.exp(powers)
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")
        sums = np.cumsum(chances[order])
        # As many as are needed, and one at least.
        most = min(int(np.searchsorted(sums, sampling.top_p)) + 1, len(order))
        place = int(np.searchsorted(sums[:most], random.random() * sums[most - 1], side="right"))
        likeliest = int(order[min(place, most - 1)])
    return UNKNOWN + 1 + likeliest


class Text:
    """One text that is being generated.

    Args:
        index: its place in the answer.
        places: of the characters that it goes on from.
        most: characters that are generated.
        stops: texts before the first of which it ends.
        random: of this text alone.
    """

    def __init__(
        self,
        index: int,
        places: Sequence[int],
        *,
        most: int,
        stops: Sequence[str],
        random: np.random.Generator,
    ) -> None:
        self.index = index
        self.places = list(places)
        self.random = random
        self.generated = 0
        """Characters, with those that aren't answered because they stop it."""
        self.finish: str | None = None
        """Why it has ended; None: it goes on."""
        self._most = most
        self._stops = stops
        self._held = ""
        # Longer ones than these can't hold the beginning of a stop.
        self._longest = max(map(len, stops), default=0)

    def add(self, character: str) -> str:
        """Take the next character, and return what is sure to belong to the text by now.

        What may be the beginning of a stop is held back until it is known.
        """
        self.generated += 1
        held = self._held + character
        found = max((each for each in self._stops if held.endswith(each)), key=len, default="")
        if found:
            self.finish, self._held = STOP, ""
            return held[: -len(found)]
        if self.generated >= self._most:
            self.finish, self._held = LENGTH, ""
            return held
        keep = next(
            (
                size
                for size in range(min(len(held), self._longest - 1), 0, -1)
                if any(each.startswith(held[-size:]) for each in self._stops)
            ),
            0,
        )
        sure = len(held) - keep
        self._held = held[sure:]
        return held[:sure]


class Generation:
    """Texts that are generated together.

    Args:
        language: the model's.
        texts: of one request.
        sampling: how characters are chosen.
    """

    def __init__(self, language: Language, texts: Sequence[Text], sampling: Sampling) -> None:
        self.texts = texts
        self._language = language
        self._sampling = sampling

    @property
    def generated(self) -> int:
        """Characters of all texts."""
        return sum(each.generated for each in self.texts)

    @property
    def unfinished(self) -> list[Text]:
        """The texts that go on."""
        return [each for each in self.texts if each.finish is None]

    def step(self, run: Callable[[Inference], Sequence[Any]]) -> list[tuple[Text, str]]:
        """Generate a character of each text that goes on; return what is sure by then.

        Texts that are as long as each other are one run's rows.
        """
        by_length: dict[int, list[Text]] = {}
        for text in self.unfinished:
            by_length.setdefault(len(text.places), []).append(text)
        found: list[tuple[Text, str]] = []
        for texts in by_length.values():
            (probabilities,) = run(self._inference(texts))
            for text, row in zip(texts, np.asarray(probabilities), strict=True):
                place = choose(row, self._sampling, text.random)
                text.places = [*text.places, place][-self._language.context :]
                found.append((text, text.add(self._language.characters[place])))
        return found

    @staticmethod
    def _inference(texts: Sequence[Text]) -> Inference:
        made = Inference()
        made.feed = {TOKENS: np.array([each.places for each in texts], dtype=np.int64)}
        made.rows, made.outputs = len(texts), [PROBABILITIES]
        return made
