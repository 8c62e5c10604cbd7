"""The site is built from the repository, needs no network to be read, and takes no broken link."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer import documents

ROOT = documents.ROOT
#: What a page would fetch: addresses in links that a person follows are none of it.
_FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source|object|embed)\b[^>]*?(?:src|href|data)="(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"(?m)^\t@\$\(VENV\)/bin/sphinx-build (.*) docs out/docs$", makefile)
    command = [sys.executable, "-m", "sphinx", *line.split(), str(source), str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT / "docs", target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css", ".js"):
            assert not _FETCHED.search(path.read_text(encoding="utf-8")), path.name
    assert not [
        path.name for path in site.rglob("*") if path.suffix in (".woff", ".woff2", ".ttf")
    ]


def test_what_would_be_fetched_is_seen() -> None:
    for text in (
        '<script async src="https://a.example/x.js">', '<link rel="x" href="//a.example/x.css">',
        "@import 'https://a.example/x.css'", "src: url(https://a.example/x.woff2)",
    ):  # fmt: skip
        assert _FETCHED.search(text), text
    assert not _FETCHED.search('<a href="https://a.example">a</a> <img src="../b.svg">')


def test_nothing_names_the_machine_that_built_it(site: Path) -> None:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".js", ".svg"):
            assert str(ROOT) not in path.read_text(encoding="utf-8"), path.name


def test_the_reference_is_in_the_pages(site: Path) -> None:
    for page, text in (
        ("settings", "falaj:gpuPools.NAME.maxNodes"), ("rules", "residency-aws-region"),
        ("commands", "falaj sandbox fault add"), ("components-clouds", "max_nodes"),
        ("controls", "iso27001:A.8.24"),
    ):  # fmt: skip
        html = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert text in re.sub(r"<[^>]+>", "", html), page


@pytest.mark.parametrize(
    "wrong",
    [
        "[gone](gone.md)", "[gone](index.md#gone)", "![gone](gone.svg)",
        "```{falaj-reference} gone\n```", "```{gone}\n```",
    ],
)  # fmt: skip
def test_what_is_broken_stops_the_build(tmp_path: Path, wrong: str) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy2(ROOT / "docs" / "conf.py", source)
    # The extension finds the product by where it lies.
    conf = (source / "conf.py").read_text(encoding="utf-8")
    (source / "conf.py").write_text(
        conf.replace("Path(__file__)", f"Path({str(ROOT)!r}, 'docs/conf.py')")
    )
    (source / "index.md").write_text("# A page\n")
    assert build(source, tmp_path / "good").returncode == 0
    (source / "index.md").write_text(f"# A page\n\n{wrong}\n")
    done = build(source, tmp_path / "out")
    assert done.returncode != 0
    assert "index.md" in done.stdout + done.stderr
