"""``help`` and ``pydoc`` tell every argument of every component: what it is and what it takes."""

from __future__ import annotations

import importlib
import pydoc
import re
from typing import Any

import pulumi
import pytest

from falaj.components.specification.described import explained

PACKAGES = ("aws", "azure", "kubernetes", "local")


def arguments() -> list[Any]:
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"falaj.components.{package}")
        for name in module.__all__:
            if name.endswith("Args") and hasattr(module, name):
                kind = getattr(module, name)
                if any(each.removesuffix("Args") + "Args" == name for each in module.__all__):
                    found[f"{kind.__module__}.{name}"] = kind
    return [found[each] for each in sorted(found)]


@pytest.mark.parametrize(
    "kind", arguments(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_every_argument_is_told_whole(kind: Any) -> None:
    texts = explained(kind)
    assert set(texts) == set(kind.__annotations__)
    shown = pydoc.plain(pydoc.render_doc(kind))
    flat = " ".join(" ".join(line.lstrip(" |") for line in shown.splitlines()).split())
    for name, text in texts.items():
        needed = ", needed" if name in kind.__required_keys__ else ""
        assert f" {name}: " in flat
        assert text in flat
        if needed:
            assert any(
                line.strip(" |").startswith(f"{name}: ") and line.endswith(needed)
                for line in shown.splitlines()
            )
        else:
            assert re.search(r"(?i)default|need", text), f"{name} doesn't say what it is without"


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_components_module_has_its_arguments_beside_it(cloud: str) -> None:
    package = importlib.import_module(f"falaj.components.{cloud}")
    for name in package.__all__:
        kind = getattr(package, name)
        if isinstance(kind, type) and issubclass(kind, pulumi.ComponentResource):
            module = importlib.import_module(kind.__module__)
            assert set(module.__all__) >= {name, f"{name}Args"}
            assert "cost_center: str, needed" in pydoc.plain(pydoc.render_doc(module))


def test_the_text_stays_short_for_programs_that_read_it() -> None:
    for kind in arguments():
        assert len(kind.__doc__) < 400
