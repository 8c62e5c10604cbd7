"""Free text, and the features that its words become.

A text is cut at blanks and ends of lines. Words of one stem share a feature, which is 1 where one
of them occurs; a last feature is 1 where none does. Stems and the ways to write them come from the
training rows; the exported graph looks the same words up, so that the served model takes raw text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.training.frequencies import frequencies

MOST_STEMS: Final = 500
"""The most frequent stems of a column get a feature each."""

BLANKS: Final = (" ", "\n", "\t", "\r")
"""What separates words."""

_LEAST_ROWS: Final = 2
_CUT: Final = re.compile("[ \n\t\r]+")
#: Marks of vowels, and the stroke that stretches a word.
_TASHKEEL: Final = re.compile("[\u064b-\u0652\u0670\u0640]")
_SAME_LETTERS: Final = str.maketrans("أإآىة", "\u0627\u0627\u0627ي\u0647")
#: Of the stemmer "light10": Larkey, Ballesteros, Connell, Light Stemming for Arabic Information
#: Retrieval, 2007, https://ciir.cs.umass.edu/pubfiles/ir-249.pdf
_ARTICLES: Final = ("وال", "بال", "كال", "فال", "لل", "ال")
_ENDINGS: Final = ("\u0647\u0627", "ان", "ات", "ون", "ين", "يه", "\u0647", "ي")
_ARABIC: Final = re.compile("[\u0621-\u064a]+")
#: Ways of writing that are looked up though no training row has them.
_BEGINNINGS: Final = ("", "ال", "و", "وال", "بال", "لل")
_MARKS: Final = ("", ".", "،", ",", "؟", "?", "!")

_MEAN_WORDS: Final = 2.0
_RECURRING: Final = 0.3


@dataclass(frozen=True)
class WordsColumn:
    """A free text.

    Attributes:
        name: the column's name.
        words: every way to write a word that is known.
        stems: the feature of each, from 1.
        width: how many stems there are.
    """

    name: str
    words: list[str]
    stems: list[int]
    width: int


def cut(text: str) -> list[str]:
    """Return a text's words, as they stand in it."""
    return [word for word in _CUT.split(text) if word]


def core(word: str) -> str:
    """Return a word without the marks around it."""
    letters = [index for index, letter in enumerate(word) if letter.isalnum()]
    return word[letters[0] : letters[-1] + 1] if letters else ""


def stem(word: str) -> str:
    """Return what a word shares with its other forms; "" for what is no word."""
    plain = _TASHKEEL.sub("", unicodedata.normalize("NFKC", core(word))).casefold()
    plain = plain.translate(_SAME_LETTERS)
    if not _ARABIC.fullmatch(plain):
        return plain
    if plain.startswith("و") and len(plain) > 3:
        plain = plain[1:]
    for article in _ARTICLES:
        if plain.startswith(article) and len(plain) >= len(article) + 2:
            plain = plain.removeprefix(article)
            break
    for ending in _ENDINGS:
        if plain.endswith(ending) and len(plain) >= len(ending) + 2:
            plain = plain.removesuffix(ending)
    return plain


def is_prose(texts: Sequence[str]) -> bool:
    """Return whether different texts are made of words that recur in other rows."""
    rows = [{stem(word) for word in cut(text)} - {""} for text in texts]
    counts = Counter(each for row in rows for each in row)
    total = counts.total()
    if total < _MEAN_WORDS * len(texts):
        return False
    recurring = sum(count for count in counts.values() if count >= _LEAST_ROWS)
    return recurring >= _RECURRING * total


def fit_words(name: str, texts: Iterable[str]) -> WordsColumn:
    """Learn stems and ways of writing from the training rows' texts."""
    rows = [cut(text) for text in texts]
    seen = {word: stem(word) for row in rows for word in row}
    counts = frequencies(each for row in rows for each in {seen[word] for word in row})
    kept = [each for each, count in counts.items() if count >= _LEAST_ROWS][:MOST_STEMS]
    place = {each: index + 1 for index, each in enumerate(sorted(kept))}
    known: dict[str, int] = {}
    for word, its in seen.items():
        if its not in place:
            continue
        known[word] = place[its]
        for way in _ways(core(word)):
            if stem(way) == its:
                for mark in _MARKS:
                    known.setdefault(way + mark, place[its])
    words = sorted(known)
    return WordsColumn(name, words, [known[word] for word in words], len(place))


def _ways(word: str) -> set[str]:
    if _ARABIC.search(word):
        return {beginning + word for beginning in _BEGINNINGS}
    return {word, word.lower(), word.capitalize(), word.upper()}


def word_features(column: WordsColumn, texts: NDArray[Any]) -> NDArray[np.float32]:
    """Return the features (rows, stems + 1) of ``texts`` (rows,)."""
    places = dict(zip(column.words, column.stems, strict=True))
    features = np.zeros((len(texts), column.width + 1), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in cut(str(text)):
            place = places.get(word, 0)
            if place:
                features[row, place - 1] = 1.0
    features[:, -1] = 1.0 - features[:, :-1].max(axis=1, initial=0.0)
    return features
