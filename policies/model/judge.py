"""Runs rules over resources: each alone first, then what is left over with the whole stack."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from falaj.policies.model.resource import Resource, Stack
from falaj.policies.model.rule import Context, Finding, FindingKind, Rule, indeterminate
from falaj.policies.model.settings import Settings

#: Letters of a reason; what rules write by themselves is far below.
MOST_LETTERS: Final = 2000


@dataclass(frozen=True)
class Judgement:
    """What one rule says of one resource; without findings the resource meets the rule."""

    rule: Rule
    resource: Resource
    findings: tuple[Finding, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether a second look, at the whole stack, could not change it."""
        return all(each.kind is FindingKind.VIOLATION for each in self.findings)


@dataclass
class Judge:
    """Rules by the types that they concern."""

    rules: Sequence[Rule]
    settings: Settings = field(default_factory=Settings)
    _concerned: dict[str, tuple[Rule, ...]] = field(
        default_factory=dict[str, tuple[Rule, ...]], init=False
    )

    def concerning(self, kind: str) -> tuple[Rule, ...]:
        """The rules that look at a type (in its one spelling)."""
        if kind not in self._concerned:
            self._concerned[kind] = tuple(
                each for each in self.rules if each.is_walker or each.concerns(kind)
            )
        return self._concerned[kind]

    def evaluate_resource(self, resource: Resource) -> list[Judgement]:
        """The first look: the resource by itself."""
        context = Context(self.settings)
        return [evaluate(each, resource, context) for each in self.concerning(resource.kind)]

    def reevaluate(self, judgements: Iterable[Judgement], stack: Stack) -> list[Judgement]:
        """The second look, with the whole stack, at what the first left uncertain.

        Judgements that were certain are returned as they are. Resources are looked up by URN, for
        a stack knows more of them (dependencies, what the cloud answered).
        """
        context = Context(self.settings, stack)
        return [
            each
            if each.is_certain
            else evaluate(each.rule, stack.by_urn.get(each.resource.urn, each.resource), context)
            for each in judgements
        ]

    def evaluate_stack(self, stack: Stack) -> list[Judgement]:
        """Both looks at once, where everything is known from the start: a state."""
        context = Context(self.settings, stack)
        return [
            evaluate(rule, resource, context)
            for resource in stack.resources
            for rule in self.concerning(resource.kind)
        ]


def evaluate(rule: Rule, resource: Resource, context: Context) -> Judgement:
    """Ask one rule. One that raises is a defect; then nothing is certain, and nothing passes."""
    try:
        found = tuple(dict.fromkeys(map(_shortened, rule.check(resource, context))))
    except (Exception, SystemExit) as error:
        # Where it failed, but not the error's own text, which may hold the value of a secret.
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        reason = f"the rule itself failed ({place}), so nothing is proved"
        found = (replace(indeterminate("", reason), rule_failed=True),)
    return Judgement(rule, resource, found)


def _shortened(found: Finding) -> Finding:
    """Without the rest of a value that nobody would read to its end."""
    if len(found.reason) <= MOST_LETTERS:
        return found
    return replace(found, reason=f"{found.reason[:MOST_LETTERS]} …")


def only(judgements: Iterable[Judgement], kind: FindingKind) -> list[Judgement]:
    """Judgements with findings of one kind, and those findings alone."""
    kept = (
        replace(each, findings=tuple(found for found in each.findings if found.kind is kind))
        for each in judgements
        if each.findings
    )
    return [each for each in kept if each.findings]


def without(judgements: Iterable[Judgement], before: Iterable[Judgement]) -> list[Judgement]:
    """Judgements with findings besides the violations of earlier ones, and those alone."""
    known = {
        (each.rule.id, found)
        for each in only(before, FindingKind.VIOLATION)
        for found in each.findings
    }
    kept = (
        replace(
            each,
            findings=tuple(found for found in each.findings if (each.rule.id, found) not in known),
        )
        for each in judgements
        if each.findings
    )
    return [each for each in kept if each.findings]
