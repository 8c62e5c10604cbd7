"""The page's own words: whole in every language, used, and apart from what comes from outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from jinja2 import Environment, nodes
from markupsafe import Markup

from falaj.policies import reports
from falaj.policies.controls import Confidence
from falaj.policies.reports.evidence.views import Region, State
from falaj.policies.reports.result import SEVERITIES, AnsweredBy, Encryption
from falaj.policies.reports.wording import (
    LANGUAGES,
    Category,
    Language,
    Wording,
    category,
    isolated,
    shown,
)

FOLDER = Path(reports.__file__).parent
#: Keys that are put together: their beginnings, and all that may follow.
FAMILIES: dict[str, Iterable[str]] = {
    "answer.": get_args(AnsweredBy),
    "headline.": get_args(AnsweredBy),
    "answered.": get_args(AnsweredBy),
    "state.": (*get_args(State), "broken"),
    "counted.": get_args(State),
    "severity.": SEVERITIES,
    "encryption.": get_args(Encryption),
    "region.": get_args(Region),
    # The others have names of their own.
    "place.": set(get_args(Region)) - {"home", "elsewhere"},
    "sure.": [each.value for each in Confidence],
    "sure-means.": [each.value for each in Confidence],
    "month.": [str(each) for each in range(1, 13)],
}
#: By the number that it is the form of: https://www.unicode.org/cldr/charts/48/supplemental/language_plural_rules.html
PLURALS: dict[Language, dict[Category, tuple[int, ...]]] = {
    "en": {"one": (1,), "other": (0, 2, 3, 11, 100, 101, 1_000)},
    "ar": {
        "zero": (0,),
        "one": (1,),
        "two": (2,),
        "few": (3, 10, 103, 110, 1_003),
        "many": (11, 26, 99, 111, 199, 1_011),
        "other": (100, 101, 102, 200, 202, 1_000, 1_001, 1_002),
    },
}


def messages(language: Language) -> dict[str, list[str]]:
    """The texts of each message: one, or one for each plural form."""
    return {
        key: [each] if isinstance(each, str) else list(each.values())
        for key, each in Wording(language).messages.items()
    }


def keys_of(node: nodes.Expr) -> Iterator[str]:
    """The keys that an expression of a template can come to."""
    if isinstance(node, nodes.Const):
        yield str(node.value)
    elif isinstance(node, nodes.CondExpr):
        yield from keys_of(node.expr1)
        assert node.expr2 is not None
        yield from keys_of(node.expr2)
    elif isinstance(node, nodes.Concat) and isinstance(node.nodes[0], nodes.Const):
        family = str(node.nodes[0].value)
        yield from (f"{family}{each}" for each in FAMILIES[family])
    else:
        raise AssertionError(f"a key that can't be known: {node}")


def in_templates() -> set[str]:
    found: set[str] = set()
    for path in sorted((FOLDER / "evidence").glob("*")):
        if path.suffix in (".html", ".css"):
            tree = Environment(autoescape=True).parse(path.read_text("utf-8"))
            for call in tree.find_all(nodes.Call):
                if isinstance(call.node, nodes.Name) and call.node.name == "t":
                    found |= set(keys_of(call.args[0]))
    return found


def in_code() -> set[str]:
    """Keys in calls such as `words("title")` and `self(f"month.{n}")`."""
    found: set[str] = set()
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            if called not in ("words", "self", "words.plain", "Wording('en').plain"):
                continue
            given = node.args[0]
            if isinstance(given, ast.Constant):
                found.add(str(given.value))
            elif isinstance(given, ast.JoinedStr) and isinstance(given.values[0], ast.Constant):
                family = str(given.values[0].value)
                found |= {f"{family}{each}" for each in FAMILIES[family]}
    return found


def test_every_language_has_every_message_and_none_is_unused() -> None:
    used = in_templates() | in_code()
    assert len(used) > 150
    for language in LANGUAGES:
        assert set(messages(language)) == used


@pytest.mark.parametrize("language", LANGUAGES)
def test_messages_say_something_and_have_all_plural_forms(language: Language) -> None:
    for key, each in Wording(language).messages.items():
        if not isinstance(each, str):
            assert set(each) == set(PLURALS[language]), key
    for key, texts in messages(language).items():
        assert all(text.strip() for text in texts), key


def values(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"{(\w+)}", text)}


def test_languages_name_the_same_values() -> None:
    english, arabic = messages("en"), messages("ar")
    for key, texts in english.items():
        assert values(texts) == values(arabic[key]), key


def test_arabic_is_arabic() -> None:
    letters = re.compile(r"[\u0621-\u064a]")
    # Names of programs and formats, and signs.
    latin = {"origin.pulumi", "origin.python", "colon"}
    for key, texts in messages("ar").items():
        if key not in latin and key not in ("comma", "semicolon"):
            assert all(letters.search(text) for text in texts), key
        # Nothing in them turns the text around, and digits are those of the English page.
        assert all(shown(text) == text for text in texts), key
        assert not re.search(r"[\u0660-\u0669\u06f0-\u06f9]", "".join(texts)), key
    for key, texts in messages("en").items():
        assert not letters.search("".join(texts)), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_plural_forms_are_those_of_the_language(language: Language) -> None:
    for form, numbers in PLURALS[language].items():
        assert {category(language, n) for n in numbers} == {form}


def test_numbers_and_texts_in_a_message() -> None:
    words = Wording("en")
    assert words("count.rules", n=1_234) == "1,234 rules"
    assert words("project", name="<b>\u202e") == "project <bdi>&lt;b&gt;\\u202e</bdi>"
    assert words("project", name=Markup("<i>a</i>")) == "project <i>a</i>"
    # What a text says of braces and fields is only a text.
    assert words("project", name="{n.__class__}{0}") == "project <bdi>{n.__class__}{0}</bdi>"
    assert Wording("ar")("count.resources", n=2) == "موردان"
    assert Wording("ar").plain("answer.backend").endswith("(--live)")


@pytest.mark.parametrize(("key", "given"), [("no-such", {}), ("project", {}), ("count.rules", {})])
def test_what_a_message_lacks_is_no_silence(key: str, given: dict[str, Any]) -> None:
    with pytest.raises(KeyError):
        Wording("en")(key, **given)


def test_moments_are_in_utc_whatever_the_machine_is() -> None:
    noon = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=4)))
    assert Wording("en").moment(noon).striptags() == "28 February 2026, 21:30 UTC"
    assert 'datetime="2026-02-28T21:30:00Z"' in Wording("ar").moment(noon)
    assert "28 فبراير 2026" in Wording("ar").moment(noon).striptags()
    year = datetime(1999, 12, 31, tzinfo=UTC)
    assert Wording("en").moment(year).striptags() == "31 December 1999, 00:00 UTC"


def test_what_does_not_show_is_written_as_its_number() -> None:
    assert shown("a\x00b\x1b[2J\u202ec\u2066\ud800\u0085") == (
        "a\\u0000b\\u001b[2J\\u202ec\\u2066\\ud800\\u0085"
    )
    # Arabic names may need their marks of direction; lines and tabs are no harm.
    assert shown("سجل\u200f-1\n\tb") == "سجل\u200f-1\n\tb"
    assert isolated("<a>") == "<bdi>&lt;a&gt;</bdi>"


def test_names_with_signs_at_their_edges_are_marked_in_arabic() -> None:
    """Else a browser moves the sign to the other edge: `.sig` would be read as `sig.`."""
    for key, texts in messages("ar").items():
        for text in texts:
            bare = re.sub(r"<bdi dir=['\"]ltr['\"].*?</bdi>|{\w+}|</?\w+>", "", text)
            assert not re.search(r"(?<![\w.])[.\-/]+[A-Za-z]", bare), key
