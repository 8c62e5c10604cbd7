"""Text that a language model learns from: its tokens, and the windows that they are cut into.

A row is a window of as many tokens as the model looks back on, and the one that follows. A token
is a character unless pairs of bytes were asked for. Windows don't overlap, and are held out in
blocks that lie side by side, so that hardly a window's end is known from its neighbour's
beginning.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.bounds import DATASET
from falaj.workloads.documents import is_sequence, mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.surrogates import half_of_pair
from falaj.workloads.training.header import decode
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.vocabulary import MOST_CHARACTERS, UNKNOWN, BytePairs, Vocabulary

TOKENS: Final = "tokens"
"""The model's input, and the column of the windows."""
TARGET: Final = "next"
"""What is predicted: the token that follows."""
FAMILY: Final = "text"
CONTEXT: Final = int(DATASET["context"].usual)
"""Tokens that are looked back on where nothing else is asked for."""
IGNORED: Final = -100
"""Stands for a token that nobody is asked to predict, as of PyTorch's cross-entropy."""
MOST_BYTES: Final = 64 << 20
"""Of a file, which is read as a whole."""

_BLOCK: Final = 16
"""Windows of a block that is held out as a whole, at most."""
_BLOCKS: Final = 100
"""That a text is cut into at least, where it has as many windows."""
_LEAST_WINDOWS: Final = 50
_MOST_NATS: Final = 700.0
"""Whose exponential still is a number."""


def read(path: Path, encoding: str | None) -> str:
    """Read a text.

    Raises:
        WorkloadError: it can't be read, isn't text of that encoding, or is too large.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise WorkloadError(
                f"{path} has {size / 2**20:.0f} MiB; a text may have {MOST_BYTES >> 20} MiB: take "
                "a part of it"
            )
        data = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    return decode(data, path, encoding).replace("\r\n", "\n")


def windows(text: str, path: Path, context: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut a text into windows.

    Args:
        text: the whole of it.
        path: its file, for messages.
        context: characters of a window.

    Returns:
        The code points of each window (windows, context), and of the character that follows it
        (windows,).

    Raises:
        WorkloadError: it is too short.
    """
    points = points_of(text)
    count = (len(points) - 1) // context
    if count < _LEAST_WINDOWS:
        raise WorkloadError(
            f"{path} has {len(points):,} characters; at least {_LEAST_WINDOWS * context + 1:,} "
            f"are needed to learn {context:,} at a time, and some hundred thousand for a model of "
            "use"
        )
    return taken(points, count, context)


