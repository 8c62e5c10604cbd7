"""No rule raises, on any JSON-like properties, unknowns included."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.policies.model import EVERY, Context, Resource, Rule, Stack
from falaj.policies.rules import all_rules
from tests.examples import examples
from tests.policies.rules.test_rule_cases import CASES
from tests.policies.strategies import values

#: Keys that a rule may look for: those of its own fixtures.
KEYS: dict[str, set[str]] = {}


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for each in value.values() for key in _keys(each)}
    if isinstance(value, list):
        return {key for each in value for key in _keys(each)}
    return set()


for case in CASES:
    KEYS.setdefault(case.rule, {"region"}).update(_keys(dict(case.resource.properties)))


@cache
def given_to(rule: Rule) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """A type that a rule judges, and properties; made once, which takes as long as some draws."""
    keys = st.sampled_from(sorted(KEYS[rule.id])) | st.text(max_size=5)
    types = sorted(rule.types) if rule.types != EVERY else ["aws:ec2/instance:Instance"]
    return st.tuples(st.sampled_from(types), st.dictionaries(keys, values(keys), max_size=6))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_any_properties(rule: Rule, data: st.DataObject) -> None:
    judged, properties = data.draw(given_to(rule))
    token = re.sub(r"\*", "v1", judged)
    resource = Resource(token, "it", properties, urn="urn:1")
    other = Resource("aws:s3/bucket:Bucket", "other", properties, urn="urn:2")
    for context in (Context(), Context(stack=Stack((resource, other)))):
        for found in rule.check(resource, context):
            assert found.reason
