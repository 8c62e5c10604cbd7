"""The commands of the README, as they stand in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("make", "falaj", ".venv/bin/falaj", ".venv/bin/python", "pulumi", "python3", "curl")

_FENCE = re.compile(r"(?ms)^```(?P<about>[^\n`]*)\n(?P<text>.*?)^```$")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the scenario that it belongs to, and its text."""

    language: str
    scenario: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines without their comments, each a command."""
        lines = (re.sub(r"\s+#.*$", "", line).rstrip() for line in self.text.splitlines())
        return [line for line in lines if line]


def text() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def blocks() -> list[Block]:
    found: list[Block] = []
    for match in _FENCE.finditer(text()):
        language, _, scenario = match["about"].strip().partition(" ")
        found.append(Block(language, scenario, match["text"]))
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


def mentioned() -> list[str]:
    """Commands within sentences and tables."""
    outside = _FENCE.sub("", text())
    return [
        span for span in _SPAN.findall(outside) if span.split(" ")[0] in PROGRAMS and " " in span
    ]


def looks_like_commands(block: Block) -> bool:
    """Whether somebody would paste it into a shell."""
    return any(line.split(" ")[0] in PROGRAMS for line in block.text.splitlines())
