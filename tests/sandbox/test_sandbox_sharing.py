"""Settings of an account that several stacks set: the last one's values hold, none takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.sandbox.clouds.model import Made
from falaj.sandbox.store import Store

TOKEN, ID = "azure-native:security:Pricing", "/subscriptions/s/pricings/Arm"


def plan(stack: str, tier: str) -> Made:
    urn = f"urn:pulumi:{stack}::falaj::{TOKEN}::arm"
    return Made(urn, TOKEN, ID, {"pricingTier": tier}, {"pricingTier": tier}, "", stack)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "cloud.sqlite")
    made.add(plan("a", "Free"), 0)
    made.share(plan("b", "Standard"))
    return made


def found(store: Store) -> Made | None:
    return store.by_id(TOKEN, ID)


def test_the_last_ones_values_hold(store: Store) -> None:
    assert found(store) == plan("b", "Standard")
    assert len(store.all()) == 1


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_it_goes_with_the_last_that_has_it(store: Store, order: str) -> None:
    first, last = (plan(stack, "Standard") for stack in order)
    assert store.remove(TOKEN, ID, first.urn)
    assert found(store) == last
    assert store.remove(TOKEN, ID, last.urn)
    assert found(store) is None
    assert not store.remove(TOKEN, ID, last.urn)


def test_one_that_is_left_and_made_again_is_shared_once_more(store: Store) -> None:
    store.remove(TOKEN, ID, plan("a", "Free").urn)
    store.share(plan("a", "Free"))
    store.share(plan("a", "Standard"))
    store.remove(TOKEN, ID, plan("b", "Standard").urn)
    assert found(store) == plan("a", "Standard")
    store.remove(TOKEN, ID, plan("a", "Standard").urn)
    assert found(store) is None


def test_a_forgotten_stack_leaves_what_others_share(store: Store) -> None:
    store.forget("urn:pulumi:a::falaj::")
    assert found(store) == plan("b", "Standard")
    store.share(plan("a", "Standard"))
    store.forget("urn:pulumi:b::falaj::")
    assert found(store) == plan("a", "Standard")
    store.forget("urn:pulumi:a::falaj::")
    assert found(store) is None


def test_what_is_lost_behind_the_engines_back_is_gone_for_all(store: Store) -> None:
    assert store.remove(TOKEN, ID)
    assert found(store) is None
    store.add(plan("c", "Free"), 0)
    assert store.remove(TOKEN, ID, plan("c", "Free").urn)
    assert found(store) is None


def test_a_cloud_of_before_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "cloud.sqlite"
    before = Store(path)
    before.add(plan("a", "Free"), 0)
    before.connection.execute("DROP TABLE sharers")
    before.close()
    again = Store(path)
    again.share(plan("b", "Standard"))
    assert found(again) == plan("b", "Standard")
    assert again.clear() == 1
