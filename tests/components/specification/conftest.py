"""Arguments that every check takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from tests.components.specification.given import PLACES


@pytest.fixture(params=["aws", "azure"])
def cloud(request: pytest.FixtureRequest) -> str:
    """Each cloud in turn: what a test says holds on both."""
    return request.param


@pytest.fixture
def shared() -> Callable[[str], dict[str, Any]]:
    """The shared arguments of a cloud."""

    def of(cloud: str) -> dict[str, Any]:
        return {
            **PLACES[cloud],
            "tenant": "acme",
            "owner": "platform@acme.example",
            "data_class": "restricted",
            "cost_center": "ai-42",
        }

    return of


@pytest.fixture
def refused() -> Callable[..., dict[str, str]]:
    """What a check refused: reasons by argument; several of one argument joined."""

    def of(check: Callable[..., Any], cloud: str, args: dict[str, Any]) -> dict[str, str]:
        with pytest.raises(pulumi.InputPropertiesError) as caught:
            check(cloud, "thing", args)
        found: dict[str, str] = {}
        for each in caught.value.errors or []:
            path, reason = each["property_path"], each["reason"]
            found[path] = "; ".join(filter(None, (found.get(path), reason)))
        return found

    return of
