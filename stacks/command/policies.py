"""``falaj policies``: the rules, what they cover, and what other scanners demand."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from collections.abc import Sequence
from typing import Final

import click

from falaj.policies.conflicts import print_configuration, scanners
from falaj.policies.controls import frameworks, rules_by_control
from falaj.policies.model import Rule, kind_of
from falaj.policies.rules import all_rules
from falaj.sandbox.models import PACKAGES
from falaj.sandbox.schema import Tables
from falaj.stacks.command.console import say, table
from falaj.stacks.command.packs import NAMES, pack_for_engines
from falaj.stacks.errors import StackError

# What the rules cover: types of each installed SDK, and controls of each framework.

_WHOLE_PACKAGE: Final = re.compile(r"[\w-]+:[*:]*")


def coverage_text(*, verbose: bool) -> str:
    """The coverage as text; `verbose` names every type and every control."""
    rules = all_rules()
    return "\n\n".join([_types(rules, verbose), _controls(rules, verbose)])


def named_types(package: str, rules: Sequence[Rule]) -> tuple[list[str], list[str]]:
    """Types of an installed SDK: those that a named rule knows, and those left to the walkers."""
    named = [each for each in rules if not looks_everywhere(each)]
    known: list[str] = []
    walked: list[str] = []
    for token in Tables(package).tokens():
        kind = kind_of(token)
        (known if any(each.concerns(kind) for each in named) else walked).append(token)
    return known, walked


def _types(rules: Sequence[Rule], verbose: bool) -> str:
    rows = [("SDK", "types", "with named rules", "walkers only")]
    listed: list[str] = []
    for package in PACKAGES:
        if importlib.util.find_spec(f"pulumi_{package.replace('-', '_')}") is None:
            rows.append((package, "not installed", "-", "-"))
            continue
        known, walked = named_types(package, rules)
        total = len(known) + len(walked)
        rows.append((package, str(total), str(len(known)), str(len(walked))))
        if verbose:
            listed += [f"{package}, with named rules:", *(f"  {each}" for each in known)]
            listed += [f"{package}, walkers only:", *(f"  {each}" for each in walked)]
    walkers = [each for each in rules if looks_everywhere(each)]
    line = f"{len(walkers)} walkers look at every type: {', '.join(each.id for each in walkers)}"
    return "\n".join([table(rows), *textwrap.wrap(line, 100), *listed])


def looks_everywhere(rule: Rule) -> bool:
    """Whether it looks at every type, or at every one of a cloud: such a rule names none."""
    return rule.is_walker or any(_WHOLE_PACKAGE.fullmatch(each) for each in rule.types)


def _controls(rules: Sequence[Rule], verbose: bool) -> str:
    by_control = rules_by_control(rules)
    rows = [("framework", "version", "controls", "with a rule")]
    listed: list[str] = []
    for framework in frameworks():
        own = {
            reference: serving
            for reference, serving in by_control.items()
            if reference.startswith(f"{framework.key}:")
        }
        served = [reference for reference, serving in own.items() if serving]
        rows.append((framework.name, framework.version, str(len(own)), str(len(served))))
        if verbose:
            listed += [
                f"{reference}: {', '.join(each.id for each in serving) or 'no rule'}"
                for reference, serving in own.items()
            ]
    return "\n".join([table(rows), *listed])


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
