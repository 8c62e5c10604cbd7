"""``falaj check`` and ``falaj report``: whether stacks meet the policies, and the evidence."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from falaj.policies.model import PolicyError
from falaj.policies.reports.junit import to_junit
from falaj.policies.reports.result import CheckResult, StackResult, read_result
from falaj.policies.reports.sarif import to_sarif
from falaj.policies.reports.summary import summarise
from falaj.policies.reports.wording import LANGUAGES
from falaj.stacks.checking.check import begin, check_now, gathered
from falaj.stacks.checking.evidence import (
    PASSPHRASE,
    PASSPHRASE_FILE,
    put,
    signer_of,
    verify_evidence,
    write_evidence,
)
from falaj.stacks.checking.recorded import check_file, check_live
from falaj.stacks.checking.side_by_side import jobs_by_default, require_jobs
from falaj.stacks.checking.subject import subjects
from falaj.stacks.command.console import say
from falaj.stacks.command.project import Project
from falaj.stacks.errors import StackError

#: Options that write a report for programs, and what they write.
FORMATS: Mapping[str, tuple[str, Callable[[CheckResult], str]]] = {
    "json": ("the whole result, which `falaj report` reads", lambda result: result.to_json()),
    "sarif": ("SARIF 2.1.0, for code scanning", to_sarif),
    "junit": ("JUnit XML, for test reports", to_junit),
}


def check(project: Project, options: argparse.Namespace) -> int:
    """Judge stacks; returns 0 clean, 1 violations, 2 could not check."""
    result = _run(project, options)
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 100
    say()
    say(summarise(result, width=width, colour=terminal and "NO_COLOR" not in os.environ))
    # After the summary: a report that can't be written must not hide what was found.
    _write(result, options)
    return result.exit_code


def report(project: Project, options: argparse.Namespace) -> int:
    """Write the evidence of a check, new or read from its JSON; returns the check's status.

    With ``--verify`` it only says whether a page is as somebody signed it: 0 where it is, else 1.
    """
    if options.verify:
        return verify_evidence(options.verify, options.key)
    if options.key:
        raise StackError("--key: given without --verify; --sign-key names the key that signs")
    signer = signer_of(Path(options.sign_key)) if options.sign_key else None
    if options.result:
        path = Path(options.result)
        try:
            result = read_result(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError, PolicyError) as error:
            raise StackError(f"--from: {error}") from None
    else:
        result = _run(project, options)
    write_evidence(result, Path(options.out), language=options.lang, signer=signer)
    return result.exit_code


def add_options(command: argparse.ArgumentParser) -> None:
    """What `check` and `report` have in common."""
    command.add_argument(
        "--stack", action="append", default=[], help="may be given more than once (default: all)"
    )
    command.add_argument(
        "--project",
        metavar="FOLDER",
        help="folder with the Pulumi.yaml of any program (default: the working folder if it has "
        "one, else Falaj's own)",
    )
    command.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="FILE",
        help="judge an exported state (pulumi stack export) instead of a preview; with one "
        "--stack, by that stack's settings",
    )
    command.add_argument(
        "--live",
        action="store_true",
        help="judge what the real backend knows of the stacks instead of a preview",
    )
    command.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether what can't be known fails (default: in CI and for production)",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=jobs_by_default(),
        help="stacks side by side (default: one a core)",
    )
    command.add_argument(
        "--lang",
        choices=LANGUAGES,
        default=LANGUAGES[0],
        help="language of the evidence's own words (default: en)",
    )


def add_evidence(command: argparse.ArgumentParser) -> None:
    """What `report` has besides."""
    command.add_argument(
        "--from",
        dest="result",
        metavar="FILE",
        help="what `falaj check --json FILE` wrote (default: check now)",
    )
    command.add_argument("--out", default="evidence.html", help="default: evidence.html")
    command.add_argument(
        "--sign-key",
        metavar="KEY.pem",
        help="sign the page with this Ed25519 key (PEM, PKCS#8), into a file with .sig added to "
        f"its name; {PASSPHRASE_FILE} names the file with the passphrase of an encrypted key, or "
        f"{PASSPHRASE} holds it",
    )
    command.add_argument(
        "--verify",
        metavar="PAGE",
        help="write nothing: say whether PAGE is as the owner of --key signed it",
    )
    command.add_argument("--key", metavar="PUB.pem", help="the public key, for --verify")


def add_formats(command: argparse.ArgumentParser) -> None:
    """The reports that `check` can write."""
    for name, (what, _) in FORMATS.items():
        command.add_argument(f"--{name}", metavar="FILE", help=f"also write {what}")
    command.add_argument(
        "--html",
        metavar="FILE",
        help="also write the evidence: one HTML file, without a signature",
    )


def _run(project: Project, options: argparse.Namespace) -> CheckResult:
    jobs = require_jobs(options.jobs)
    if options.state and options.live:
        raise StackError("--state and --live exclude each other: a file, or the backend")
    found: list[StackResult]
    if options.state:
        chosen = subjects(project, options.stack) if options.stack else []
        if len(chosen) > 1:
            raise StackError("--state: given with several stacks; allowed: one --stack, or none")
        beginning = begin(chosen)
        subject = chosen[0] if chosen else None
        found = [check_file(Path(each), subject, strict=options.strict) for each in options.state]
    else:
        chosen = subjects(project, options.stack)
        names = ", ".join(each.stack.name for each in chosen)
        say(f"checking {len(chosen)} stacks of {project.name}: {names}")
        if not options.live:
            return check_now(chosen, options.strict, jobs)
        beginning = begin(chosen)
        found = [check_live(each, strict=options.strict) for each in chosen]
    return gathered(beginning, found)


def _write(result: CheckResult, options: argparse.Namespace) -> None:
    for name, (_, write) in FORMATS.items():
        if path := getattr(options, name):
            put(Path(path), write(result).encode())
            say(f"{name}: {path}")
    if options.html:
        write_evidence(result, Path(options.html), language=options.lang)
