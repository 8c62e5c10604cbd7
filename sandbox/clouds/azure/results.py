"""What every resource answers with, by the names that the installed SDK has for it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from falaj.sandbox.clouds.azure import existing, generated, places
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource

_GETTER: Final = re.compile(
    r"@pulumi\.getter(?:\(name=\"(\w+)\"\))?\n    def (\w+)\(self\)(?: -> (.+))?:"
)
_VERSION: Final = re.compile(r"Uses Azure REST API version ([\w-]+)\.")
_TOKEN: Final = re.compile(r"^azure-native:(\w+):(\w+)$")


@dataclass(frozen=True)
class Shape:
    """The property names of a type."""

    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]
    api_version: str


@cache
def shape(token: str) -> Shape | None:
    """The shape of a type; None when the installed SDK has no such type."""
    source = _source(token)
    if source is None:
        return None
    arguments, _, resource = source.partition("@pulumi.type_token(")
    inputs: set[str] = set()
    required: set[str] = set()
    for wire_name, name, kind in _GETTER.findall(arguments):
        inputs.add(wire_name or name)
        if kind and not kind.startswith("pulumi.Input[Optional["):
            required.add(wire_name or name)
    outputs = {wire_name or name for wire_name, name, _ in _GETTER.findall(resource)}
    version = _VERSION.search(resource)
    return Shape(
        frozenset(inputs),
        frozenset(required),
        frozenset(outputs),
        version[1] if version else "",
    )


@cache
def _folder() -> Path | None:
    found = importlib.util.find_spec("pulumi_azure_native")
    return Path(found.origin).parent if found and found.origin else None


@cache
def _classes(module: str) -> dict[str, Path]:
    folder = _folder()
    files: dict[str, Path] = {}
    if folder is None or not (folder / module).is_dir():
        return files
    for file in sorted((folder / module).glob("*.py")):
        if file.name.startswith("_") or file.name == "outputs.py":
            continue
        # The list of what a module exports stands in its first lines: the class is the last.
        with file.open(encoding="utf-8") as text:
            head = text.read(2000)
        exported = re.search(r"__all__ = \[([^\]]*)\]", head)
        for name in re.findall(r"'(\w+)'", exported[1]) if exported else ():
            files.setdefault(name, file)
    return files


def _source(token: str) -> str | None:
    matched = _TOKEN.match(token)
    if not matched:
        return None
    module, name = matched.groups()
    file = _classes(module).get(name)
    text = file.read_text("utf-8") if file else ""
    return text if f'@pulumi.type_token("{token}")' in text else None


def common(kind: AzureKind, resource: Resource) -> dict[str, Any]:
    """The inputs, and what Resource Manager adds to each resource."""
    id = resource.id
    found: dict[str, Any] = {
        key: value for key, value in resource.values.items() if value is not None
    }
    given = shape(resource.token)
    expected = given.outputs if given else frozenset[str]()
    always = {
        "name": arm_name(id),
        "type": kind.arm_type,
        "azureApiVersion": given.api_version if given else "",
    }
    found |= {key: value for key, value in always.items() if given is None or key in expected}
    if "location" in expected and (region := location(resource)):
        found["location"] = region
    if "provisioningState" in expected:
        found["provisioningState"] = "Succeeded"
    if "systemData" in expected:
        found["systemData"] = generated.system_data()
    for name in ("etag", "eTag"):
        if name in expected:
            found[name] = generated.etag(id)
    if "identity" in expected and isinstance(resource.at("identity"), dict):
        found["identity"] = identity(resource)
    if "resourceGuid" in expected:
        found["resourceGuid"] = generated.guid("guid", id)
    return found


def arm_name(id: str) -> str:
    """The last segment of an id."""
    return id.rstrip("/").rpartition("/")[2]


def location(resource: Resource) -> str | None:
    """The resource's region: its own, the provider's, or its resource group's."""
    if places.region(resource):
        return places.region(resource)
    group = resource.optional_string("resourceGroupName")
    if group is None:
        return None
    region = existing.region_of(existing.group(resource.world, group))
    return places.normalise(region) if region else None


def identity(resource: Resource) -> dict[str, Any]:
    """The managed identities of a resource, with the ids that Entra would give them."""
    found = resource.mapping("identity")
    kind = resource.optional_string("identity.type") or ""
    if "systemassigned" in kind.lower():
        found["principalId"] = generated.guid("principal", resource.id)
        found["tenantId"] = generated.TENANT
    names = identity_names(resource)
    if names:
        found["userAssignedIdentities"] = {
            item: {
                "principalId": generated.guid("principal", item),
                "clientId": generated.guid("client", item),
            }
            for item in names
        }
    return found


def identity_names(inputs: Inputs) -> list[str]:
    """The ids of its user-assigned identities: the SDK writes them as a list or as keys."""
    path = "identity.userAssignedIdentities"
    return inputs.keys(path) or [text for _, text in inputs.strings(path)]
