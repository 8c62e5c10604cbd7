"""What exists, asked in Resource Manager's terms, and what every resource answers with.

Ids count in any letter case, and so do children that a parent declared in its own list, and what
Azure makes by itself. Answers have the property names of the installed SDK.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from falaj.sandbox.clouds.azure import kinds, naming, regions
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Made, World
from falaj.sandbox.properties import is_list
from falaj.wire.documents import is_dictionary

PACKAGE: Final = "azure-native:"

# Made by Azure itself: the network watcher of each region (network-watcher-create), the group of
# an AKS cluster's machines, the default groups of its monitors and those of managed environments.
_AUTOMATIC_GROUPS: Final = re.compile(
    r"NetworkWatcherRG|MC_.+|ME_.+|DefaultResourceGroup-.+", re.IGNORECASE
)
# Parts that come with their parent, whether or not a resource sets them.
_WITH_PARENT: Final = frozenset(
    {
        "microsoft.storage/storageaccounts/blobservices",
        "microsoft.storage/storageaccounts/fileservices",
        "microsoft.operationalinsights/workspaces/tables",
    }
)
# Types that everybody has, with built-in members beside those that are made.
_BUILT_IN: Final = frozenset(
    {
        "microsoft.authorization/roledefinitions",
        "microsoft.authorization/policydefinitions",
        "microsoft.authorization/policysetdefinitions",
        "microsoft.network/networkwatchers",
        "microsoft.insights/components",
        "microsoft.compute/images",
    }
)


def of_type(world: World, arm_type: str) -> Iterator[Made]:
    """All resources of a type of Resource Manager, by whichever token they were made."""
    for kind in kinds.kinds_of_type(arm_type):
        yield from world.all(kind.token)


def azure(world: World) -> Iterator[Made]:
    """Everything in the sandbox that is Azure's."""
    for made in world.all():
        if made.token.startswith(PACKAGE):
            yield made


def by_id(world: World, id: str) -> Made | None:
    """The resource with that id, in any letter case; None when none was made."""
    reference = naming.parse(id)
    rows = kinds.kinds_of_type(reference.type) if reference else ()
    for kind in rows:
        found = world.by_id(kind.token, id)
        if found:
            return found
    candidates = (
        (made for kind in rows for made in world.all(kind.token)) if rows else azure(world)
    )
    return next((made for made in candidates if naming.same(made.id, id)), None)


def group(world: World, name: str) -> Made | None:
    """The resource group of that name; None when there is none."""
    return by_id(world, naming.group_id(name))


def inline(world: World, id: str) -> Any:
    """What a parent declared under that id in its own list; None when it didn't."""
    reference = naming.parse(id)
    if reference is None or reference.parent is None:
        return None
    parent = by_id(world, reference.parent)
    for kind in kinds.kinds_of_type(reference.type) if parent else ():
        if parent is None or kind.inline is None:
            continue
        items = parent.inputs.get(kind.inline[0])
        for item in items if is_list(items) else ():
            name = item.get(kind.inline[1]) if is_dictionary(item) else None
            if isinstance(name, str) and name.lower() == reference.name.lower():
                return item
    return None


def exists(world: World, id: str) -> bool:
    """Whether the id means something that was made, or that Azure makes by itself."""
    reference = naming.parse(id)
    if reference is None or not reference.is_made_up:
        return True
    if reference.type == "":
        return reference.group is None or has_group(world, reference.group)
    if reference.type.lower() in _BUILT_IN or _is_automatic(reference.group):
        return True
    if by_id(world, id) or inline(world, id) is not None:
        return True
    # A part without a type of its own (a load balancer's address pool) stands with its parent.
    is_part = not kinds.kinds_of_type(reference.type) or reference.type.lower() in _WITH_PARENT
    return is_part and reference.parent is not None and exists(world, reference.parent)


def has_group(world: World, name: str) -> bool:
    """Whether the resource group exists, or is one that Azure makes by itself."""
    if _is_automatic(name) or group(world, name):
        return True
    return any(
        str(made.inputs.get("nodeResourceGroup", "")).lower() == name.lower()
        for made in world.all("azure-native:containerservice:ManagedCluster")
    )


