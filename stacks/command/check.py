"""``falaj check`` and ``falaj report``: whether stacks meet the policies, and the evidence."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from falaj.policies.model import PolicyError
from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.junit import to_junit
from falaj.policies.reports.result import CheckResult, StackResult, read_result
from falaj.policies.reports.sarif import to_sarif
from falaj.policies.reports.summary import summarise
from falaj.stacks.checking.check import check_now, gathered
from falaj.stacks.checking.recorded import check_file, check_live
from falaj.stacks.checking.side_by_side import jobs_by_default
from falaj.stacks.checking.subject import subjects
from falaj.stacks.command import installation
from falaj.stacks.command.console import say
from falaj.stacks.command.options import stacks_option, the_project
from falaj.stacks.errors import StackError

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Reports that `check` can write besides what it prints.
FORMATS: Mapping[str, tuple[str, Callable[[CheckResult], str]]] = {
    "json": ("the whole result, which `falaj report` reads", lambda result: result.to_json()),
    "sarif": ("SARIF 2.1.0, for code scanning", to_sarif),
    "junit": ("JUnit XML, for test reports", to_junit),
    "html": ("the evidence: one HTML file", evidence),
}


@dataclass(frozen=True)
class Asked:
    """What is judged, and how."""

    project: Path | None
    stacks: tuple[str, ...]
    states: tuple[Path, ...]
    live: bool
    strict: bool | None
    jobs: int


def _asking(command: _Command) -> _Command:
    """The options of `Asked`."""
    for option in (
        click.option(
            "--jobs",
            type=click.IntRange(min=1),
            default=jobs_by_default(),
            show_default=True,
            help="Stacks side by side.",
        ),
        click.option(
            "--strict/--no-strict",
            default=None,
            help="Whether what can't be known fails (default: in CI and for production).",
        ),
        click.option(
            "--live",
            is_flag=True,
            help="Judge what the real backend knows of the stacks instead of a preview.",
        ),
        click.option(
            "--state",
            "states",
            metavar="FILE",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Judge an exported state (pulumi stack export) instead of a preview; with one "
            "--stack, by that stack's settings.",
        ),
        stacks_option,
    ):
        command = option(command)
    return command


def _formats(command: _Command) -> _Command:
    """An option for each report."""
    for name, (what, _) in reversed(list(FORMATS.items())):
        command = click.option(
            f"--{name}",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help=f"Also write {what}.",
        )(command)
    return command


@click.command()
@_asking
@_formats
def check(
    *,
    stacks: tuple[str, ...],
    project: Path | None,
    states: tuple[Path, ...],
    live: bool,
    strict: bool | None,
    jobs: int,
    **files: Path | None,
) -> int:
    """Judge stacks by the policy packs, offline.

    Stacks are previewed in a scratch sandbox, side by side. The exit status is 0 clean, 1
    violations, 2 something could not be checked.
    """
    result = _result(Asked(project, stacks, states, live, strict, jobs))
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 100
    say()
    say(summarise(result, width=width, colour=terminal and "NO_COLOR" not in os.environ))
    # After the summary: a report that can't be written must not hide what was found.
    for name, (_, write) in FORMATS.items():
        if (path := files[name]) is not None:
            _put(path, write(result))
            say(f"{name}: {path}")
    return result.exit_code


@click.command()
@_asking
@click.option(
    "--from",
    "recorded",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="What `falaj check --json FILE` wrote (default: check now).",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default="evidence.html",
    show_default=True,
)
def report(
    *,
    stacks: tuple[str, ...],
    project: Path | None,
    states: tuple[Path, ...],
    live: bool,
    strict: bool | None,
    jobs: int,
    recorded: Path | None,
    out: Path,
) -> int:
    """Write the evidence of a check: one HTML file, by control.

    The exit status is the check's own.
    """
    if recorded is not None:
        result = _recorded(recorded)
    else:
        result = _result(Asked(project, stacks, states, live, strict, jobs))
    _put(out, evidence(result))
    say(f"evidence of {len(result.stacks)} stacks: {out}")
    return result.exit_code


def _recorded(path: Path) -> CheckResult:
    try:
        return read_result(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, PolicyError) as error:
        raise StackError(f"--from: {error}") from None


def _result(asked: Asked) -> CheckResult:
    started = datetime.datetime.now(datetime.UTC)
    if asked.states and asked.live:
        raise StackError("--state and --live exclude each other: a file, or the backend")
    project = the_project(asked.project)
    found: list[StackResult] = []
    if asked.states:
        chosen = subjects(project, asked.stacks) if asked.stacks else []
        if len(chosen) > 1:
            raise StackError("--state: given with several stacks; allowed: one --stack, or none")
        subject = chosen[0] if chosen else None
        found = [check_file(each, subject, strict=asked.strict) for each in asked.states]
        return gathered(started, found)
    chosen = subjects(project, asked.stacks)
    names = ", ".join(each.stack.name for each in chosen)
    if asked.live:
        say(f"checking {len(chosen)} stacks of {project.name}: {names}")
        return gathered(started, [check_live(each, strict=asked.strict) for each in chosen])
    installation.require(sorted({extra for each in chosen for extra in each.extras}))
    say(f"checking {len(chosen)} stacks of {project.name}: {names}")
    return check_now(chosen, asked.strict, asked.jobs)


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises StackError."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise StackError(f"{path} can't be written: {error.strerror}") from None
