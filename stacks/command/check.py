"""``falaj check`` and ``falaj report``: whether stacks meet the policies, and the evidence."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from falaj.policies.model import PolicyError
from falaj.policies.reports.junit import to_junit
from falaj.policies.reports.result import CheckResult, StackResult, read_result
from falaj.policies.reports.sarif import to_sarif
from falaj.policies.reports.summary import summarise
from falaj.policies.reports.wording import LANGUAGES, Language
from falaj.policies.team_rules import installed_rules
from falaj.stacks.checking.assumed import assumed
from falaj.stacks.checking.check import (
    begin,
    check_now,
    gathered,
    jobs_by_default,
    unknown_types,
)
from falaj.stacks.checking.evidence import (
    PASSPHRASE,
    PASSPHRASE_FILE,
    put,
    signer_of,
    verify_evidence,
    write_evidence,
)
from falaj.stacks.checking.recorded import check_file, check_live, team_rules
from falaj.stacks.checking.subject import Subject, subject_of, subjects
from falaj.stacks.command import installation
from falaj.stacks.command.console import say
from falaj.stacks.command.options import stacks_option, the_project
from falaj.stacks.errors import StackError

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Reports for programs that `check` can write besides what it prints.
FORMATS: Mapping[str, tuple[str, Callable[[CheckResult], str]]] = {
    "json": ("the whole result, which `falaj report` reads", lambda result: result.to_json()),
    "sarif": ("SARIF 2.1.0, for code scanning", to_sarif),
    "junit": ("JUnit XML, for test reports", to_junit),
}


@dataclass(frozen=True)
class Asked:
    """What is judged, and how."""

    project: Path | None
    stacks: tuple[str, ...]
    config: tuple[str, ...]
    states: tuple[Path, ...]
    live: bool
    strict: bool | None
    jobs: int


def _asking(command: _Command) -> _Command:
    """The options of `Asked`."""
    for option in (
        click.option(
            "--lang",
            "language",
            type=click.Choice(LANGUAGES),
            default=LANGUAGES[0],
            show_default=True,
            help="Language of the evidence's own words.",
        ),
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
        click.option(
            "--config",
            metavar="KEY=VALUE",
            multiple=True,
            help="A value of the program's configuration, before what its stack's file says; for "
            "programs that aren't Falaj's own. May be given more than once (default: none).",
        ),
        stacks_option,
    ):
        command = option(command)
    return command


def _formats(command: _Command) -> _Command:
    """An option for each report."""
    command = click.option(
        "--html",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Also write the evidence: one HTML file, without a signature.",
    )(command)
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
    config: tuple[str, ...],
    states: tuple[Path, ...],
    live: bool,
    strict: bool | None,
    jobs: int,
    language: Language,
    html: Path | None,
    **files: Path | None,
) -> int:
    """Judge stacks by the policy packs, offline.

    Stacks are previewed in a scratch sandbox, side by side. The exit status is 0 clean, 1
    violations, 2 something could not be checked.
    """
    result = _result(Asked(project, stacks, config, states, live, strict, jobs))
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 100
    say()
    say(summarise(result, width=width, colour=terminal and "NO_COLOR" not in os.environ))
    # After the summary: a report that can't be written must not hide what was found.
    for name, (_, write) in FORMATS.items():
        if (path := files[name]) is not None:
            put(path, write(result).encode())
            say(f"{name}: {path}")
    if html is not None:
        write_evidence(result, html, language=language)
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
    help="Where the evidence goes.",
)
@click.option(
    "--sign-key",
    metavar="KEY.pem",
    type=click.Path(path_type=Path),
    help="Sign the page with this Ed25519 key (PEM, PKCS#8), into a file with .sig added to its "
    f"name; {PASSPHRASE_FILE} names the file with the passphrase of an encrypted key, or "
    f"{PASSPHRASE} holds it.",
)
@click.option(
    "--verify",
    "page",
    metavar="PAGE",
    help="Write nothing: say whether PAGE is as the owner of --key signed it.",
)
@click.option("--key", metavar="PUB.pem", help="The public key, for --verify.")
def report(
    *,
    stacks: tuple[str, ...],
    project: Path | None,
    config: tuple[str, ...],
    states: tuple[Path, ...],
    live: bool,
    strict: bool | None,
    jobs: int,
    language: Language,
    recorded: Path | None,
    out: Path,
    sign_key: Path | None,
    page: str | None,
    key: str | None,
) -> int:
    """Write the evidence of a check: one HTML file, by control.

    The exit status is the check's own. With --verify nothing is written: it says whether a page
    is as somebody signed it, 0 where it is and else 1.
    """
    if page:
        return verify_evidence(page, key)
    if key:
        raise StackError("--key: given without --verify; --sign-key names the key that signs")
    signer = signer_of(sign_key) if sign_key else None
    if recorded is not None:
        result = _recorded(recorded)
    else:
        result = _result(Asked(project, stacks, config, states, live, strict, jobs))
    write_evidence(result, out, language=language, signer=signer)
    return result.exit_code


def _recorded(path: Path) -> CheckResult:
    try:
        return read_result(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, PolicyError) as error:
        raise StackError(f"--from: {error}") from None


def _result(asked: Asked) -> CheckResult:
    if asked.states and asked.live:
        raise StackError("--state and --live exclude each other: a file, or the backend")
    if asked.config and (asked.states or asked.live):
        raise StackError("--config: given with --state or --live, for which no program is run")
    project = the_project(asked.project)
    found: list[StackResult] = []
    if asked.states:
        chosen = subjects(project, asked.stacks) if asked.stacks else []
        if len(chosen) > 1:
            raise StackError("--state: given with several stacks; allowed: one --stack, or none")
        beginning = begin(chosen)
        subject = chosen[0] if chosen else None
        found = [check_file(each, subject, strict=asked.strict) for each in asked.states]
        return _warned(gathered(beginning, found), chosen)
    if asked.live:
        chosen = subjects(project, asked.stacks)
        say(f"checking stacks of {project.name}: {_names(chosen)}")
        beginning = begin(chosen)
        found = [check_live(each, strict=asked.strict) for each in chosen]
        return _warned(gathered(beginning, found), chosen)
    with tempfile.TemporaryDirectory(prefix="falaj-assumed-") as folder:
        files = assumed(project, asked.stacks, asked.config, Path(folder))
        chosen = [subject_of(each) for each in files] or subjects(project, asked.stacks)
        installation.require(sorted({extra for each in chosen for extra in each.extras}))
        say(f"checking stacks of {project.name}: {_names(chosen)}")
        return _warned(check_now(chosen, asked.strict, asked.jobs), chosen)


def _names(chosen: Sequence[Subject]) -> str:
    return ", ".join(each.stack.name for each in chosen)


def _warned(result: CheckResult, chosen: Sequence[Subject]) -> CheckResult:
    """The result, after a word on rules of the team's own that judge nothing."""
    own = {each.id: each for subject in chosen for each in team_rules(subject)}
    own |= {each.id: each for each in installed_rules()}
    judged = {each.type for stack in result.stacks for each in stack.resources}
    for each in unknown_types(own.values(), judged):
        say(f"warning: {each}")
    return result
