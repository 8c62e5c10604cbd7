"""No module of the package imports itself, over others: what belongs together is one module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules that import each other in a circle, the first again at the end; none: empty."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        ({"a": ["b", "c"], "b": ["c"], "c": []}, set[str]()),
        ({"a": ["a"]}, {"a"}),
        ({"a": ["b"], "b": ["c", "d"], "c": ["e"], "e": ["b"], "d": []}, {"b", "c", "e"}),
    ],
)
def test_circles_are_found(imports: dict[str, list[str]], found: set[str]) -> None:
    assert set(circle(imports)) == found


def test_no_modules_import_each_other() -> None:
    """Imports for the type checker alone count as well, and those inside functions."""
    graph = grimp.build_graph("falaj", cache_dir=None, exclude_type_checking_imports=False)
    assert len(graph.modules) > 100
    found = circle({each: graph.find_modules_directly_imported_by(each) for each in graph.modules})
    assert not found, "modules that import each other: " + " - ".join(found)
