"""A language model's vocabulary, and texts that are generated with it, one token at a time.

A token is a character, or some bytes (`falaj.workloads.vocabulary`): what is no whole character
yet waits for the rest. What the model has computed for those before is kept, and each step runs it
on the newest one of every text. Packages whose graph can't be told the past are run on the last
``context`` tokens at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from falaj.workloads.chat import MARKS, Template, template_of
from falaj.workloads.documents import is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.language.cache import CacheForm, Kept, since
from falaj.workloads.inference.language.likelihoods import (
    Judged,
    Shown,
    Told,
    judge,
    of_logits,
    of_probabilities,
)
from falaj.workloads.inference.language.prefixes import Begun, Left
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.remembering import ASKED, CHUNK, LOGITS
from falaj.workloads.vocabulary import (
    METADATA,
    BytePairs,
    Characters,
    Vocabulary,
    described_pairs,
    of_bytes,
)

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
_JUDGED_NUMBERS: Final = 1 << 22
"""Logits that one run gives at most, where the tokens of prompts are judged."""
STOP: Final = "stop"
LENGTH: Final = "length"


@dataclass(frozen=True)
class Prompt:
    """What a text is gone on from.

    Attributes:
        places: of the tokens that matter, or of all: at least one.
        skipped: how many came before these.
        count: all tokens of the prompt.
        echoed: what is told of each, where each is to be judged.
    """

    places: list[int]
    skipped: int
    count: int
    echoed: Sequence[Shown] = ()


@dataclass(frozen=True)
class Language:
    """The tokens that a model knows.

    Attributes:
        vocabulary: their numbers, which are places among what the model answers.
        context: how many tokens of a text's end matter at most.
        cache: what the model keeps of a text from step to step; None: nothing.
        template: how conversations become tokens; None: the model learned none.
        has_engine: whether an engine beside runs it, which keeps what it has computed.
    """

    vocabulary: Vocabulary
    context: int
    cache: CacheForm | None = None
    template: Template | None = None
    has_engine: bool = False

    @property
    def end(self) -> int | None:
        """The token that ends an answer, and is no part of it."""
        return None if self.template is None else self.template.end

    @cached_property
    def never(self) -> list[int]:
        """Tokens that are never generated, as they are marks of what others say."""
        return [] if self.template is None else [each for each in MARKS if each != self.end]

    @property
    def first(self) -> int:
        """The first place that may be generated: that of unknown characters may not."""
        return 0 if self.vocabulary.unknown is None else self.vocabulary.unknown + 1

    @property
    def most_characters(self) -> int | None:
        """How long all prompts of a request may be; None: that costs nothing."""
        return MOST_ENCODED if isinstance(self.vocabulary, BytePairs) else None

    def since(self, length: int) -> int:
        """Return the place of the first token that matters of so many."""
        if self.cache is None and not self.has_engine:
            return max(0, length - self.context)
        return since(length, self.context)

    def bytes_of(self, length: int) -> int:
        """Return the bytes that are kept at most of a text that comes to so many tokens."""
        return 0 if self.cache is None else self.cache.bytes_of(length)

    def prompt(self, text: str, *, is_judged: bool = False) -> Prompt:
        """Return the tokens of a text that matter, or all where each is to be judged."""
        known = self.vocabulary
        if isinstance(known, Characters):  # of a long one its end is enough
            skipped = 0 if is_judged else self.since(len(text))
            places = known.encode(text[skipped:] or _START)
            echoed = [Shown(each, 1) for each in text] if is_judged else ()
            return Prompt(places, skipped, len(text), echoed)
        places = known.encode(text)
        skipped = 0 if is_judged else self.since(len(places))
        echoed: Sequence[Shown] = ()
        if is_judged:
            decoder = known.decoder()
            echoed = [Shown(known.shown[each], len(decoder.add(each))) for each in places]
        return Prompt(places[skipped:] or known.encode(_START), skipped, len(places), echoed)


def read(
    manifest: Mapping[str, Any], schema: Schema, model: bytes, cache: CacheForm | None = None
) -> Language | None:
    """Return what a verified package says of the tokens; None: it is another kind of model.

    Args:
        manifest: of the package.
        schema: what the model takes and answers.
        model: in which the vocabulary lies whose tokens aren't characters.
        cache: what that keeps of a text.

    Raises:
        InferenceError: it is a language model that can't be one.
    """
    if manifest.get("task") != TASK:
        return None
    described = described_pairs(manifest.get("dataset"))
    found = _characters(manifest) if described is None else _pairs(described, model)
    tokens, output = schema.inputs.get(TOKENS), schema.outputs.get(PROBABILITIES)
    if tokens is None or len(schema.inputs) > 1 or (tokens.datatype, tokens.shape) != (
        "INT64", (-1, -1)
    ):  # fmt: skip
        raise _wrong(f"its one input isn't '{TOKENS}', INT64 of the shape [-1, -1]")
    if output is None or output.datatype != "FP32" or output.shape[1:] != (found.size,):
        raise _wrong(f"it has no output '{PROBABILITIES}', FP32 of {found.size} {found.unit}")
    return Language(found, tokens.context, cache, _template(manifest, found))


def _template(manifest: Mapping[str, Any], vocabulary: Vocabulary) -> Template | None:
    try:
        found = template_of(manifest.get("dataset"))
    except WorkloadError as error:
        raise _wrong(str(error)) from error
    if found is not None and not isinstance(vocabulary, BytePairs):
        raise _wrong("it has a chat template, and its tokens are characters, which have no marks")
    return found


def _characters(manifest: Mapping[str, Any]) -> Characters:
    given = manifest.get("classes")
    characters = given if is_sequence(given) else []
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
    never: Sequence[int] = (),
) -> int:
    """Return the place of a token that is known.

    Args:
        probabilities: of every token.
        sampling: how it is chosen.
        random: of the text alone.
        first: the first place that may be chosen.
        never: further places that may not. Default: none.

    Raises:
        RequestError: 500, the model's probabilities aren't numbers.
    """
    chances = probabilities[first:].astype(np.float64)
    if not np.isfinite(chances).all():
        raise RequestError(500, "the model's probabilities of what follows aren't numbers")
    chances[[each - first for each in never]] = 0
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
        drawn: float = random.random() * sums[most - 1]
        place = int(np.searchsorted(sums[:most], drawn, side="right"))
        likeliest = int(order[min(place, most - 1)])
    return first + likeliest


class Text:
    """One text that is being generated.

    Args:
        index: its place in the answer.
        places: of the tokens that it goes on from.
        skipped: how many came before these.
        echoed: what is told of the tokens that it goes on from, each of which is to be judged.
            Default: none is.
        most: tokens that are generated.
        stops: texts before the first of which it ends.
        random: of this text alone.
    """

    def __init__(
        self,
        index: int,
        places: Sequence[int],
        *,
        skipped: int = 0,
        echoed: Sequence[Shown] = (),
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
        """Tokens, with those that aren't answered because they stop it."""
        self.finish: str | None = None
        """Why it has ended; None: it goes on."""
        self.most = most
        self._stops = stops
        self._held = ""
        # Longer ones than these can't hold the beginning of a stop.
        self._longest = max(map(len, stops), default=0)

    @property
    def length(self) -> int:
        """How many tokens there are by now."""
        return self.skipped + len(self.places)

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

    def end(self, more: str) -> str:
        """As `add`, of the token that ends the text, with what was left of the one before."""
        sure = self.add(more)
        if self.finish is None:
            sure += self._held
        self.finish = STOP
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
        if self.kept is not None and going:
            self.kept.select(going)


