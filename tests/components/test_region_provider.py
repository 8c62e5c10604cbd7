from __future__ import annotations

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.specification.provider import check

HOME = {"aws": {"me-central-1"}, "azure": {"uaenorth", "uaecentral"}}


@pytest.mark.parametrize(
    ("cloud", "region"), [("aws", "eu-west-1"), ("aws", "uaenorth"), ("azure", "westeurope")]
)
def test_a_region_abroad_is_refused(cloud: str, region: str) -> None:
    with pytest.raises(pulumi.InputPropertyError, match="region"):
        check(cloud, {"region": region})


@given(st.sampled_from(["aws", "azure"]), st.text(max_size=20))
def test_no_other_text_is_a_region(cloud: str, region: str) -> None:
    try:
        assert check(cloud, {"region": region}).region in HOME[cloud]
    except pulumi.InputPropertyError:
        assert region not in HOME[cloud]


@pytest.mark.parametrize(
    ("cloud", "region", "account"),
    [("aws", "me-central-1", "12"), ("azure", "uaenorth", "111122223333")],
)
def test_an_account_that_is_none_is_refused(cloud: str, region: str, account: str) -> None:
    with pytest.raises(pulumi.InputPropertyError, match="allowed: "):
        check(cloud, {"region": region, "account_id": account})


def test_an_account_is_kept() -> None:
    spec = check("aws", {"region": "me-central-1", "account_id": "111122223333"})
    assert spec.account_id == "111122223333"
