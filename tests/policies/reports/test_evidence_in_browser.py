"""The evidence report as a browser shows and prints it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.result import CheckResult
from tests.policies.reports.browser import Browser, browser
from tests.policies.reports.results import ARABIC, clean, large, small

pytestmark = pytest.mark.slow
SECTIONS = [
    "result", "map", "violations", "undecided", "waivers", "controls", "rules", "register",
    "origin",
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as found:
        yield found


def show(page: Browser, result: CheckResult, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(evidence(result), encoding="utf-8")
    page.open(path)
    return path


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


@pytest.mark.parametrize("width", [1280, 820, 390])
@pytest.mark.parametrize("result", [small(), large(2, 200)], ids=["small", "large"])
def test_nothing_sticks_out(
    page: Browser, result: CheckResult, width: int, tmp_path: Path
) -> None:
    show(page, result, tmp_path)
    page.size(width)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    # What is wider scrolls within its own box.
    outside = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll') && "
        "each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)"
        ".map(each => each.outerHTML.slice(0, 120))"
    )
    assert outside == []


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


def test_it_prints_with_everything_unfolded(page: Browser, tmp_path: Path) -> None:
    show(page, small(), tmp_path)
    assert not page.evaluate("document.querySelector('details.control').open")
    text = printed(page.pdf())
    assert text.startswith(b"%PDF-")
    assert page_count(text) > 8
    show(page, clean(), tmp_path)
    folded = page.evaluate(
        "(() => {document.querySelectorAll('details').forEach(each => each.remove());})()"
    )
    assert folded is None
    # What is folded on the screen is on paper: without it there are far fewer pages.
    assert page_count(printed(page.pdf())) < page_count(text) / 2


def printed(pdf: bytes) -> bytes:
    """A PDF with its packed streams of objects unpacked."""
    parts = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.S):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return b"".join(parts)


def page_count(text: bytes) -> int:
    return len(re.findall(rb"/Type ?/Page\b(?!s)", text))