def references(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every resource id among the values, with its path."""
    if isinstance(value, str):
        if naming.parse(value):
            yield path, value
    elif is_dictionary(value):
        for key, item in value.items():
            # The keys of a map of user-assigned identities are ids too.
            if naming.parse(key):
                yield path, key
            yield from references(item, f"{path}.{key}" if path else str(key))
    elif is_list(value):
        for index, item in enumerate(value):
            yield from references(item, f"{path}[{index}]")


def region_of(made: Made | None) -> str | None:
    """The region of what was made; None when it has none."""
    location = made.outputs.get("location") if made else None
    return location if isinstance(location, str) else None


def kind_of(made: Made) -> AzureKind | None:
    """The row of the table for what was made."""
    return kinds.kind_of(made.token)


def _is_automatic(group: str | None) -> bool:
    return group is not None and _AUTOMATIC_GROUPS.fullmatch(group) is not None


# What every resource answers with.

_GETTER: Final = re.compile(
    r"@pulumi\.getter(?:\(name=\"(\w+)\"\))?\n    def (\w+)\(self\)(?: -> (.+))?:"
)
#: Where the arguments' class ends and the resource's begins. SDKs of version 2 mark no tokens, and
#: write what is optional, and the API's version, in another way.
_RESOURCE: Final = re.compile(
    r"^(?:@pulumi\.type_token\(|class \w+\(pulumi\.CustomResource\):)", re.MULTILINE
)
_OPTIONAL: Final = ("pulumi.Input[Optional[", "Optional[")
_VERSION: Final = re.compile(r"Azure REST API version:? ([\w-]+)\.")
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
    arguments, *rest = _RESOURCE.split(source, maxsplit=1)
    resource = "".join(rest)
    inputs: set[str] = set()
    required: set[str] = set()
    for wire_name, name, kind in _GETTER.findall(arguments):
        inputs.add(wire_name or name)
        if kind and not kind.startswith(_OPTIONAL):
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
    return text if re.search(rf"(['\"]){token}\1", text) else None


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
        # Of some types (a page blob, a pool of a scale set) this is an input of their own.
        "type": found.get("type", kind.arm_type),
        "azureApiVersion": given.api_version if given else "",
    }
    found |= {key: value for key, value in always.items() if given is None or key in expected}
    if "location" in expected and (region := location(resource)):
        found["location"] = region
    if "provisioningState" in expected:
        found["provisioningState"] = "Succeeded"
    if "systemData" in expected:
        found["systemData"] = naming.system_data()
    for name in ("etag", "eTag"):
        if name in expected:
            found[name] = naming.etag(id)
    if "identity" in expected and is_dictionary(resource.at("identity")):
        found["identity"] = identity(resource)
    if "resourceGuid" in expected:
        found["resourceGuid"] = naming.guid("guid", id)
    return found


def arm_name(id: str) -> str:
    """The last segment of an id."""
    return id.rstrip("/").rpartition("/")[2]


def location(resource: Resource) -> str | None:
    """The resource's region: its own, the provider's, or its resource group's."""
    if regions.region_of(resource):
        return regions.region_of(resource)
    name = resource.optional_string("resourceGroupName")
    if name is None:
        return None
    region = region_of(group(resource.world, name))
    return regions.normalise(region) if region else None


def identity(resource: Resource) -> dict[str, Any]:
    """The managed identities of a resource, with the ids that Entra would give them."""
    found = resource.mapping("identity")
    kind = resource.optional_string("identity.type") or ""
    if "systemassigned" in kind.lower():
        found["principalId"] = naming.guid("principal", resource.id)
        found["tenantId"] = naming.TENANT
    names = identity_names(resource)
    if names:
        found["userAssignedIdentities"] = {
            item: {
                "principalId": naming.guid("principal", item),
                "clientId": naming.guid("client", item),
            }
            for item in names
        }
    return found


def identity_names(inputs: Inputs) -> list[str]:
    """The ids of its user-assigned identities: the SDK writes them as a list or as keys."""
    path = "identity.userAssignedIdentities"
    return inputs.keys(path) or [text for _, text in inputs.strings(path)]
