"""``falaj policies``: the rules, the types that they know, and what other scanners demand."""

from __future__ import annotations

import click

from falaj.policies.conflicts import print_configuration, scanners
from falaj.policies.rules import all_rules
from falaj.stacks.command.console import say, table
from falaj.stacks.command.coverage import coverage as coverage_text
from falaj.stacks.command.packs import NAMES, pack_for_engines
from falaj.stacks.errors import StackError


@click.command()
@click.option(
    "--path",
    "pack",
    metavar="PACK",
    type=click.Choice(NAMES),
    help="Print the folder of a pack, for `pulumi preview --policy-pack`: "
    + ", ".join(NAMES)
    + ".",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Which types of each SDK the named rules know, and which controls have a rule.",
)
@click.option(
    "--suppress",
    type=click.Choice([each.key for each in scanners()]),
    help="Print the configuration with which another scanner stops demanding copies abroad.",
)
@click.option("--verbose", is_flag=True, help="Every type, every rule's remedy.")
def policies(pack: str | None, coverage: bool, suppress: str | None, verbose: bool) -> int:
    """List the rules, the types that they know, and where the packs are."""
    if sum((pack is not None, coverage, suppress is not None)) > 1:
        raise StackError("--path, --coverage and --suppress exclude each other: give one of them")
    if pack is not None:
        say(str(pack_for_engines(pack)))
    elif suppress is not None:
        say(print_configuration(suppress))
    elif coverage:
        say(coverage_text(verbose=verbose))
    else:
        _list(verbose)
    return 0


def _list(verbose: bool) -> None:
    rules = all_rules()
    rows = [("rule", "severity", "demands")]
    rows += [(each.id, each.severity.value, each.title) for each in rules]
    say(table(rows))
    if verbose:
        for each in rules:
            say(f"\n{each.id} ({', '.join(each.controls)})\n  {each.remediation}")
    say(f"\n{len(rules)} rules")
