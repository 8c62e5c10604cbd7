"""Writes the evidence of a check."""

from __future__ import annotations

from pathlib import Path

from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.result import CheckResult
from falaj.policies.reports.wording import Language
from falaj.stacks.command.console import say
from falaj.stacks.errors import StackError


def write_evidence(result: CheckResult, path: Path, *, language: Language = "en") -> None:
    """Write the page, and say so. Raises StackError where it can't be written."""
    put(path, evidence(result, language=language).encode())
    say(f"evidence of {len(result.stacks)} stacks: {path}")


def put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises StackError."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise StackError(f"{path} can't be written: {error.strerror}") from None
