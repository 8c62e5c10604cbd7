"""Property paths that the rules read exist in the SDK: a rule on a misspelt one never speaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from falaj.sandbox import property_types
from falaj.sandbox.clouds.azure import checks, kinds, registry
from falaj.sandbox.clouds.inputs import Inputs, Resource, joined
from falaj.sandbox.schema import Tables

TABLES = Tables("azure-native")


@dataclass(frozen=True, kw_only=True)
class Recorder(Resource):
    """A resource that remembers what it was asked for."""

    def at(self, path: str) -> Any:
        self._record(path)
        return super().at(path)

    def each(self, path: str) -> Iterator[tuple[str, Any]]:
        self._record(path)
        return super().each(path)

    def is_given(self, path: str) -> bool:
        self._record(path)
        return super().is_given(path)

    def _record(self, path: str) -> None:
        place, above = path, self.parent
        whole: Inputs = self
        while above is not None:
            place, whole, above = joined(whole.place, place), above, above.parent
        SEEN.setdefault(self.token, set()).add(re.sub(r"\[\d+\]", "[]", place))


SEEN: dict[str, set[str]] = {}


def steps(kind: property_types.Type, names: list[str]) -> bool:
    """Whether the steps lead somewhere in the type."""
    if not names or kind == property_types.ANY:
        return True
    head, rest = names[0], names[1:]
    if isinstance(kind, property_types.Either):
        return any(steps(member, names) for member in kind.members)
    if isinstance(kind, property_types.ListOf):
        return head == "[]" and steps(kind.item, rest)
    if isinstance(kind, property_types.MapOf):
        return head != "[]" and steps(kind.item, rest)
    if isinstance(kind, property_types.Reference):
        known = TABLES.objects[kind.name].properties
        return head in known and steps(known[head].type, rest)
    return False


def is_in_sdk(token: str, path: str) -> bool:
    resource = TABLES.resource(token)
    assert resource is not None
    names = re.findall(r"[^.\[\]]+|\[\]", path)
    known = resource.inputs.properties.get(names[0])
    return known is not None and steps(known.type, names[1:])


def asked(all_samples: Any) -> Iterator[tuple[str, str]]:
    for made in all_samples.made.values():
        kind = kinds.kind_of(made.token)
        assert kind is not None
        resource = Recorder(
            made.inputs, token=made.token, world=all_samples.sandbox.store, id=made.id
        )
        for check in (*kind.rules, *kind.crosschecks, *kind.delete_blockers):
            list(check(resource))
        if kind.computed is not None:
            dict(kind.computed(resource))
    for token, paths in SEEN.items():
        for path in sorted(paths):
            if kinds.kind_of(token) is not None:
                yield token, path


# What Resource Manager has and this version of the SDK doesn't, or what is asked of several types.
BESIDE = {"location", "extendedLocation"}


def test_a_path_that_is_not_in_the_sdk_is_noticed() -> None:
    token = "azure-native:storage:StorageAccount"
    assert not is_in_sdk(token, "encryption.keySourc")
    assert not is_in_sdk(token, "sku.name.x")
    assert is_in_sdk(token, "networkRuleSet.ipRules[].iPAddressOrRange")


def test_rules_read_properties_that_exist(all_samples: Any) -> None:
    wrong = [
        (token, path)
        for token, path in asked(all_samples)
        if path not in BESIDE and not is_in_sdk(token, path)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_tables_name_properties_that_exist() -> None:
    for token in checks.enumerated_tokens():
        for path in checks.enumerated_paths(token):
            assert is_in_sdk(token, path.replace("[*]", "[]")), (token, path)
    for kind in kinds.all_kinds():
        for path in kind.replaces:
            assert is_in_sdk(kind.token, path), (kind.token, path)


@pytest.mark.parametrize("token", ["azure-native:cdn:Profile", "azure-native:redis:Redis"])
def test_a_derived_type_is_named_by_an_input_of_its_own(token: str) -> None:
    resource = TABLES.resource(token)
    assert resource is not None
    assert set(registry.kind_of(token).parameters) <= set(resource.inputs.properties)