class Growing:
    """Texts that grow together, whoever generates their tokens.

    Args:
        language: the model's.
        texts: of one request.
        logprobs: how many of the likeliest are told with each token; None: nothing is.
    """

    def __init__(self, language: Language, texts: Sequence[Text], logprobs: int | None) -> None:
        self.texts = texts
        self.reused = 0
        """Tokens of prompts that needn't be run."""
        self._language = language
        self._logprobs = logprobs
        self._decoders = {each.index: language.vocabulary.decoder() for each in texts}

    @property
    def generated(self) -> int:
        """Tokens of all texts."""
        return sum(each.generated for each in self.texts)

    @property
    def unfinished(self) -> list[Text]:
        """The texts that go on."""
        return [each for each in self.texts if each.finish is None]

    def leave(self) -> Left | None:
        """Return what is kept of a text that is alone, and keep it no more; None: nothing is."""
        return None

    def drop(self) -> None:
        """Keep nothing more, however far the texts have come."""

    def _added(self, text: Text, place: int, tell: Callable[[Shown], None]) -> str:
        """Add a token to a text, of which ``tell`` is told; return what is sure by it."""
        more = self._whole(text, place)
        tell(Shown(self._language.vocabulary.shown[place], len(more)))
        text.places.append(place)
        text.seen += 1
        return text.add(more)

    def _ended(self, text: Text) -> str:
        """End a text by the token that ends one; return what is left of it."""
        return text.end(self._decoders[text.index].end())

    def _whole(self, text: Text, place: int) -> str:
        """The characters that a further token makes whole; of the last one all that is left."""
        decoder = self._decoders[text.index]
        whole = decoder.add(place)
        return whole + decoder.end() if text.generated + 1 == text.most else whole

    def _look_back(self, text: Text) -> None:
        """Forget the tokens that aren't looked back on any more."""
        over = self._language.since(text.seen) - text.skipped
        if over > 0:
            text.skipped += over
            del text.places[:over]


