"""Policy documents written as arguments of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws.naming import digits
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import World

_LISTS: Final = {
    "actions": "Action",
    "notActions": "NotAction",
    "resources": "Resource",
    "notResources": "NotResource",
}


def _document(inputs: Inputs, _world: World) -> dict[str, Any]:
    document: dict[str, Any] = {
        "Version": inputs.string("version") or "2012-10-17",
        "Statement": [_statement(as_map(item)) for _, item in inputs.each("statements[]")],
    }
    if inputs.string("policyId"):
        document["Id"] = inputs.string("policyId")
    text = json.dumps(document, indent=2)
    minified = json.dumps(document, separators=(",", ":"))
    return {"id": digits(10, minified), "json": text, "minifiedJson": minified}


def _statement(item: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"Effect": item.get("effect") or "Allow"}
    if item.get("sid"):
        found["Sid"] = item["sid"]
    for name, element in _LISTS.items():
        values = [str(value) for value in as_list(item.get(name))]
        if values:
            found[element] = values[0] if len(values) == 1 else values
    for name, element in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        principals = as_list(item.get(name))
        if principals:
            found[element] = _principals(principals)
    conditions: dict[str, dict[str, Any]] = {}
    for entry in map(as_map, as_list(item.get("conditions"))):
        values = [str(value) for value in as_list(entry.get("values"))]
        conditions.setdefault(str(entry.get("test")), {})[str(entry.get("variable"))] = (
            values[0] if len(values) == 1 else values
        )
    if conditions:
        found["Condition"] = conditions
    return found


def _principals(principals: Any) -> Any:
    found: dict[str, Any] = {}
    for entry in map(as_map, principals):
        names = [str(value) for value in as_list(entry.get("identifiers"))]
        if entry.get("type") == "*":
            return "*"
        found[str(entry.get("type"))] = names[0] if len(names) == 1 else names
    return found


ANSWERS: Final[Answers] = {"aws:iam/getPolicyDocument:getPolicyDocument": _document}
