"""The words of the evidence in each of its languages, and how a language counts and dates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from typing import Final, Literal, get_args

import yaml
from markupsafe import Markup, escape
from pydantic import TypeAdapter

Language = Literal["en", "ar"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
#: Plural categories of CLDR: https://www.unicode.org/cldr/charts/48/supplemental/language_plural_rules.html
Category = Literal["zero", "one", "two", "few", "many", "other"]

_MESSAGES: Final = TypeAdapter(dict[str, str | dict[Category, str]])
#: Characters that don't show, or that turn the text after them: controls, lone surrogates, and
#: embeddings, overrides and isolates of the bidirectional algorithm.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def shown(text: str) -> str:
    """A text with what would not show, or would turn what follows, written as its number."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def isolated(text: str) -> Markup:
    """A text from outside, as HTML whose direction and marks end with it."""
    return Markup("<bdi>") + escape(shown(text)) + Markup("</bdi>")


class Wording:
    """The messages of one language.

    >>> str(Wording("en")("count.stacks", n=2))
    '2 stacks'
    """

    def __init__(self, language: Language) -> None:
        self.language: Final[Language] = language

    def __call__(self, key: str, /, **values: object) -> Markup:
        """A message as HTML.

        Args:
            key: the message's.
            values: what it names. Numbers are written as the language does; texts are escaped and
                isolated from the words around them; HTML stays as it is. `n` chooses the plural.

        Raises:
            KeyError: there is no such message, or it names a value that isn't given.
        """
        found = self.messages[key]
        if not isinstance(found, str):
            n = values["n"]
            assert isinstance(n, int)  # noqa: S101 - of our own templates
            found = found[category(self.language, n)]
        return Markup(found).format(**{name: _written(each) for name, each in values.items()})  # noqa: S704 - our own file

    def plain(self, key: str) -> str:
        """A message without values, as plain text."""
        return self(key).striptags()

    def moment(self, moment: datetime) -> Markup:
        """A moment in UTC, for readers and for machines."""
        at = moment.astimezone(UTC)
        text = self(
            "moment",
            day=at.day,
            month=self(f"month.{at.month}"),
            year=escape(str(at.year)),
            time=escape(f"{at:%H:%M}"),
        )
        return Markup('<time datetime="{}">{}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", text)

    @property
    def direction(self) -> Literal["ltr", "rtl"]:
        """Which way the language is written."""
        return "rtl" if self.language == "ar" else "ltr"

    @cached_property
    def messages(self) -> Mapping[str, str | Mapping[Category, str]]:
        """All messages by their keys."""
        return _read(self.language)


@cache
def _read(language: Language) -> Mapping[str, str | Mapping[Category, str]]:
    file = resources.files(__package__ or "").joinpath(f"messages.{language}.yaml")
    return _MESSAGES.validate_python(yaml.safe_load(file.read_text("utf-8")))


def category(language: Language, n: int) -> Category:
    """The plural form that a language takes for a whole number."""
    if language == "en":
        return "one" if n == 1 else "other"
    exact: Mapping[int, Category] = {0: "zero", 1: "one", 2: "two"}
    if n in exact:
        return exact[n]
    rest = abs(n) % 100
    return "few" if 3 <= rest <= 10 else "many" if rest >= 11 else "other"


def _written(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return f"{value:,}" if isinstance(value, int) else isolated(str(value))
