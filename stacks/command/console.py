"""What the command prints: steps with their time, plain paragraphs, tables, questions."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

#: Columns of a table where nobody looks at it on a terminal.
_WIDE = 1_000


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print an error for a person: the message, no trace."""
    print(f"error: {text}", file=sys.stderr, flush=True)


def progress(as_json: bool) -> Callable[[str], None]:
    """Lines about what is being done; beside a JSON object on the other stream."""
    return _aside if as_json else say


def _aside(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Whether a person sees what is printed and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def width() -> int:
    """Columns for what is printed: the terminal's, or many into a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE


def confirmed(question: str) -> bool:
    """Ask a person; only ``yes`` is a yes. Raises EOFError where nobody answers."""
    say(question)
    return input("Type yes to go on: ").strip().lower() == "yes"


@contextmanager
def step(number: int, total: int, title: str) -> Generator[None]:
    """Announce a step and say how long it took when it ended well."""
    say(f"[{number}/{total}] {title}")
    started = time.monotonic()
    yield
    say(f"[{number}/{total}] {title}: done in {time.monotonic() - started:.1f} s")


def table(rows: Sequence[tuple[str, ...]], *, indent: str = "  ") -> str:
    """Columns padded to the same width; the first row is the heading.

    On a terminal cells are wrapped so that no line is wider than it.
    """
    if sys.stdout.isatty():
        return _on_terminal(rows, indent)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        (
            indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _on_terminal(rows: Sequence[tuple[str, ...]], indent: str) -> str:
    from rich.console import Console  # noqa: PLC0415 - a quarter of a second, for terminals only
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in rows[0]:
        drawn.add_column(Text(head), overflow="fold")
    for row in rows[1:]:
        drawn.add_row(*map(Text, row))
    console = Console()
    with console.capture() as captured:
        console.print(Padding(drawn, (0, 0, 0, len(indent))))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