def taken(numbers: NDArray[Any], count: int, context: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return so many windows (count, context), and the number that follows each (count,)."""
    whole = numbers[: count * context].reshape(count, context)
    return whole, numbers[context : count * context + 1 : context]


def points_of(text: str) -> NDArray[np.int64]:
    """Return the code points of a text, (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4").astype(np.int64)


def text_of(points: NDArray[np.int64]) -> str:
    """Return the text of code points, of any shape."""
    return points.astype("<u4").tobytes().decode("utf-32-le")


def runs(points: NDArray[np.int64], out: NDArray[np.bool_]) -> tuple[list[str], list[str]]:
    """Return the texts of windows that lie side by side, of the training and the held-out part.

    Args:
        points: code points of windows (windows, context).
        out: which of them are held out.
    """
    parts: tuple[list[str], list[str]] = ([], [])
    borders = np.flatnonzero(np.diff(out)) + 1
    starts = [0, *borders.tolist()]
    for start, run in zip(starts, np.split(points, borders), strict=True):
        parts[int(out[start])].append(text_of(run))
    return parts


def cut(
    texts: Iterable[str], vocabulary: BytePairs, context: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut a part's texts, one after the other, into windows of tokens; some of the last are left.

    Returns:
        As `windows`, of tokens.
    """
    tokens = np.concatenate([
        np.zeros(0, dtype=np.int64),
        *(np.array(vocabulary.encode(each), dtype=np.int64) for each in texts),
    ])  # fmt: skip
    return taken(tokens, max(0, len(tokens) - 1) // context, context)


def fields_of(
    source: dict[str, str], names: list[str], context: int, pairs: BytePairs | None = None
) -> dict[str, Any]:
    """Return what a description says of texts.

    Args:
        source: kind and name of where they come from.
        names: of the vocabulary.
        context: tokens of a window.
        pairs: the vocabulary. Default: it is of characters.
    """
    feature: dict[str, Any] = {"name": TOKENS, "kind": TOKENS, "shape": [context]}
    if pairs is not None:
        feature["vocabulary"] = pairs.described
    return {
        "source": source,
        "family": FAMILY,
        "task": LANGUAGE,
        "target": TARGET,
        "classes": names,
        "features": [feature],
        "excluded": [],
        "read": [],
        "dropped": 0,
    }


def check_windows(count: int, held_out: int, context: int, path: Path) -> None:
    """Refuse a text with too few windows of tokens.

    Args:
        count: of both parts.
        held_out: of the held-out part.
        context: tokens of a window.
        path: the text's file, for messages.

    Raises:
        WorkloadError: there are too few.
    """
    if count < _LEAST_WINDOWS or held_out < 1:
        raise WorkloadError(
            f"{path} has {count:,} windows of {context:,} tokens, {held_out:,} of them held out; "
            f"at least {_LEAST_WINDOWS} and 1 are needed: take more text, or a smaller --context "
            "or --vocabulary"
        )


def following(tokens: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what follows each token of windows (N, S), of which some may be `IGNORED`.

    Args:
        tokens: of the windows.
        after: what follows each window, (N,); or each of its tokens, (N, S), which is returned.
    """
    if after.ndim > 1:
        return after
    return np.concatenate([tokens[:, 1:], after[:, None]], axis=1)


def counted(targets: Any) -> Any:
    """Return how many tokens of each window are predicted, 1 at least, (N,).

    Args:
        targets: (N, S), an array or a tensor, of which some may be `IGNORED`.
    """
    return (targets != IGNORED).sum(1).clip(min=1)


def held_out(count: int, share: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """Tell which of ``count`` windows are held out: blocks of neighbours, chosen by chance."""
    size = max(1, min(_BLOCK, count // _BLOCKS))
    blocks = -(-count // size)
    chosen = random.permutation(blocks)[: max(1, round(share * blocks))]
    return np.isin(np.arange(count) // size, chosen)


@dataclass
class CharacterCounts:
    """How often each character is in a text, which may come in parts.

    Attributes:
        times: by code point.
    """

    times: Counter[int] = field(default_factory=Counter[int])

    def add(self, points: NDArray[np.int64]) -> None:
        """Count a further part's."""
        values, times = np.unique(points, return_counts=True)
        self.times.update(dict(zip(values.tolist(), times.tolist(), strict=True)))

    def vocabulary(self) -> list[str]:
        """Return the most frequent ones in the order of their code points, `UNKNOWN` first."""
        known = sorted(each for each in self.times if each != ord(UNKNOWN))
        # Sorting is stable: of equally frequent ones the first are taken.
        frequent = sorted(known, key=lambda each: -self.times[each])[: MOST_CHARACTERS - 1]
        return [UNKNOWN, *map(chr, sorted(frequent))]

    def counts(self) -> dict[str, int]:
        """Return how often each of the characters is there that `vocabulary` has."""
        return {each: self.times[ord(each)] for each in self.vocabulary()[1:]}


def vocabulary(points: NDArray[np.int64]) -> list[str]:
    """Return the characters of the training windows by their numbers, `UNKNOWN` first."""
    found = CharacterCounts()
    found.add(points)
    return found.vocabulary()


def counts(points: NDArray[np.int64]) -> dict[str, int]:
    """Return how often each of the characters is there that `vocabulary` would have."""
    found = CharacterCounts()
    found.add(points)
    return found.counts()


def is_vocabulary(value: object) -> TypeGuard[list[str]]:
    """Tell whether a value is what `vocabulary` returns of some text."""
    if not is_sequence(value) or not 1 <= len(value) <= MOST_CHARACTERS:
        return False
    first, *others = cast("list[object]", value)
    points = [ord(each) for each in others if isinstance(each, str) and len(each) == 1]
    is_sorted = all(low < high for low, high in itertools.pairwise(points))
    is_whole = half_of_pair("".join(map(chr, points))) is None
    return first == UNKNOWN and len(points) == len(others) and is_sorted and is_whole


def numbered(points: NDArray[Any], characters: list[str]) -> NDArray[np.int64]:
    """Return each code point's number in the vocabulary, 0 where it isn't in it."""
    known = np.array([ord(each) for each in characters[1:]], dtype=np.int64)
    if len(known) == 0:
        return np.zeros(points.shape, dtype=np.int64)
    place = np.searchsorted(known, points).clip(max=len(known) - 1)
    return np.where(known[place] == points, place + 1, 0).astype(np.int64)


def request_of(
    model: str, statistics: Mapping[str, Any], *, is_chat: bool = False
) -> dict[str, Any]:
    """Return a request for a completion, which begins with the commonest letter.

    A beginning from the text doesn't belong in the output of a command.

    Args:
        model: its name.
        statistics: of dataset.json, or of a package's manifest.
        is_chat: whether it is asked for an answer. Default: to go on.
    """
    # A package that was published by hand need not say it.
    counts: Mapping[str, int] = mapping(statistics.get("target")).get("counts") or {" ": 1}
    letters = [each for each in counts if each.isalpha()] or list(counts)
    prompt = max(letters, key=lambda each: counts[each])
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    )
    return {"model": model, **body, "max_tokens": 64, "temperature": 0}


def tokens_a_character(vocabulary: Vocabulary, tokens: NDArray[Any]) -> float:
    """Return how many tokens a character of these has, in the mean: nats of a token times it are
    nats of a character, whatever the vocabulary.

    Args:
        vocabulary: theirs.
        tokens: of any shape; those that are `IGNORED` aren't counted.
    """
    tokens = tokens[tokens != IGNORED]
    characters = np.array(vocabulary.characters)[tokens].sum()
    # Bytes in the midst of a character begin none.
    return tokens.size / max(1, int(characters))


def perplexity(nats: float) -> float:
    """Return among how many characters one would choose as evenly, of nats a character."""
    return math.exp(min(nats, _MOST_NATS))


def guess_nats(learned: NDArray[Any], judged: NDArray[Any]) -> float:
    """Return the nats a token of one who says how frequent each was in what is learned from.

    Args:
        learned: tokens, of any shape; those that are `IGNORED` aren't counted.
        judged: those that are guessed, likewise.
    """
    return float(guesses(learned, judged)[judged != IGNORED].mean())


def guesses(learned: NDArray[Any], judged: NDArray[Any]) -> NDArray[np.float64]:
    """Return the same of each token, in the shape of ``judged``; 0 where it is `IGNORED`."""
    learned = learned[learned != IGNORED]
    size = int(max(learned.max(), judged.max())) + 1
    # One more of each, so that what is only in the judged part isn't impossible.
    counts = np.bincount(learned.ravel(), minlength=size).astype(np.float64) + 1
    return np.where(judged == IGNORED, 0.0, -np.log(counts / counts.sum())[judged.clip(min=0)])
