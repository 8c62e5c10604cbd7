"""Changes behind the engine's back, as somebody at a cloud's console would make them."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.sandbox.checker import Checker
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.schema import Tables
from falaj.sandbox.store import Store

_STEP: Final = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\["([^"]+)"\]')


def set_property(store: Store, resource: str, path: str, value: Any) -> Made:
    """Set a property of a resource, or take it away with None.

    Args:
        resource: a URN, or a name that only one resource has.
        path: such as ``tags.owner``, ``rules[0].port`` or ``tags["a.b"]``.

    Raises:
        EngineError: there is no such resource or place.
        SandboxError: the cloud would refuse the value.
    """
    steps = _steps(path)
    with store.transaction():
        made = store.named(resource)
        tables = Tables(made.token.split(":")[0])
        known = tables.resource(made.token)
        is_input = known is None or steps[0] in known.inputs.properties
        if known is not None and not is_input and steps[0] not in known.outputs:
            allowed = ", ".join(sorted({*known.inputs.properties, *known.outputs}))
            raise EngineError(f"{made.token} has no property {steps[0]!r}; allowed: {allowed}")
        inputs = copy.deepcopy(dict(made.inputs))
        outputs = copy.deepcopy(dict(made.outputs))
        _place(outputs, steps, value, path)
        if is_input:
            _place(inputs, steps, value, path)
            problems = [] if known is None else Checker(tables).resource(made.token, inputs)
            if problems:
                raise SandboxError(problems, f"{resource} can't be changed")
        changed = Made(made.urn, made.token, made.id, inputs, outputs, made.region, made.stack)
        store.change(changed)
    return changed


def lose(store: Store, resource: str) -> Made:
    """Remove a resource, given by its URN or name. Raises EngineError when there is none."""
    with store.transaction():
        made = store.named(resource)
        store.remove(made.token, made.id)
    return made


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        key, index, quoted = found.groups()
        steps.append(int(index) if index is not None else key or quoted)
        at = found.end()
    if at < len(path) or not steps or not isinstance(steps[0], str):
        raise EngineError(
            f"{path!r} is no path of a property; allowed: such as tags.owner, rules[0].port, "
            'tags["a.b"]'
        )
    return steps


def _place(values: Any, steps: list[str | int], value: Any, path: str) -> None:
    """Set the value at the end of the steps; objects on the way are made, lists are not."""
    for step in steps[:-1]:
        if isinstance(step, str) and isinstance(values, dict):
            values = values.setdefault(step, {})
        elif isinstance(step, int) and isinstance(values, list) and step < len(values):
            values = values[step]
        else:
            raise _no_place(step, path)
    last = steps[-1]
    if isinstance(last, str) and isinstance(values, dict):
        if value is None:
            values.pop(last, None)
        else:
            values[last] = value
    elif isinstance(last, int) and isinstance(values, list) and last <= len(values):
        # One past the end adds an entry.
        values[last : last + 1] = [] if value is None else [value]
    else:
        raise _no_place(last, path)


def _no_place(step: str | int, path: str) -> EngineError:
    return EngineError(
        f"{path}: there is no place {step!r}; `falaj sandbox show` prints what is there"
    )
