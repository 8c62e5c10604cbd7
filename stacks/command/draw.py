"""``falaj draw``: a stack as a drawing, on the terminal and as an SVG file."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import click

from falaj.stacks import drawing
from falaj.stacks.checking.evidence import put
from falaj.stacks.checking.preview import opened, preview_document
from falaj.stacks.checking.subject import Subject, subject_of
from falaj.stacks.command import installation, project
from falaj.stacks.command.call import no_sandbox
from falaj.stacks.command.console import say
from falaj.stacks.command.options import sandbox_options, stack_option, the_stack
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.command.testplane import use_cluster
from falaj.stacks.errors import StackError
from falaj.stacks.resources import State, of_export, of_preview
from falaj.stacks.settings import CloudSettings
from falaj.wire.documents import mapping

_COLUMNS: Final = 80
"""Of the drawing where it isn't printed on a terminal."""


@click.command()
@stack_option
@sandbox_options
@click.option(
    "--now", is_flag=True, help="Draw what the stack has now instead of what `up` would make."
)
@click.option(
    "--state",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw what a file has, which `pulumi stack export` wrote, or "
    "`pulumi preview --json --show-sames`.",
)
@click.option(
    "--svg", metavar="FILE", type=click.Path(path_type=Path), help="Also write one SVG file."
)
@click.option(
    "--json",
    "data",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write what is drawn as data.",
)
@click.option(
    "--width",
    metavar="COLUMNS",
    type=click.IntRange(min=drawing.NARROWEST),
    help=f"Of the text (default: the terminal's, {_COLUMNS} into a file).",
)
def draw(
    *,
    stack: str | None,
    project: Path | None,
    sandbox: bool,
    cluster: str | None,
    now: bool,
    file: Path | None,
    svg: Path | None,
    data: Path | None,
    width: int | None,
) -> int:
    """Draw a stack: where things are, what may talk to what, which key encrypts what.

    What `up` would make is drawn, from a preview; nothing is changed. What the preview of a real
    cloud can't know is said; in the sandbox everything is known.
    """
    if now and file is not None:
        raise StackError("--now and --state exclude each other: the backend, or a file")
    if file is not None:
        made = _in_file(file)
    else:
        # What is printed is the drawing alone, so that it can go into a file.
        with redirect_stdout(sys.stderr):
            if cluster is not None:
                use_cluster(cluster, sandbox=sandbox)
            chosen = the_stack(stack, project)
            made = drawing.of(_now(chosen, sandbox) if now else _planned(chosen, sandbox))
    say(made.as_text(width or _columns()).rstrip("\n"))
    # After the drawing: a file that can't be written must not hide it.
    for path, content in (
        (svg, made.as_svg),
        (data, lambda: json.dumps(made.as_json(), indent=2, ensure_ascii=False) + "\n"),
    ):
        if path is not None:
            put(path, content().encode())
            print(f"drawing: {path}", file=sys.stderr)
    return 0


def _columns() -> int:
    if not sys.stdout.isatty():
        return _COLUMNS
    return max(shutil.get_terminal_size().columns, drawing.NARROWEST)


def _planned(stack: StackFile, sandbox: bool) -> list[State]:
    """The resources that an update would leave behind."""
    stack.ensure()
    subject = subject_of(stack)
    installation.require(subject.extras)
    in_sandbox = _sandboxed(subject, sandbox)
    where = " in the sandbox" if in_sandbox else ""
    say(f"drawing {stack.name}: previewing it{where}")
    # What stays as it is belongs to the stack as well, and else the engine leaves it out.
    pulumi, _ = opened(subject, sandbox=in_sandbox)
    return of_preview(preview_document(pulumi, ["--show-sames"]))


def _now(stack: StackFile, sandbox: bool) -> list[State]:
    """The resources that the stack's backend has."""
    pulumi = Pulumi(stack, sandbox=_sandboxed(subject_of(stack), sandbox))
    if not pulumi.exists():
        raise StackError(
            f"--now: the backend has no stack {stack.name!r}\n"
            f"  bring it up with: {project.command('up', stack, sandbox=pulumi.sandbox)}\n"
            "  or leave --now out to draw what that would make"
        )
    return of_export(pulumi.exported())


def _sandboxed(subject: Subject, asked: bool) -> bool:
    if asked and subject.is_local:
        raise no_sandbox(subject.stack)
    settings = subject.settings
    return asked or (isinstance(settings, CloudSettings) and settings.sandbox)


def _in_file(path: Path) -> drawing.Drawing:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StackError(f"--state: {path} can't be read: {error}") from None
    known = mapping(document)
    try:
        return drawing.of(of_preview(known) if "steps" in known else of_export(document))
    except StackError as error:
        raise StackError(f"--state: {path}: {error}") from None
