"""What the command prints: steps with their time, and plain paragraphs."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print an error for a person: the message, no trace."""
    print(f"error: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(number: int, total: int, title: str) -> Generator[None]:
    """Announce a step and say how long it took when it ended well."""
    say(f"[{number}/{total}] {title}")
    started = time.monotonic()
    yield
    say(f"[{number}/{total}] {title}: done in {time.monotonic() - started:.1f} s")


def table(rows: list[tuple[str, ...]], *, indent: str = "  ") -> str:
    """Columns padded to the same width; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        (
            indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def display() -> list[str]:
    """How the engine draws: a live table on a terminal, else a line for each event."""
    return [] if sys.stdout.isatty() else ["--non-interactive"]
