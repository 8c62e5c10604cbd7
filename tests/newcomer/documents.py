"""The documents that people read, and the commands that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("components", "engine", "policies", "sandbox", "stacks", "wire", "workloads")
#: A word that begins what somebody would paste into a shell; `.venv/bin/` may stand before it.
PROGRAMS = frozenset({
    "make", "falaj", "pulumi", "python", "python3", "pip", "uv", "pytest", "pre-commit", "pyright",
    "ruff", "lint-imports", "git", "curl", "openssl", "docker", "kubectl", "helm", "npm", "cd",
    "export", "source",
})  # fmt: skip
_ENVIRONMENT = ".venv/bin/"
_PROMPT = "$ "


@dataclass(frozen=True)
class Block:
    """A fenced block: its document, its language, the scenario that it belongs to, its text."""

    document: Path
    language: str
    scenario: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines without their comments, each a command."""
        lines = (re.sub(r"\s+#.*$", "", line).rstrip() for line in self.text.splitlines())
        return [line for line in lines if line]


def documents() -> list[Path]:
    """Every page that a person reads first to last, the README before the others."""
    top = sorted(ROOT.glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def text() -> str:
    """What stands in all documents, one after another."""
    return "\n".join(path.read_text(encoding="utf-8") for path in documents())


@cache
def tokens(path: Path) -> list[Token]:
    """A document in parts, as a reader of Markdown sees them."""
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


@cache
def blocks() -> list[Block]:
    """Fenced blocks of all documents, those within lists as well."""
    found: list[Block] = []
    for path in documents():
        for token in tokens(path):
            if token.type in ("fence", "code_block"):
                language, _, scenario = token.info.strip().partition(" ")
                found.append(Block(path, language, scenario, token.content))
    return found


def commands(scenario: str) -> list[str]:
    """What a scenario's blocks say, in their order."""
    return [
        command
        for block in blocks()
        if block.language == "sh" and block.scenario == scenario
        for command in block.commands
    ]


def other(scenario: str, language: str) -> str:
    """A scenario's block in another language, such as a program or settings."""
    (found,) = (b for b in blocks() if (b.language, b.scenario) == (language, scenario))
    return found.text


def spans(path: Path) -> Iterator[str]:
    """What a document sets as code within its sentences and tables."""
    for token in tokens(path):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def is_command(line: str) -> bool:
    """Whether somebody would paste it into a shell: a program with what it is given."""
    program, space, _ = line.removeprefix(_PROMPT).partition(" ")
    return bool(space) and program.removeprefix(_ENVIRONMENT) in PROGRAMS


def mentioned() -> list[str]:
    """Commands within sentences and tables."""
    return [span for path in documents() for span in spans(path) if is_command(span)]


def looks_like_commands(block: Block) -> bool:
    """Whether somebody would paste it into a shell."""
    lines = block.text.splitlines()
    return not block.language.startswith("{") and any(is_command(line.strip()) for line in lines)
