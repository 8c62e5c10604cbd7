"""The engine's values, and exported states, as rules see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import REDACTED, UNKNOWN, PolicyError
from falaj.policies.state import DEEPEST, plain, read_state, stack_of_states
from falaj.wire import OUTPUT_VALUE as OUTPUT
from falaj.wire import SECRET, SIGNATURE

ROOT = "pulumi:pulumi:Stack"
UAE = "me-central-1"


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("04da6b54-80e4-46f7-96ec-b56ff0331ba9", UNKNOWN),
        ("1c4a061d-8072-4f0a-a4cb-0ff528b18fe7", UNKNOWN),
        ("[secret]", REDACTED),
        ({SIGNATURE: SECRET, "value": "x"}, "x"),
        ({SIGNATURE: SECRET, "ciphertext": "abc"}, REDACTED),
        ({SIGNATURE: SECRET, "plaintext": '{"a": [1]}'}, {"a": [1]}),
        ({SIGNATURE: SECRET, "plaintext": "{"}, REDACTED),
        ({SIGNATURE: OUTPUT}, UNKNOWN),
        ({SIGNATURE: OUTPUT, "value": ["a"], "secret": True}, ["a"]),
        ({SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "text": "t"}, "t"),
        ({SIGNATURE: "of a kind to come"}, REDACTED),
        ({"__defaults": [], "a": {"__defaults": ["b"]}}, {"a": {}}),
    ],
)
def test_values(value: Any, seen: Any) -> None:
    assert plain({"it": [value]}) == {"it": [seen]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.just(SIGNATURE), inner, max_size=3)
    ),
)


@given(json_values)
def test_any_value_can_be_read(value: Any) -> None:
    assert SIGNATURE not in _keys(plain(value))


def _keys(value: Any) -> set[str]:
    """Keys of mappings at any depth."""
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


@given(st.lists(json_values | st.dictionaries(st.sampled_from(
    ["urn", "type", "inputs", "outputs", "provider", "propertyDependencies", "sourcePosition"]
), json_values, max_size=7), max_size=4))  # fmt: skip
def test_any_state_can_be_read_or_is_refused(states: list[Any]) -> None:
    try:
        found = stack_of_states(states)
    except PolicyError:
        return
    # None is passed over, which would look as if it had been judged.
    kept = [each for each in states if not each.get("delete") and each["type"] != ROOT]
    assert len(found.resources) == len(kept)


@pytest.mark.parametrize("left", ["urn", "type"])
def test_a_resource_without_urn_or_type_is_not_passed_over(left: str) -> None:
    whole = {"urn": "urn:pulumi:dev::shop::a:b:C::d", "type": "a:b:C"}
    with pytest.raises(PolicyError, match="resource 1 of the state has no type or no URN"):
        stack_of_states([whole, {key: value for key, value in whole.items() if key != left}])


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"region": "eu-west-1"}
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_what_is_too_deep_to_walk_through_is_refused_and_not_hidden() -> None:
    assert plain(nested(60))
    for levels in (DEEPEST, 5_000):
        with pytest.raises(PolicyError, match="deeper than"):
            plain(nested(levels))


def test_a_state_that_python_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text('{"a":' * 100_000)
    with pytest.raises(PolicyError, match=r"export\.json can't be read"):
        read_state(path)


def test_half_characters_can_be_written_afterwards() -> None:
    found = plain(json.loads('{"a\\ud800": ["\\udfff b", "\\ud83d\\ude00"]}'))
    assert found == {"a\ufffd": ["\ufffd b", "\U0001f600"]}
    stack = stack_of_states([{"urn": "urn:pulumi:d::p::a:b:C::x\ud800", "type": "a:b:C"}])
    assert stack.resources[0].urn.encode()


def state(*resources: dict[str, Any], version: Any = 3) -> str:
    return json.dumps({"version": version, "deployment": {"resources": resources}})


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "{}", '{"deployment": 1}', state(version=2), state(version="x")]
)
def test_what_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"export\.json"):
        read_state(path)


def test_resource_of_a_state(tmp_path: Path) -> None:
    provider = "urn:pulumi:dev::shop::pulumi:providers:aws::uae"
    path = tmp_path / "export.json"
    path.write_text(
        state(
            {
                "urn": "urn:pulumi:dev::shop::pulumi:pulumi:Stack::shop-dev",
                "type": "pulumi:pulumi:Stack",
            },
            {
                "urn": provider,
                "type": "pulumi:providers:aws",
                "inputs": {"region": "me-central-1"},
            },
            {
                "urn": "urn:pulumi:dev::shop::aws:s3/bucket:Bucket::logs",
                "type": "aws:s3/bucket:Bucket",
                "id": "logs-1",
                "custom": True,
                "protect": True,
                "inputs": {"tags": {"a": "b"}},
                "outputs": {"arn": "arn:aws:s3:::logs-1"},
                "provider": f"{provider}::id-1",
                "propertyDependencies": {"tags": ["urn:x"], "bucket": None},
                "sourcePosition": "project:///main.py#7,3",
            },
            {
                "urn": "urn:pulumi:dev::shop::aws:s3/bucket:Bucket::old",
                "type": "aws:s3/bucket:Bucket",
                "delete": True,
            },
        )
    )
    stack = read_state(path)
    assert (stack.name, stack.project) == ("dev", "shop")
    assert [each.name for each in stack.resources] == ["uae", "logs"]
    found = stack.resources[1]
    assert found.provider is not None
    assert found.provider.properties == {"region": "me-central-1"}
    assert found.options.protect
    assert found.dependencies == {"tags": ("urn:x",), "bucket": ()}
    assert found.source == "main.py:7"
    assert stack.called("arn:aws:s3:::LOGS-1") == [found]
