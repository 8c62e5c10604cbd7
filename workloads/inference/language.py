"""A language model's vocabulary, and texts that are generated with it, one token at a time.

A token is a character, or some bytes (`falaj.workloads.vocabulary`): what is no whole character
yet waits for the rest. There is no memory of what the model has computed for those before: each
step runs it on the last ``context`` tokens of every text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.vocabulary import METADATA, BytePairs, Characters, Vocabulary, of_bytes

TASK: Final = "language"
"""What a manifest says of such a model."""
TOKENS: Final = "tokens"
"""Its input."""
PROBABILITIES: Final = "probabilities"
"""Its output: for each row how likely each token is to follow."""
MOST_ENCODED: Final = 65_536
"""Characters of a request's prompts that aren't tokens themselves: with hostile ones the work
takes a tenth of a second."""
_START: Final = "\n"
"""What an empty prompt is begun from."""
STOP: Final = "stop"
LENGTH: Final = "length"


@dataclass(frozen=True)
class Prompt:
    """What a text is gone on from.

    Attributes:
        places: of the tokens that matter: at least one.
        count: all tokens of the prompt.
    """

    places: list[int]
    count: int


@dataclass(frozen=True)
class Language:
    """The tokens that a model knows.

    Attributes:
        vocabulary: their numbers, which are places among what the model answers.
        context: how many tokens of a text's end matter.
    """

    vocabulary: Vocabulary
    context: int

    @property
    def first(self) -> int:
        """The first place that may be generated: that of unknown characters may not."""
        return 0 if self.vocabulary.unknown is None else self.vocabulary.unknown + 1

    @property
    def most_characters(self) -> int | None:
        """How long all prompts of a request may be; None: that costs nothing."""
        return MOST_ENCODED if isinstance(self.vocabulary, BytePairs) else None

    def prompt(self, text: str) -> Prompt:
        """Return the tokens of a text that matter, and how many there are."""
        if isinstance(self.vocabulary, Characters):  # of a long one its end is enough
            recent = self.vocabulary.encode(text[-self.context :] or _START)
            return Prompt(recent, len(text))
        places = self.vocabulary.encode(text)
        recent = places[-self.context :] or self.vocabulary.encode(_START)
        return Prompt(recent, len(places))


def read(manifest: Mapping[str, Any], schema: Schema, model: bytes) -> Language | None:
    """Return what a verified package says of the tokens; None: it is another kind of model.

    Args:
        manifest: of the package.
        schema: what the model takes and answers.
        model: in which the vocabulary lies whose tokens aren't characters.

    Raises:
        InferenceError: it is a language model that can't be one.
    """
    if manifest.get("task") != TASK:
        return None
    described = _described(manifest)
    found = _characters(manifest) if described is None else _pairs(described, model)
    tokens, output = schema.inputs.get(TOKENS), schema.outputs.get(PROBABILITIES)
    if tokens is None or len(schema.inputs) > 1 or (tokens.datatype, tokens.shape) != (
        "INT64", (-1, -1)
    ):  # fmt: skip
        raise _wrong(f"its one input isn't '{TOKENS}', INT64 of the shape [-1, -1]")
    if output is None or output.datatype != "FP32" or output.shape[1:] != (found.size,):
        raise _wrong(f"it has no output '{PROBABILITIES}', FP32 of {found.size} {found.unit}")
    return Language(found, tokens.context)


def _described(manifest: Mapping[str, Any]) -> Any:
    """What the manifest says of a vocabulary that isn't characters; None: it says nothing."""
    match manifest:
        case {"dataset": {"features": [{"vocabulary": described}, *_]}}:
            return described
        case _:
            return None


def _characters(manifest: Mapping[str, Any]) -> Characters:
    given = manifest.get("classes")
    characters: list[Any] = given if isinstance(given, list) else []
    if not all(isinstance(each, str) and len(each) == 1 for each in characters):
        raise _wrong("its classes aren't single characters")
    if len(characters) < 2 or len(set(characters)) != len(characters):
        raise _wrong("its classes are fewer than two, or one is there twice")
    return Characters(tuple(characters))


