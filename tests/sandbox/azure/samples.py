"""What was made in a test's Azure, by a short name; each resource sees those before it."""

from __future__ import annotations

from typing import Any, NamedTuple

from falaj.sandbox.inprocess import Sandbox

REGION = "uaenorth"
GUID = "11111111-2222-3333-4444-555555555555"
SCOPE = "/subscriptions/00000000-0000-0000-0000-000000000000"
READER = f"{SCOPE}/providers/Microsoft.Authorization/roleDefinitions/{GUID}"
PURGEABLE = {"enablePurgeProtection": True, "enableRbacAuthorization": True}


class Resource(NamedTuple):
    token: str
    inputs: dict[str, Any]
    id: str
    outputs: dict[str, Any]


class Samples:
    """What was made, by a short name; each resource sees those before it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.made: dict[str, Resource] = {}

    def add(self, key: str, token: str, **inputs: Any) -> Resource:
        whole = f"azure-native:{token}"
        id, outputs = self.sandbox.create(whole, key, inputs)
        self.made[key] = Resource(whole, inputs, id, outputs)
        return self.made[key]

    def id(self, key: str) -> str:
        return self.made[key].id

    def out(self, key: str, *path: str) -> Any:
        value: Any = self.made[key].outputs
        for step in path:
            value = value[step]
        return value
