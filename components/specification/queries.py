"""What components ask a cloud of itself, such as who they are there: once for each provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import pulumi

Found = TypeVar("Found")

#: A provider is of one run of a program.
_answers: WeakKeyDictionary[pulumi.ProviderResource, dict[str, pulumi.Output[Any]]] = (
    WeakKeyDictionary()
)


def asked_once(
    parent: pulumi.Resource, function: str, ask: Callable[[], pulumi.Output[Found]]
) -> pulumi.Output[Found]:
    """Return the answer to a query without arguments that is the same for all of a provider.

    Args:
        parent: for whose provider it is asked; where it has none of its own, each time anew.
        function: the query's token, as ``aws:index/getCallerIdentity:getCallerIdentity``.
        ask: makes the query.
    """
    provider = parent.get_provider(function)
    if provider is None:
        return ask()
    known = _answers.setdefault(provider, {})
    if function not in known:
        known[function] = ask()
    return cast("pulumi.Output[Found]", known[function])
