"""What a language model's tokens are: characters, or pieces of texts that were learned as pairs.

The one interface of numbers and texts, which training and serving share: `Vocabulary`. A token of
`BytePairs` is one of the 256 bytes, or two earlier tokens that follow each other: byte-pair
encoding, Sennrich, Haddow, Birch, 2016, https://arxiv.org/abs/1508.07909, of bytes as in GPT-2, so
that no text has a token that isn't known.

Texts are first cut into pieces, which no token crosses: letters, digits or signs of ASCII with a
space before them, white space, and all that isn't ASCII as if it were letters. So no table of
Unicode is asked, whose versions differ between programs.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from falaj.workloads.bounds import DATASET
from falaj.workloads.documents import is_dictionary, is_sequence, mapping
from falaj.workloads.errors import WorkloadError

UNKNOWN: Final = "\ufffd"
"""Stands at place 0 of characters for those that aren't in the vocabulary, and for bytes that make
no character."""
MOST_CHARACTERS: Final = 1_000
"""Of a vocabulary of characters; the rest are unknown ones."""
BYTES: Final = 256
MOST_TOKENS: Final = int(DATASET["vocabulary"].high)
LONGEST: Final = 32
"""Characters of a piece, with which the work for a text grows as the text alone."""
MOST_TOKEN_BYTES: Final = 4 * (LONGEST + 1)
"""Of a token: those of a piece and the space before it."""
MOST_FILE_BYTES: Final = 1 << 20
"""Of what `BytePairs.to_bytes` writes; the largest vocabulary has less."""
PIECES: Final = (
    rf" ?[^\x00-@\[-`{{-\x7f]{{1,{LONGEST}}}"  # letters, and what isn't ASCII
    r"| ?[0-9]{1,3}"
    rf"| ?[!-/:-@\[-`{{-~]{{1,{LONGEST}}}"
    rf"| {{1,{LONGEST}}}(?= )"  # the last of several spaces belongs to what follows
    rf"|[\x00-\x1f\x7f]{{1,{LONGEST}}}"
    r"| "
)
"""The pieces of a text, in the form of Python's `re`, which Hugging Face's tokenizers take too."""

METADATA: Final = "falaj.vocabulary"
"""Of a model's file or a dataset's, below which its vocabulary of pairs lies in it."""
_FORMAT: Final = "falaj.vocabulary/1"
_BYTES_SHOWN: Final = "bytes:"
_KIND: Final = "byte pairs"
_PIECE: Final = re.compile(PIECES)
_MOST_KEPT: Final = 16_384
"""Pieces whose tokens are remembered."""


class Vocabulary(ABC):
    """Numbers of tokens, and texts."""

    unit: str
    """What a token is called, for people: its plural."""
    unknown: int | None
    """The token that stands for what isn't known, which is never generated; None: all is known."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many tokens there are: their numbers are from 0."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """A name for each, none twice, that says nothing of a text but single characters."""

    @cached_property
    def contents(self) -> Sequence[bytes]:
        """What each token stands for, in UTF-8, of which it may be a part."""
        return self._made()

    @cached_property
    def shown(self) -> Sequence[str]:
        """Each token as answers name it: its text, or its bytes where that isn't whole."""
        return tuple(map(_shown, self.contents))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it: vocabularies with the same one number all alike."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @abstractmethod
    def _made(self) -> tuple[bytes, ...]:
        """Make `contents`."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return all of it as JSON: of what is equal the same bytes."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""

    def decode(self, tokens: Iterable[int]) -> str:
        """Return their text; bytes that make no character are U+FFFD."""
        return b"".join(self.contents[each] for each in tokens).decode(errors="replace")

    def decoder(self) -> Decoder:
        """Return what reads the tokens of a text one after the other."""
        return Decoder(self)

    @cached_property
    def characters(self) -> tuple[int, ...]:
        """How many characters begin in each token."""
        return tuple(sum(each & 0xC0 != 0x80 for each in of) for of in self.contents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _shown(content: bytes) -> str:
    """As OpenAI's API writes bytes that are no text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _BYTES_SHOWN + "".join(f"\\x{each:02x}" for each in content)


def content_of(shown: str) -> bytes:
    """Return what a token stands for, by one of `Vocabulary.shown`.

    No token's text is like the name of another one's bytes, as none crosses from letters to signs.
    """
    if shown.startswith(_BYTES_SHOWN) and len(shown) > len(_BYTES_SHOWN):
        return bytes.fromhex(shown.removeprefix(_BYTES_SHOWN).replace("\\x", ""))
    return shown.encode(errors="replace")


