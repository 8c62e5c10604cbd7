"""The evidence report as a browser shows and prints it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pypdf import PageObject, PdfReader

from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.result import AnsweredBy, CheckResult
from falaj.policies.reports.wording import LANGUAGES, Language, Wording
from tests.policies.reports.browser import Browser, browser
from tests.policies.reports.results import ARABIC, answered, clean, hostile, large, small

# A browser is on no bare machine: `make test-all` sees to it first.
pytestmark = [pytest.mark.slow, pytest.mark.thorough]
SECTIONS = [
    "result", "map", "violations", "undecided", "waivers", "controls", "rules", "register",
    "origin",
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as found:
        yield found


def show(
    page: Browser, result: CheckResult, folder: Path, language: Language = "en", width: int = 1280
) -> Path:
    path = folder / "report.html"
    path.write_text(evidence(result, language=language, signed_by="ab" * 32), encoding="utf-8")
    page.open(path, width=width)
    return path


#: Everything from outside is one of these.
ODD = {
    "markup": "<img src=x onerror=alert(1)>\"'</bdi></code></td>",
    "turned": "\u202egnp.ea-egde\u2066\u2067 a",
    "long": "word" * 400,
    "unseen": "a\x00b\x1b[2Jc\x85",
    "arabic": "سجلات التدقيق (1) / eu-west-1",
}


@pytest.mark.parametrize("result", [small(), clean(), large()], ids=["small", "clean", "large"])
def test_it_asks_for_nothing_and_complains_of_nothing(
    page: Browser, result: CheckResult, tmp_path: Path
) -> None:
    path = show(page, result, tmp_path)
    assert page.requests == [path.as_uri()]
    assert page.complaints == []
    assert page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)") == (
        SECTIONS
    )
    # Its own style is in force although the policy forbids all else.
    assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [1280, 820, 390])
@pytest.mark.parametrize(
    "result",
    [small(), large(2, 200), answered(*get_args(AnsweredBy)), *map(hostile, ODD.values())],
    ids=["small", "large", "all sources", *ODD],
)
def test_nothing_sticks_out(
    page: Browser, result: CheckResult, width: int, language: Language, tmp_path: Path
) -> None:
    show(page, result, tmp_path, language, width)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    # What is wider scrolls within its own box, to either side.
    outside = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll') && "
        "!each.closest('.hidden, .skip, .symbols') && each.checkVisibility() && "
        "(each.getBoundingClientRect().right > innerWidth + 1 || "
        "each.getBoundingClientRect().left < -1))"
        ".map(each => each.outerHTML.slice(0, 120))"
    )
    assert outside == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "result", [small(), answered(*get_args(AnsweredBy)), hostile(ODD["long"])],
    ids=["small", "all sources", "long"],
)  # fmt: skip
def test_results_are_seen_without_scrolling_sideways(
    page: Browser, result: CheckResult, width: int, language: Language, tmp_path: Path
) -> None:
    show(page, result, tmp_path, language, width)
    seen = page.evaluate(
        "(() => { const box = document.querySelector('.stacks').closest('.scroll');"
        "return {fits: box.scrollWidth <= box.clientWidth,"
        "cells: [...document.querySelectorAll('.stacks .outcome')].map(each => {"
        "const place = each.getBoundingClientRect(), text = each.innerText.trim();"
        "const row = each.closest('tr').getBoundingClientRect();"
        "return {inside: place.left >= 0 && place.right <= innerWidth && place.width > 20,"
        "first: place.top < row.top + 80, text}; })}; })()"
    )
    assert len(seen["cells"]) == len(result.stacks)
    for each in seen["cells"]:
        assert each["inside"], each
        assert each["first"], each
        assert each["text"], each
    # Nothing of the table needs scrolling on a phone.
    assert seen["fits"] or width != 390


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_the_band_is_the_first_that_is_read_and_seen(
    page: Browser, width: int, language: Language, tmp_path: Path
) -> None:
    show(page, answered("sandbox"), tmp_path, language, width)
    texts = page.evaluate(
        "(() => { const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT),"
        "found = []; while (walker.nextNode()) { const text = walker.currentNode;"
        "if (text.data.trim() && !text.parentElement.closest('.skip') &&"
        "text.parentElement.checkVisibility()) found.push(text.data.trim()); }"
        "return found.slice(0, 1); })()"
    )
    words = Wording(language)
    assert texts == [words.plain("headline.sandbox")]
    place = page.evaluate(
        "(() => { const band = document.querySelector('.band').getBoundingClientRect();"
        "const title = document.querySelector('h1').getBoundingClientRect();"
        "return [band.top, band.bottom, title.top, innerHeight]; })()"
    )
    assert 0 <= place[0] < place[1] <= place[2] < place[3]


def test_the_band_is_told_without_colours(page: Browser, tmp_path: Path) -> None:
    show(page, answered("sandbox"), tmp_path)
    assert page.evaluate(
        "(() => { const style = getComputedStyle(document.querySelector('.band'));"
        "return parseFloat(style.borderInlineStartWidth) >= 8; })()"
    )
    # Each sign has its word beside it.
    assert page.evaluate(
        "[...document.querySelectorAll('.state, .key, .verdict')].every("
        "each => each.textContent.trim().length > 2)"
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_the_arabic_page_runs_from_right_to_left(
    page: Browser, width: int, tmp_path: Path
) -> None:
    show(page, small(), tmp_path, "ar", width)
    assert page.evaluate("getComputedStyle(document.body).direction") == "rtl"
    assert page.evaluate("document.documentElement.lang") == "ar"
    seen = page.evaluate(
        "(() => { const at = name => document.querySelector(name).getBoundingClientRect();"
        "const band = getComputedStyle(document.querySelector('.band'));"
        "return {heading: innerWidth - at('h1').right, name: at('.stacks tbody th').right,"
        "outcome: at('.stacks tbody .outcome').right,"
        "border: parseFloat(band.borderRightWidth) > parseFloat(band.borderLeftWidth)}; })()"
    )
    assert seen["heading"] < 150
    assert seen["outcome"] < seen["name"]
    assert seen["border"]


def test_codes_numbers_and_english_keep_their_order_in_arabic(
    page: Browser, tmp_path: Path
) -> None:
    """What is marked as running from left to right does so, its punctuation included."""
    show(page, small(), tmp_path, "ar")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    wrong = page.evaluate(
        "[...document.querySelectorAll('[dir=ltr]')].filter(each => {"
        "const text = each.firstChild; if (!text || text.nodeType !== 3) return false;"
        "if (/[\\u0590-\\u08ff]/.test(text.data) || text.length < 2) return false;"
        "const range = document.createRange(), at = index => { range.setStart(text, index);"
        "range.setEnd(text, index + 1); return range.getBoundingClientRect(); };"
        "for (let i = 1; i < text.length; i++) { const one = at(i - 1), two = at(i);"
        "if (one.width && two.width && one.top === two.top && two.left < one.left) return true; }"
        "return false; }).map(each => each.outerHTML)"
    )
    assert wrong == []
    # Ranges, dates and paths among Arabic words are marked so.
    assert page.evaluate(
        "['1\u20135', '2027-03-31', 'stacks/__main__.py:41', 'rules[0].destination.bucket']"
        ".every(text => [...document.querySelectorAll('[dir=ltr]')].some("
        "each => each.textContent === text))"
    )
    # Without the mark, the same text is turned: the test above can fail.
    assert page.evaluate(
        "(() => { const made = document.createElement('p'); made.append('\u0627 2027-03-31');"
        "document.body.append(made); const text = made.firstChild, range = document.createRange();"
        "const at = index => { range.setStart(text, index); range.setEnd(text, index + 1);"
        "return range.getBoundingClientRect().left; }; return at(2) > at(9); })()"
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_tables_are_told_to_those_who_hear_them(
    page: Browser, language: Language, tmp_path: Path
) -> None:
    show(page, small(), tmp_path, language, 390)
    assert page.evaluate(
        "[...document.querySelectorAll('th')].every(each => ['col', 'row'].includes(each.scope))"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll, aside, nav')].every("
        "each => (each.ariaLabel || '').length > 2)"
    )
    # As cards they are tables still, with their columns' names.
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = [each["role"]["value"] for each in tree if not each.get("ignored")]
    assert roles.count("columnheader") >= 8
    assert "rowheader" in roles
    assert (
        page.evaluate("document.querySelectorAll('[lang]:not(html):not([lang=en])').length") == 0
    )


def test_no_script_in_a_name_runs(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate(
        "[...document.querySelectorAll('bdi.name')].some(each => each.textContent.includes('<s'))"
    )


def test_arabic_names_run_from_right_to_left(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    found = page.evaluate(
        f"(() => {{const each = [...document.querySelectorAll('bdi.name')].find("
        f"each => each.textContent === '{ARABIC}' && each.checkVisibility());"
        "const range = document.createRange(), text = each.firstChild;"
        "const at = index => { range.setStart(text, index); range.setEnd(text, index + 1);"
        "return range.getBoundingClientRect().left; };"
        "return at(0) > at(text.length - 1); })()"
    )
    assert found is True


def test_dark_and_light_differ(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    grounds: list[str] = []
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    page.scheme("light")
    assert grounds[0] != grounds[1]


def sheets(page: Browser) -> list[PageObject]:
    """The page as it prints."""
    return list(PdfReader(io.BytesIO(page.pdf())).pages)


def test_it_prints_with_everything_unfolded(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    assert not page.evaluate("document.querySelector('details.control').open")
    whole = len(sheets(page))
    assert whole > 8
    show(page, clean(), tmp_path)
    folded = page.evaluate(
        "(() => {document.querySelectorAll('details').forEach(each => each.remove());})()"
    )
    assert folded is None
    # What is folded on the screen is on paper: without it there are far fewer pages.
    assert len(sheets(page)) < whole / 2


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "result",
    [small(), hostile(ODD["long"]), hostile(ODD["markup"])],
    ids=["small", "long", "markup"],
)
def test_it_prints_on_a4_and_nothing_is_cut_off(
    page: Browser, result: CheckResult, language: Language, tmp_path: Path
) -> None:
    show(page, result, tmp_path, language)
    found = sheets(page)
    assert len(found) > 5
    millimetres = [float(each) / 72 * 25.4 for each in found[0].mediabox[2:]]
    assert millimetres == pytest.approx([210, 297], abs=0.5)
    # On the width of a sheet without its margins, nothing is wider than the sheet.
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        page.size(round((210 - 28) / 25.4 * 96))
        outside = page.evaluate(
            "[...document.querySelectorAll('body *')].filter(each => each.checkVisibility() &&"
            "!each.closest('.hidden, .symbols') && (each.getBoundingClientRect().left < -1 ||"
            "each.getBoundingClientRect().right > innerWidth + 1))"
            ".map(each => each.outerHTML.slice(0, 120))"
        )
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
    assert outside == []


def test_each_printed_sheet_says_what_answered_and_when(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    texts = [each.extract_text() for each in sheets(page)]
    for number, sheet in enumerate(texts, 1):
        assert "Sandbox: nothing real was looked at" in sheet
        assert "Evidence of residency and encryption" in sheet
        assert "21 November 2026, 09:30 UTC" in sheet
        assert f"{number} / {len(texts)}" in sheet
    # What is folded on the screen is named on paper.
    text = " ".join("".join(texts).split())
    assert "controls without a rule or without anything to judge" in text
    assert "Assessment of personal data protection impact" in text
