"""Changes behind the engine's back, as somebody at a cloud's console would make them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.sandbox import models, urns
from falaj.sandbox.checker import Checker
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.schema import Tables
from falaj.sandbox.store import Store
from falaj.wire.documents import is_dictionary, is_sequence

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


_OUTSIDE: Final = ("existing", "outside")
"""Stack and project of what no stack made."""
_REGIONS: Final = {"aws": "region", "azure-native": "location"}
"""The setting of each cloud's provider that says where it works."""


def add(
    store: Store,
    token: str,
    name: str,
    values: Mapping[str, Any],
    *,
    region: str = "",
    id: str = "",
) -> Made:
    """Add a resource that no stack made, for queries and references to find.

    Args:
        token: its type, such as ``aws:route53/zone:Zone``.
        name: how the sandbox's commands call it.
        values: its inputs by path, as in `set_property`.
        region: where it is.
        id: its own, where a program holds that; empty for one that is made up.

    Raises:
        EngineError: the type is of no cloud, or there is one of that name.
        SandboxError: the cloud would refuse it.
    """
    package = token.partition(":")[0]
    setting = _REGIONS.get(package)
    if setting is None:
        raise EngineError(
            f"{token!r} is no type of a cloud that things can be added to; allowed: types of "
            f"{' and '.join(_REGIONS)}, such as aws:route53/zone:Zone"
        )
    cloud = Cloud(models.load(package), store)
    settings = {setting: region} if region else {}
    problems = cloud.check_settings(settings)
    if problems:
        raise SandboxError(problems, f"{name} can't be added; --region says where it is")
    cloud.configure(settings)
    urn = urns.make(*_OUTSIDE, token, name)
    inputs: dict[str, Any] = {}
    for path, value in values.items():
        _place(inputs, _steps(path), value, path)
    with store.transaction():
        if store.generations(urn):
            raise EngineError(
                f"{token} {name!r} is there already; choose another name, or change it with "
                "`falaj sandbox set`"
            )
        return cloud.add(urn, inputs, id)


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
        if isinstance(step, str) and is_dictionary(values):
            values = values.setdefault(step, {})
        elif isinstance(step, int) and is_sequence(values) and step < len(values):
            values = values[step]
        else:
            raise _no_place(step, path)
    last = steps[-1]
    if isinstance(last, str) and is_dictionary(values):
        if value is None:
            values.pop(last, None)
        else:
            values[last] = value
    elif isinstance(last, int) and is_sequence(values) and last <= len(values):
        # One past the end adds an entry.
        values[last : last + 1] = [] if value is None else [value]
    else:
        raise _no_place(last, path)


def _no_place(step: str | int, path: str) -> EngineError:
    return EngineError(
        f"{path}: there is no place {step!r}; `falaj sandbox show` prints what is there"
    )
