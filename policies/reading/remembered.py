"""A memory for what is read of a resource or a stack, which several rules then ask for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")


def remembered(size: int) -> Callable[[Callable[[Given], Found]], Callable[[Given], Found]]:
    """Remember a function's last answers by the identity of its argument.

    Resources and stacks hold mappings, so they can't be hashed; rules look at one resource after
    the other, so few answers need be kept. An argument is kept alive along with its answer, which
    makes its identity unique for as long.

    Args:
        size: answers that are kept.
    """

    def decorate(function: Callable[[Given], Found]) -> Callable[[Given], Found]:
        kept: OrderedDict[int, tuple[Given, Found]] = OrderedDict()

        @wraps(function)
        def ask(given: Given) -> Found:
            known = kept.get(id(given))
            if known is not None and known[0] is given:
                return known[1]
            found = function(given)
            kept[id(given)] = (given, found)
            while len(kept) > size:
                kept.popitem(last=False)
            return found

        return ask

    return decorate
