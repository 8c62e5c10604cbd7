"""Links within the documents lead somewhere; no generator is needed to know."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.newcomer import documents

ROOT = documents.ROOT
DOCS = ROOT / "docs"
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_INCLUDE = re.compile(r"\{include\} (\S+)")
#: Addresses that documents may name: of a form that they keep, never a place to fetch from.
ADDRESSES = {"https://keepachangelog.com/en/1.1.0/"}
PAGES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in documents.documents()]


def links(path: Path) -> Iterator[str]:
    """Where the links and pictures of a document lead, and what its tables of contents name."""
    for token in documents.tokens(path):
        for child in token.children or ():
            found = child.attrGet("href") if child.type == "link_open" else None
            found = child.attrGet("src") if child.type == "image" else found
            if found is not None:
                yield unquote(str(found))
        if token.type == "fence" and token.info.strip() == "{toctree}":
            entries = [line for line in token.content.splitlines() if line and line[0] != ":"]
            yield from (f"{entry}.md" for entry in entries)


def whole(path: Path) -> Path:
    """The file whose text a page shows: another's, where it includes one."""
    found = [
        match[1]
        for token in documents.tokens(path)
        if token.type == "fence" and (match := _INCLUDE.fullmatch(token.info.strip()))
    ]
    return (path.parent / found[0]).resolve() if found else path


def anchors(path: Path) -> set[str]:
    """The names by which a page's headings can be linked, as repositories' hosts make them."""
    found: set[str] = set()
    tokens = documents.tokens(whole(path))
    for token, after in itertools.pairwise(tokens):
        if token.type == "heading_open":
            shown = "".join(child.content for child in after.children or ())
            slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            same = sum(each == slug or each.startswith(f"{slug}-") for each in found)
            found.add(f"{slug}-{same}" if slug in found else slug)
    return found


def wrong(path: Path, link: str) -> str:
    """What is wrong with a link; empty where nothing is."""
    if _ELSEWHERE.match(link):
        return "" if link in ADDRESSES else "leads to another host"
    if link.startswith("/"):
        return "isn't relative"
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    return wrong_place(path, target) or wrong_heading(target, anchor)


def wrong_place(path: Path, target: Path) -> str:
    if not target.is_relative_to(ROOT):
        return "leads out of the repository"
    if not target.is_file():
        return "no such file"
    if DOCS in path.parents and DOCS not in target.parents:
        return "leads out of the pages that are built"
    return ""


def wrong_heading(target: Path, anchor: str) -> str:
    if anchor and anchor not in anchors(target):
        return f"no such heading; there are {', '.join(sorted(anchors(target)))}"
    return ""


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere(path: Path) -> None:
    assert {link: said for link in links(path) if (said := wrong(path, link))} == {}


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("gone.md", "no such file"),
        ("tutorial.md#gone", "no such heading"),
        ("#gone", "no such heading"),
        ("../README.md", "leads out of the pages"),
        ("../../outside.md", "leads out of the repository"),
        ("/docs/tutorial.md", "isn't relative"),
        ("https://example.ae/", "leads to another host"),
        ("mailto:somebody@example.ae", "leads to another host"),
        ("how-to", "no such file"),
        ("tutorial.md#what-you-need", ""),
        ("how-to/clouds.md", ""),
    ],
)
def test_a_broken_link_is_found(link: str, said: str) -> None:
    found = wrong(DOCS / "index.md", link)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_links_are_read_wherever_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[a](one.md) ![b](two.svg)\n\n| [c](three.md) |\n|---|\n| [d][e] |\n\n[e]: four.md\n\n"
        "`[no](code.md)`\n\n```{toctree}\n:hidden:\n\nfive\n```\n"
    )
    assert sorted(links(page)) == ["five.md", "four.md", "one.md", "three.md", "two.svg"]


def test_every_page_can_be_reached() -> None:
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            within = (each.partition("#")[0] for each in links(page) if "://" not in each)
            waiting += [(page.parent / each).resolve() for each in within if each.endswith(".md")]
    assert set(DOCS.rglob("*.md")) - seen == set()


def test_the_readme_leads_to_relative_places_alone() -> None:
    """It is a wheel's description as well, which says so: no address of a host is in it."""
    readme = ROOT / "README.md"
    assert not [link for link in links(readme) if _ELSEWHERE.match(link)]
    assert "Links are paths in the repository." in readme.read_text(encoding="utf-8")
