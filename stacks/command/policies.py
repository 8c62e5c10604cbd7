"""``falaj policies``: the rules, the types that they know, and what other scanners demand."""

from __future__ import annotations

import argparse

from falaj.policies.conflicts import print_configuration, scanners
from falaj.policies.rules import all_rules
from falaj.stacks.command.console import say, table
from falaj.stacks.command.coverage import coverage
from falaj.stacks.command.project import Project


def policies(project: Project, options: argparse.Namespace) -> int:
    """Print what was asked for; returns the exit status."""
    del project  # the policies are Falaj's own, whatever the project
    if options.suppress:
        say(print_configuration(options.suppress))
    elif options.coverage:
        say(coverage(verbose=options.verbose))
    else:
        _list(options.verbose)
    return 0


def add_options(command: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument(
        "--coverage",
        action="store_true",
        help="which types of each SDK the named rules know, and which controls have a rule",
    )
    chosen.add_argument(
        "--suppress",
        choices=[each.key for each in scanners()],
        help="print the configuration with which another scanner stops demanding copies abroad",
    )
    command.add_argument("--verbose", action="store_true", help="every type, every rule's remedy")


def _list(verbose: bool) -> None:
    rules = all_rules()
    rows = [("rule", "severity", "demands")]
    rows += [(each.id, each.severity.value, each.title) for each in rules]
    say(table(rows))
    if verbose:
        for each in rules:
            say(f"\n{each.id} ({', '.join(each.controls)})\n  {each.remediation}")
    say(f"\n{len(rules)} rules")
