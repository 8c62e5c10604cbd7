"""A language model's vocabulary, and texts that are generated with it, one character at a time.

A token is a character. What the model has computed for those before is kept, and each step runs it
on the newest one of every text. Packages whose graph can't be told the past are run on the last
``context`` characters at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.inference.cache import CHUNK, CacheForm, Kept, since
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.likelihoods import (
    Judged,
    Told,
    judge,
    of_logits,
    of_probabilities,
)
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.remembering import ASKED, LOGITS

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
_JUDGED_NUMBERS: Final = 1 << 22
"""Logits that one run gives at most, where the characters of prompts are judged."""
STOP: Final = "stop"
LENGTH: Final = "length"


@dataclass(frozen=True)
class Language:
    """The characters that a model knows.

    Attributes:
        characters: by place; the first stands for all others.
        context: how many characters of a text's end matter at most.
        cache: what the model keeps of a text from step to step; None: nothing.
    """

    characters: tuple[str, ...]
    places: Mapping[str, int]
    context: int
    cache: CacheForm | None = None

    def since(self, length: int) -> int:
        """Return the place of the first one that matters of so many characters."""
        if self.cache is None:
            return max(0, length - self.context)
        return since(length, self.context)

    def bytes_of(self, length: int) -> int:
        """Return the bytes that are kept at most of a text that comes to so many characters."""
        return 0 if self.cache is None else self.cache.bytes_of(length)

    def encode(self, text: str, *, whole: bool = False) -> list[int]:
        """Return the places of the characters that matter, at least one; or of all."""
        recent = text if whole else text[self.since(len(text)) :]
        return [self.places.get(each, UNKNOWN) for each in recent or _START]


def read(
    manifest: Mapping[str, Any], schema: Schema, cache: CacheForm | None = None
) -> Language | None:
    """Return what a verified manifest says of the characters; None: it is another kind of model.

    Args:
        manifest: of the package.
        schema: of its model.
        cache: what that keeps of a text.

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
        tokens.context, cache,
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
        skipped: how many came before these.
        echoed: texts of the tokens that it goes on from, each of which is to be judged. Default:
            none is.
        most: characters that are generated.
        stops: texts before the first of which it ends.
        random: of this text alone.
    """

    def __init__(
        self,
        index: int,
        places: Sequence[int],
        *,
        skipped: int = 0,
        echoed: Sequence[str] = (),
        most: int,
        stops: Sequence[str],
        random: np.random.Generator,
    ) -> None:
        self.index = index
        self.places = list(places)
        self.skipped = skipped
        self.echoed = echoed
        self.told = Told()
        """What is known of its tokens, where that is asked for."""
        self.seen = 1 if echoed else self.length
        """Tokens after which the next one is judged, or generated."""
        if echoed:
            self.told.add(Judged(echoed[0]))
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

    @property
    def length(self) -> int:
        """How many tokens there are by now."""
        return self.skipped + len(self.places)

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


class _Group:
    """Texts that are as long as each other, and stay so: they are one run's rows."""

    def __init__(self, texts: Sequence[Text], kept: Kept | None) -> None:
        self.texts = list(texts)
        self.kept = kept

    def drop_finished(self) -> None:
        """Leave out the texts that have ended, and what is kept of them."""
        going = [row for row, text in enumerate(self.texts) if text.finish is None]
        if len(going) == len(self.texts):
            return
        self.texts = [self.texts[row] for row in going]
        if self.kept is not None:
            self.kept.select(going)