def _pairs(described: Any, model: bytes) -> BytePairs:
    properties = onnx.ModelProto.FromString(model).metadata_props
    noted = next((each.value for each in properties if each.key == METADATA), None)
    if noted is None:
        raise _wrong(f"its graph has no vocabulary: there is no metadata '{METADATA}'")
    try:
        found = of_bytes(noted)
    except WorkloadError as error:
        raise _wrong(str(error)) from error
    if found.described != described:
        raise _wrong("the vocabulary in its graph isn't the one that the manifest names")
    return found


def _wrong(reason: str) -> InferenceError:
    return InferenceError(f"the package says that its model is one of language, but {reason}")


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 chooses the likeliest, 1 as the model says; more evens the chances out.
        top_p: only the likeliest are chosen from that have so much of the whole together.
        seed: makes the choices repeatable; None: they aren't.
    """

    temperature: float
    top_p: float
    seed: int | None


def choose(
    probabilities: NDArray[np.float32],
    sampling: Sampling,
    random: np.random.Generator,
    first: int,
) -> int:
    """Return the place of a token that is known.

    Args:
        probabilities: of every token.
        sampling: how it is chosen.
        random: of the text alone.
        first: the first place that may be chosen.

    Raises:
        RequestError: 500, the model's probabilities aren't numbers.
    """
    chances = probabilities[first:].astype(np.float64)
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
    return first + likeliest


class Text:
    """One text that is being generated.

    Args:
        index: its place in the answer.
        places: of the tokens that it goes on from.
        most: tokens that are generated.
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
        """Tokens, with those that aren't answered because they stop it."""
        self.finish: str | None = None
        """Why it has ended; None: it goes on."""
        self.most = most
        self._stops = stops
        self._held = ""
        # Longer ones than these can't hold the beginning of a stop.
        self._longest = max(map(len, stops), default=0)

    def add(self, more: str) -> str:
        """Take the characters that a token makes whole; return what is sure to be answered by now.

        What may be the beginning of a stop is held back until it is known.
        """
        self.generated += 1
        sure = ""
        for character in more:
            sure += self._surely(character)
            if self.finish is not None:
                return sure
        if self.generated >= self.most:
            self.finish = LENGTH
            sure += self._held
        return sure

    def _surely(self, character: str) -> str:
        """As `add`, of the next character, wherever the text ends."""
        held = self._held + character
        found = max((each for each in self._stops if held.endswith(each)), key=len, default="")
        if found:
            self.finish, self._held = STOP, ""
            return held[: -len(found)]
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
        sampling: how tokens are chosen.
    """

    def __init__(self, language: Language, texts: Sequence[Text], sampling: Sampling) -> None:
        self.texts = texts
        self._language = language
        self._sampling = sampling
        self._decoders = {each.index: language.vocabulary.decoder() for each in texts}

    @property
    def generated(self) -> int:
        """Tokens of all texts."""
        return sum(each.generated for each in self.texts)

    @property
    def unfinished(self) -> list[Text]:
        """The texts that go on."""
        return [each for each in self.texts if each.finish is None]

    def step(self, run: Callable[[Inference], Sequence[Any]]) -> list[tuple[Text, str]]:
        """Generate a token of each text that goes on; return what is sure by then.

        Texts that are as long as each other are one run's rows.
        """
        by_length: dict[int, list[Text]] = {}
        for text in self.unfinished:
            by_length.setdefault(len(text.places), []).append(text)
        found: list[tuple[Text, str]] = []
        for texts in by_length.values():
            (probabilities,) = run(self._inference(texts))
            for text, row in zip(texts, np.asarray(probabilities), strict=True):
                place = choose(row, self._sampling, text.random, self._language.first)
                text.places = [*text.places, place][-self._language.context :]
                found.append((text, text.add(self._whole(text, place))))
        return found

    def _whole(self, text: Text, place: int) -> str:
        """The characters that a further token makes whole; of the last one all that is left."""
        decoder = self._decoders[text.index]
        whole = decoder.add(place)
        return whole + decoder.end() if text.generated + 1 == text.most else whole

    @staticmethod
    def _inference(texts: Sequence[Text]) -> Inference:
        made = Inference()
        made.feed = {TOKENS: np.array([each.places for each in texts], dtype=np.int64)}
        made.rows, made.outputs = len(texts), [PROBABILITIES]
        return made
