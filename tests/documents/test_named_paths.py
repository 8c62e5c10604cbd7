"""What documents for those who work on Falaj name is there: a rename makes these fail."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.newcomer import documents

ROOT = documents.ROOT
TOPS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
#: READMEs of folders below the top, each about its own folder.
OF_FOLDERS = sorted(
    path
    for top in (ROOT / "falaj").iterdir()
    if top.is_symlink()
    for path in top.resolve().rglob("README.md")
    if ROOT in path.parents
)
_PATH = re.compile(r"[\w./-]+")


def named_paths(path: Path) -> list[str]:
    """What a document sets as code and means a file or folder of the repository."""
    words = [word for span in documents.spans(path) for word in span.split()]
    return [
        word
        for word in words
        if _PATH.fullmatch(word)
        and "/" in word
        and (word.partition("/")[0] in TOPS or (ROOT / word.partition("/")[0]).exists())
        and not word.startswith("/")
    ]


def missing(path: Path) -> list[str]:
    """Paths that aren't there; what git ignores is made by commands."""
    gone = [name for name in named_paths(path) if not (ROOT / name).exists()]
    ignored = ["git", "check-ignore", "-q", "--no-index"]
    return [
        name for name in gone if subprocess.run([*ignored, name], cwd=ROOT, check=False).returncode
    ]


def named_modules(path: Path) -> list[str]:
    """Packages of Falaj that a document names; ``falaj.io/…`` are labels of nodes."""
    found = [re.findall(r"\bfalaj(?!\.io/)(?:\.\w+)+", span) for span in documents.spans(path)]
    return [name for names in found for name in names]


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: path.stem)
def test_paths_are_there(path: Path) -> None:
    if path.stem == "CHANGELOG":
        return  # names what was there
    assert missing(path) == []


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: path.stem)
def test_modules_are_there(path: Path) -> None:
    assert [name for name in named_modules(path) if importlib.util.find_spec(name) is None] == []


def named_files(readme: Path) -> list[str]:
    """What a folder's own README sets as code and means a file or folder in it."""
    return [
        span
        for span in documents.spans(readme)
        if re.fullmatch(r"[\w./*-]+(\.(py|yaml|json|html)|(?<=\w)/)", span) and span[0] not in "~/"
    ]


@pytest.mark.parametrize("readme", OF_FOLDERS, ids=lambda path: path.parent.name)
def test_readmes_of_folders_name_what_is_there(readme: Path) -> None:
    folder = readme.parent
    gone = [
        name
        for name in named_files(readme)
        if not (
            (ROOT / name).exists()
            or (name.startswith("..") and (folder / name).exists())
            or (not name.startswith("..") and any(folder.rglob(name)))
        )
    ]
    assert gone == []


def test_the_house_names_its_rooms() -> None:
    house = ROOT / "ARCHITECTURE.md"
    named = set(named_paths(house))
    packages = [path.name for path in (ROOT / "falaj").iterdir() if path.is_symlink()]
    assert len(packages) > 5
    for top in packages:
        assert f"{top}/" in named, top


def test_a_renamed_path_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`stacks/gone/` and `.venv/bin/pytest tests/gone` but not `a/b`, `stacks/Pulumi.x.yaml`,\n"
        "`application/json` or `falaj.gone.module`.\n"
    )
    assert missing(page) == ["stacks/gone/", "tests/gone"]
    assert named_modules(page) == ["falaj.gone.module"]


def test_import_rules_are_those_of_the_project() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## Who may know whom")[2].partition("\n\nSo ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = [each["name"] for each in project["tool"]["importlinter"]["contracts"]]
    assert re.findall(r"(?m)^- (.*)$", section) == contracts
