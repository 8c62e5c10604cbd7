"""Every property of residency or encryption in the six stacks, flipped: all are caught."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from falaj.policies.model import Context, Resource, Settings, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.reading.place import REGIONLESS
from falaj.policies.rules import rules_of
from tests.policies.mutations import Mutation, mutations
from tests.policies.shipped import SIX, stack_of

PACKS = ("residency", "encryption")
#: Flips that change nothing that matters, each with the reason.
HARMLESS: dict[tuple[str, str], str] = {
    ("azure-native:keyvault:Key", "keyName"): "the key's own name",
    (
        "azure-native:storage:StorageAccount",
        "encryption.requireInfrastructureEncryption",
    ): "a second layer, which only restricted data need",
}


def is_harmless(mutation: Mutation) -> bool:
    """Whether a flip changes nothing that matters."""
    kind = mutation.resource.kind
    # Where they are is no choice of the provider's; the provider abroad is a finding of its own.
    nowhere = kind in REGIONLESS and mutation.path == "provider.region"
    return nowhere or (kind, mutation.path) in HARMLESS


def caught(judge: Judge, stack: Stack, original: Resource, mutation: Mutation) -> bool:
    """Whether a rule objects: at the resource itself, or at one that relies on it."""
    others = tuple(mutation.resource if each is original else each for each in stack.resources)
    changed = replace(stack, resources=others)
    context = Context(judge.settings, changed)
    own = judge.concerning(mutation.resource.kind)
    if any(list(rule.check(mutation.resource, context)) for rule in own):
        return True
    return any(each.findings for each in judge.evaluate_stack(changed))


@pytest.mark.thorough
@pytest.mark.slow
def test_flipped_properties_are_caught() -> None:
    rules = tuple(rule for pack in PACKS for rule in rules_of(pack))
    judge = Judge(rules, Settings())
    seen: set[tuple[str, str, str]] = set()
    made: Counter[str] = Counter()
    missed: list[str] = []
    for name in SIX:
        stack = stack_of(name)
        for resource in stack.resources:
            if not resource.custom:
                continue
            for mutation in mutations(resource):
                # The same property of another resource of that type says nothing new.
                if (resource.kind, mutation.path, mutation.kind) in seen:
                    continue
                seen.add((resource.kind, mutation.path, mutation.kind))
                if is_harmless(mutation):
                    continue
                made[mutation.kind] += 1
                if not caught(judge, stack, resource, mutation):
                    missed.append(f"{mutation.kind}: {resource.kind}: {mutation.path}")
    total = sum(made.values())
    share = f"{total - len(missed)}/{total} mutations caught ({dict(made)})"
    print(share)
    assert not missed, share + "\n" + "\n".join(missed)