class Generation:
    """Texts that are generated together.

    Args:
        language: the model's.
        texts: of one request.
        sampling: how characters are chosen.
        logprobs: how many of the likeliest are told with each token; None: nothing is.
    """

    def __init__(
        self,
        language: Language,
        texts: Sequence[Text],
        sampling: Sampling,
        logprobs: int | None = None,
    ) -> None:
        self.texts = texts
        self._language = language
        self._sampling = sampling
        self._logprobs = logprobs
        self._groups = self._grouped(texts)

    @property
    def generated(self) -> int:
        """Characters of all texts."""
        return sum(each.generated for each in self.texts)

    @property
    def unfinished(self) -> list[Text]:
        """The texts that go on."""
        return [each for each in self.texts if each.finish is None]

    @property
    def kept_bytes(self) -> int:
        """What is kept of the texts from step to step."""
        return sum(each.kept.size for each in self._groups if each.kept is not None)

    def drop(self) -> None:
        """Keep nothing more, however far the texts have come."""
        self._groups = []

    def step(self, run: Callable[[Inference], Sequence[Any]]) -> list[tuple[Text, str]]:
        """Run each text that goes on once; return what is sure of those that have grown by it.

        Texts that are as long as each other are one run's rows. Of a prompt that is longer than
        `CHUNK`, or is judged, a step runs a part, and nothing is generated before the last one.
        """
        if self._language.cache is None:
            # What is looked back on is cut off, and so texts come to be as long as others.
            self._groups = self._grouped(self.unfinished)
        found: list[tuple[Text, str]] = []
        for group in self._groups:
            answered = self._run(group, run)
            if answered is None:
                continue
            for text, probabilities, logprobs in zip(group.texts, *answered, strict=True):
                place = choose(probabilities, self._sampling, text.random)
                character = self._language.characters[place]
                self._tell(text, logprobs, place, character)
                text.places.append(place)
                text.seen += 1
                found.append((text, text.add(character)))
            group.drop_finished()
        self._groups = [each for each in self._groups if each.texts]
        return found

    def _grouped(self, texts: Sequence[Text]) -> list[_Group]:
        cache = self._language.cache
        alike: dict[tuple[int, int], list[Text]] = {}
        for text in texts:
            self._look_back(text)
            before = text.skipped if cache is None else 0
            alike.setdefault((text.seen - before, text.length - before), []).append(text)
        return [
            _Group(each, Kept(cache, len(each)) if cache is not None else None)
            for each in alike.values()
        ]

    def _look_back(self, text: Text) -> None:
        """Forget the characters that aren't looked back on any more."""
        over = self._language.since(text.seen) - text.skipped
        if over > 0:
            text.skipped += over
            del text.places[:over]

    def _run(
        self, group: _Group, run: Callable[[Inference], Sequence[Any]]
    ) -> tuple[NDArray[Any], Sequence[Any]] | None:
        """Run the next part of texts, and tell of what of their prompts is judged by it.

        Returns:
            How likely each character is to follow the texts, (N, V), and of each text the
            logarithms (V,), or None where nothing is told; None: there is more to run before.
        """
        for text in group.texts:
            self._look_back(text)
        first, kept = group.texts[0], group.kept
        begin, end = 0, first.seen - first.skipped
        if kept is not None:
            if kept.start != first.skipped:
                kept.restart(first.skipped)
            begin = kept.filled
            end = min(begin + self._part(group), len(first.places), self._language.context)
        # From which character on it is told what follows.
        known = max(first.seen - first.skipped - 1, begin)
        probabilities, logprobs = self._ask(group, slice(begin, end), range(known, end), run)
        if known >= end:
            return None
        is_whole = first.skipped + end == first.length
        if logprobs is None:
            return (probabilities, [None] * len(probabilities)) if is_whole else None
        for text, rows in zip(group.texts, logprobs, strict=True):
            for row in rows[: text.length - text.seen]:
                place = text.places[text.seen - text.skipped]
                self._tell(text, row, place, text.echoed[text.seen])
                text.seen += 1
        return (probabilities, list(logprobs[:, -1])) if is_whole else None

    def _ask(
        self,
        group: _Group,
        part: slice,
        known: range,
        run: Callable[[Inference], Sequence[Any]],
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Run a part of texts.

        Args:
            group: the texts.
            part: of their characters.
            known: those of the part after which it is asked what follows.
            run: runs the model.

        Returns:
            How likely each character is to follow the part, (N, V); and, where likelihoods are
            told, the logarithms after each of ``known``, (N, P, V).
        """
        tokens = np.array([each.places[part] for each in group.texts], dtype=np.int64)
        made, kept, is_told = Inference(), group.kept, self._logprobs is not None
        made.rows, made.outputs, made.feed = len(tokens), [PROBABILITIES], {TOKENS: tokens}
        if kept is None:
            (found,) = run(made)
            probabilities = np.asarray(found)
            return probabilities, of_probabilities(probabilities)[:, None] if is_told else None
        made.feed |= kept.feed()
        if is_told:
            made.outputs.append(LOGITS)
            if known:
                made.feed[ASKED] = np.array(known, dtype=np.int64) - kept.filled
        made.outputs += kept.outputs
        probabilities, *given = map(np.asarray, run(made))
        logprobs = of_logits(given.pop(0)) if is_told else None
        kept.add(given)
        return probabilities, logprobs

    def _part(self, group: _Group) -> int:
        """Return how many characters are run at once at most."""
        first = group.texts[0]
        if first.seen == first.length:
            return CHUNK
        each = len(group.texts) * len(self._language.characters)
        return max(1, min(CHUNK, _JUDGED_NUMBERS // each))

    def _tell(
        self, text: Text, logprobs: NDArray[np.float64] | None, place: int, token: str
    ) -> None:
        if self._logprobs is None or logprobs is None:
            return
        known = self._language.characters
        text.told.add(judge(logprobs, place, token, known, self._logprobs))