class Generation(Growing):
    """Texts that are generated together, here.

    Args:
        language: the model's.
        texts: of one request.
        sampling: how tokens are chosen.
        logprobs: how many of the likeliest are told with each token; None: nothing is.
        begun: what needn't be run again of a text that is alone. Default: all is run.
    """

    def __init__(
        self,
        language: Language,
        texts: Sequence[Text],
        sampling: Sampling,
        logprobs: int | None = None,
        begun: Begun | None = None,
    ) -> None:
        super().__init__(language, texts, logprobs)
        self._sampling = sampling
        self._groups = self._grouped(texts)
        # What was kept of a text that is alone and has ended.
        self._left: Kept | None = None
        if begun is not None and (kept := self._groups[0].kept) is not None:
            kept.begin(begun.slots, begun.count)
            self.reused = begun.count

    @property
    def kept_bytes(self) -> int:
        """What is kept of the texts from step to step."""
        return sum(each.kept.size for each in self._groups if each.kept is not None)

    def leave(self) -> Left | None:
        """Return what is kept of a text that is alone, and keep it no more.

        None: there are several, nothing is kept, or not from the text's beginning on.
        """
        kept, self._left = self._left or (self._groups[0].kept if self._groups else None), None
        if len(self.texts) > 1 or kept is None or not kept.filled:
            return None
        (text,) = self.texts
        if text.skipped or kept.start:
            return None
        tokens = text.places[: kept.filled]
        return Left(tokens, text.length - text.generated, kept.give_up())

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
                language = self._language
                place = choose(
                    probabilities, self._sampling, text.random, language.first, language.never
                )
                if place == language.end:
                    found.append((text, self._ended(text)))
                    continue
                tell = partial(self._tell, text, logprobs, place)
                found.append((text, self._added(text, place, tell)))
            if len(self.texts) == 1 and self.texts[0].finish is not None:
                self._left = group.kept
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

    def _run(
        self, group: _Group, run: Callable[[Inference], Sequence[Any]]
    ) -> tuple[NDArray[Any], Sequence[Any]] | None:
        """Run the next part of texts, and tell of what of their prompts is judged by it.

        Returns:
            How likely each token is to follow the texts, (N, V), and of each text the
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
        # From which token on it is told what follows.
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
            part: of their tokens.
            known: those of the part after which it is asked what follows.
            run: runs the model.

        Returns:
            How likely each token is to follow the part, (N, V); and, where likelihoods are
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
        """Return how many tokens are run at once at most."""
        first = group.texts[0]
        if first.seen == first.length:
            return CHUNK
        each = len(group.texts) * self._language.vocabulary.size
        return max(1, min(CHUNK, _JUDGED_NUMBERS // each))

    def _tell(
        self, text: Text, logprobs: NDArray[np.float64] | None, place: int, token: Shown
    ) -> None:
        if self._logprobs is None or logprobs is None:
            return
        known, first = self._language.vocabulary.shown, self._language.first
        text.told.add(judge(logprobs, place, token, known, first=first, most=self._logprobs))
