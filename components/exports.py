"""Packages that load a module when a name of it is asked for.

A cloud's SDK takes seconds to load as a whole, and a program uses a few of its services; what only
needs facts or a provider of a package needs no SDK at all.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from falaj.components.specification.property_names import module_of


def lazy(package: str, elsewhere: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: ``GpuNodePool`` and ``GpuNodePoolArgs`` are in
    ``gpu_node_pool``.

    Args:
        package: its name; what it exports stands in its ``__all__``.
        elsewhere: modules of names that say no module themselves.
    """

    def find(name: str) -> Any:
        here = vars(sys.modules[package])
        if name not in here["__all__"]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = elsewhere.get(name) or module_of(name.removesuffix("Args"))
        here[name] = getattr(importlib.import_module(f"{package}.{module}"), name)
        return here[name]

    return find
