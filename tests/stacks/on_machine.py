"""Stacks of one machine, declared without an engine or a provider."""

from __future__ import annotations

from pathlib import Path

import pulumi

from falaj.stacks.blueprints.local import declare_local
from falaj.stacks.settings import LocalSettings
from falaj.wire.values import Values
from tests.components.local.test_local_components import Mocks
from tests.loops import own_loop


def declared(settings: LocalSettings, root: Path) -> Mocks:
    """What a stack declares; ``root`` is its project's folder."""
    mocks = Mocks()

    @pulumi.runtime.test
    def program() -> None:
        declare_local(settings, root)

    with own_loop():
        pulumi.runtime.set_mocks(mocks, project="falaj", stack="dev", preview=False)
        program()
    return mocks


def inputs_of(settings: LocalSettings, root: Path, kind: str) -> Values:
    """What a stack gives its one resource of a kind: without the folders that others make."""
    [made] = [
        each for each in declared(settings, root).made if each.typ == f"falaj-local:index:{kind}"
    ]
    # The mocks know no whole numbers.
    whole = {k: int(v) for k, v in made.inputs.items() if isinstance(v, float) and v.is_integer()}
    return {**made.inputs, **whole}