class Decoder:
    """Reads the tokens of a text one after the other: characters come when they are whole."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._contents = vocabulary.contents
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return what is whole with a further token: often one character, or none."""
        return self._decoder.decode(self._contents[token])

    def end(self) -> str:
        """Return what is left: U+FFFD where a character isn't whole."""
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True, eq=False)
class Characters(Vocabulary):
    """A token is a character.

    Attributes:
        listed: each character, in the order of their code points; the first stands for all others.
    """

    listed: tuple[str, ...]
    unit = "characters"
    unknown = 0

    @property
    def size(self) -> int:
        """Return how many tokens there are."""
        return len(self.listed)

    @property
    def names(self) -> list[str]:
        """Return the characters."""
        return list(self.listed)

    def _made(self) -> tuple[bytes, ...]:
        return tuple(each.encode(errors="replace") for each in self.listed)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The number of each that is known."""
        return {each: place for place, each in enumerate(self.listed) if place}

    def to_bytes(self) -> bytes:
        """Return the characters as JSON."""
        return json.dumps(["characters", *self.listed]).encode()

    def encode(self, text: str) -> list[int]:
        """Return the number of each character."""
        return [self.places.get(each, 0) for each in text]


@dataclass(frozen=True, eq=False)
class BytePairs(Vocabulary):
    """A token is a byte, or two earlier tokens.

    Attributes:
        pairs: the two that each token from `BYTES` on is made of, those to be joined first first.

    Raises:
        WorkloadError: there are too many, one is made of later ones, is too long, or is there
            twice.
    """

    pairs: tuple[tuple[int, int], ...]
    unit = "tokens"
    unknown = None

    def __post_init__(self) -> None:
        if len(self.pairs) > MOST_TOKENS - BYTES:
            raise _wrong(f"it has {BYTES + len(self.pairs):,} tokens; allowed are {MOST_TOKENS:,}")
        _ = self.contents  # which looks at each

    @property
    def size(self) -> int:
        """Return how many tokens there are."""
        return BYTES + len(self.pairs)

    @property
    def names(self) -> list[str]:
        """Return numbers: tokens are words of the text, which are sealed with its rows."""
        return [str(each) for each in range(self.size)]

    def _made(self) -> tuple[bytes, ...]:
        found = [bytes([each]) for each in range(BYTES)]
        known = set(found)
        for number, (first, second) in enumerate(self.pairs, BYTES):
            if not (0 <= first < number and 0 <= second < number):
                raise _wrong(f"token {number:,} is made of {first} and {second}, not both earlier")
            joined = found[first] + found[second]
            if len(joined) > MOST_TOKEN_BYTES:
                raise _wrong(f"token {number:,} has more than {MOST_TOKEN_BYTES} bytes")
            if joined in known:
                raise _wrong(f"token {number:,} is there twice")
            found.append(joined)
            known.add(joined)
        return tuple(found)

    @cached_property
    def _places(self) -> Mapping[tuple[int, int], int]:
        return {pair: BYTES + place for place, pair in enumerate(self.pairs)}

    @cached_property
    def _kept(self) -> dict[str, tuple[int, ...]]:
        return {}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, half a surrogate pair as a question mark."""
        kept = self._kept
        found: list[int] = []
        for piece in _PIECE.findall(text):
            tokens = kept.get(piece)
            if tokens is None:
                tokens = tuple(self._joined(piece.encode(errors="replace")))
                if len(kept) >= _MOST_KEPT:
                    kept.clear()
                kept[piece] = tokens
            found += tokens
        return found

    def _joined(self, piece: bytes) -> list[int]:
        """The tokens of a piece: of all pairs that are one, the first to be joined, then again."""
        places, tokens = self._places, list(piece)
        while True:
            pairs = itertools.pairwise(tokens)
            token = min((places.get(pair, MOST_TOKENS) for pair in pairs), default=MOST_TOKENS)
            if token == MOST_TOKENS:
                return tokens
            tokens = list(_replaced(tokens, self.pairs[token - BYTES], token))

    @property
    def described(self) -> dict[str, Any]:
        """What is said of it in the open."""
        return {"kind": _KIND, "size": self.size, "digest": self.digest}

    def to_bytes(self) -> bytes:
        """Return it as JSON, which `of_bytes` reads."""
        pairs = [list(each) for each in self.pairs]
        return json.dumps({"format": _FORMAT, "pairs": pairs}, separators=(",", ":")).encode()


def _replaced(tokens: Sequence[int], pair: tuple[int, int], token: int) -> Iterator[int]:
    """Tokens with one in the place of a pair, from the left."""
    place, last = 0, len(tokens) - 1
    while place <= last:
        if place < last and (tokens[place], tokens[place + 1]) == pair:
            yield token
            place += 2
        else:
            yield tokens[place]
            place += 1


def of_bytes(data: bytes | str) -> BytePairs:
    """Return what `BytePairs.to_bytes` wrote.

    Raises:
        WorkloadError: it is no such vocabulary, and why.
    """
    if len(data) > MOST_FILE_BYTES:
        raise _wrong(f"it has {len(data):,} bytes; allowed are {MOST_FILE_BYTES:,}")
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong("it isn't JSON") from error
    if not is_dictionary(found):
        raise _wrong("it isn't an object")
    if found.get("format") != _FORMAT or found.keys() != {"format", "pairs"}:
        raise _wrong(f"it isn't of the format {_FORMAT!r}, with its pairs alone")
    pairs = found["pairs"]
    if not is_sequence(pairs) or not all(map(_is_pair, pairs)):
        raise _wrong("its pairs aren't lists of two numbers")
    return BytePairs(tuple((first, second) for first, second in pairs))


def described_pairs(dataset: object) -> Any:
    """Return what is said of a vocabulary of pairs; None: there is none.

    Args:
        dataset: dataset.json, or what a package's manifest says of the dataset.
    """
    match mapping(dataset):
        case {"features": [{"vocabulary": described}, *_]}:
            return described
        case _:
            return None


def _is_pair(value: object) -> bool:
    given = cast("list[Any]", value) if isinstance(value, list) else []
    return len(given) == 2 and all(type(each) is int for each in given)


def _wrong(reason: str) -> WorkloadError:
    return WorkloadError(
        f"the vocabulary can't be used: {reason}. It was damaged, or made by another version: "
        "make it again from its text"
    )


def printable() -> tuple[str, ...]:
    """Return the character that each byte is written as in the tokenizers of others.

    As GPT-2's: those that can be seen as themselves, the others from U+0100 on in their order.
    https://github.com/openai/gpt-2/blob/master/src/encoder.py
    """
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(BYTES, 2 * BYTES))
    return tuple(chr(each if each in seen else next(others)) for each in range(BYTES))
