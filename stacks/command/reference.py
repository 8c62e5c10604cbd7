"""``falaj settings``: every key of a stack file, what it means, what is allowed, the default."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path

import click

from falaj.stacks.command.console import say
from falaj.stacks.errors import StackError
from falaj.stacks.settings import reference, schema

_INDENT = "    "
_WIDEST = 100


@click.command()
@click.argument("asked", metavar="[KEY]", default="")
@click.option(
    "--schema",
    "schema_file",
    is_flag=False,
    flag_value="-",
    metavar="FILE",
    help="Write the JSON Schema of stack files instead (alone: to the output).",
)
def settings(asked: str, schema_file: str | None) -> int:
    """Describe the keys of a stack's file: their meaning, what is allowed, the defaults.

    KEY is a kind of stack (smb), a key (falaj:service.port) or a part of one; without it, all are
    described.
    """
    if schema_file is not None:
        return _write_schema(schema_file)
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, _WIDEST) if terminal else _WIDEST
    for row in reference.rows(asked):
        say(f"{row.key}  ({', '.join(row.kinds)})")
        facts = [f"allowed: {row.allowed}"]
        if row.required:
            facts.append("needed")
        elif row.default and "Default:" not in row.meaning:
            facts.append(f"default: {row.default}")
        for text in (row.meaning, "; ".join(facts)):
            say(textwrap.fill(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT))
    return 0


def _write_schema(path: str) -> int:
    if path == "-":
        say(schema.text().rstrip("\n"))
        return 0
    try:
        Path(path).write_text(schema.text(), encoding="utf-8")
    except OSError as error:
        raise StackError(f"--schema: {path} can't be written: {error.strerror}") from None
    say(f"schema of stack files: {path}")
    return 0
