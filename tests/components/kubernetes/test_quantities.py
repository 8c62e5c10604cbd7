"""Amounts as Kubernetes itself writes them; its own Python client is the oracle of their worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from falaj.components.kubernetes._quantities import canonical, with_canonical_amounts


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        ("2048Mi", "2Gi"), ("1536Mi", "1536Mi"), ("1024Gi", "1Ti"), ("1048576Ki", "1Gi"),
        ("1000m", "1"), ("1500m", "1500m"), ("250m", "250m"), ("2", "2"), ("0", "0"), ("", ""),
        ("1Ei", "1Ei"), ("1.5Gi", "1.5Gi"), ("x", "x"),
    ],
)  # fmt: skip
def test_each_amount_has_one_form(amount: str, written: str) -> None:
    assert canonical(amount) == written


@given(number=st.integers(1, 10**9), unit=st.sampled_from(["m", "Ki", "Mi", "Gi"]))
def test_it_is_worth_the_same_and_stays(number: int, unit: str) -> None:
    amount = f"{number}{unit}"
    assert parse_quantity(canonical(amount)) == parse_quantity(amount)
    assert canonical(canonical(amount)) == canonical(amount)


def test_only_amounts_are_changed() -> None:
    pod = {
        "containers": [{"env": [{"name": "A", "value": "2048Mi"}], "resources": {
            "limits": {"cpu": "1000m", "memory": "2048Mi", "devices": 1}, "requests": None,
        }}],
        "volumes": [{"emptyDir": {"sizeLimit": "1024Mi"}}],
    }  # fmt: skip
    assert with_canonical_amounts(pod) == {
        "containers": [{"env": [{"name": "A", "value": "2048Mi"}], "resources": {
            "limits": {"cpu": "1", "memory": "2Gi", "devices": 1}, "requests": None,
        }}],
        "volumes": [{"emptyDir": {"sizeLimit": "1Gi"}}],
    }  # fmt: skip
