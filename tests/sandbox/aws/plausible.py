"""One plausible set of inputs for each described type, in an order in which AWS would take them.

`plausible.json` holds them as [name, token, inputs]; in the inputs ``{name.output}`` stands for an
output of a resource before, ``{name}`` for its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falaj.sandbox.inprocess import Sandbox

CHAIN: list[tuple[str, str, dict[str, Any]]] = [
    (name, token, inputs)
    for name, token, inputs in json.loads(
        Path(__file__).with_name("plausible.json").read_text("utf-8")
    )
]
_FIELD = re.compile(r"\{([A-Za-z0-9]+)(?:\.([A-Za-z0-9]+))?\}")
REGION = "me-central-1"

Made = dict[str, tuple[str, dict[str, Any]]]


def cloud(**settings: Any) -> Sandbox:
    """A sandbox of its own, in memory."""
    return Sandbox(cloud="aws", config={"region": REGION, **settings})


def build(sandbox: Sandbox, *names: str) -> Made:
    """Make the resources of those names, or all, in the chain's order."""
    made: Made = {}
    for name, token, inputs in CHAIN:
        if not names or name in names:
            made[name] = sandbox.create(token, name, resolved(inputs, made))
    return made


def inputs_of(wanted: str, made: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """The inputs of one resource of the chain."""
    return next(resolved(inputs, made) for name, _, inputs in CHAIN if name == wanted)


def token_of(wanted: str) -> str:
    """The token of one resource of the chain."""
    return next(token for name, token, _ in CHAIN if name == wanted)


def resolved(value: Any, made: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    """The inputs with what stands for outputs of others replaced."""
    if isinstance(value, str):
        return _FIELD.sub(lambda field: _output(field, made), value)
    if isinstance(value, Mapping):
        return {key: resolved(item, made) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, made) for item in value]
    return value


def _output(field: re.Match[str], made: Mapping[str, tuple[str, dict[str, Any]]]) -> str:
    name, output = field[1], field[2]
    if name not in made:
        return field[0]
    return made[name][0] if output is None else str(made[name][1][output])
