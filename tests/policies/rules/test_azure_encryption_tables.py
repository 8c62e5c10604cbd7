"""Azure's tables of keys: each entry found right, and every path one that the SDK has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from falaj.policies.model import UNKNOWN, Context, Finding, FindingKind, Resource, Settings, Stack
from falaj.policies.model.judge import evaluate
from falaj.policies.rules.encryption import azure_tables
from falaj.policies.rules.encryption.at_rest import KEYED, RULES
from falaj.policies.rules.encryption.stores import Stores, without_customer_key
from falaj.policies.rules.encryption.tls_versions import AZURE_MINIMA as MINIMA
from falaj.policies.rules.encryption.tls_versions import minor
from falaj.sandbox import property_types
from falaj.sandbox.schema import Tables
from tests.each import for_each
from tests.policies.cases import put

ENTRIES = [
    *azure_tables.STORAGE,
    *azure_tables.DATABASES,
    *azure_tables.MESSAGING,
    *azure_tables.CONTAINERS,
    *azure_tables.CLUSTER_SECRETS,
    *azure_tables.ANALYTICS,
    *azure_tables.INTELLIGENCE,
    *azure_tables.BACKUPS,
    *azure_tables.LOG_CLUSTERS,
    *azure_tables.PLATFORM,
    *azure_tables.DISKS,
]
#: One test a service.
SERVICES: dict[str, list[Stores]] = {}
for stored in ENTRIES:
    SERVICES.setdefault(stored.type.rpartition(":")[0], []).append(stored)
KEY = Resource("azure-native:keyvault:Key", "key", {"keyName": "k"}, urn="urn:key")
BY_ID = {each.id: each for each in RULES}


def label(entry: Stores) -> str:
    return f"{entry.type} {entry.parts} {entry.keys[0] or entry.mode}"


def block(entry: Stores, key: Any) -> dict[str, Any]:
    """The block that an entry reads, with a key and the mode that calls for it."""
    made: dict[str, Any] = {}
    if entry.mode:
        own = next(word for word, state in entry.modes.items() if state == "customer key")
        put(entry.mode, own, made)
    if entry.keys[0]:
        put(entry.keys[0], key, made)
    if entry.beside:
        put(entry.beside, "https://kv.vault.azure.net", made)
    if entry.when:
        put(entry.when, "/source", made)
    return made


def found(entry: Stores, made: Mapping[str, Any], of_key: bool = False) -> list[Finding]:
    """What the entry alone objects to."""
    properties = put(entry.parts, [made], {}) if entry.parts else dict(made)
    top = (entry.parts or entry.keys[0] or entry.mode).split(".")[0]
    resource = Resource(
        entry.type, "it", properties, urn="urn:it",
        dependencies={top: ("urn:key",)} if of_key else {},
    )  # fmt: skip
    context = Context(Settings(), Stack((resource, KEY)))
    return list(without_customer_key(resource, context, entry.read(resource, context)))


@pytest.mark.parametrize("service", SERVICES)
def test_a_key_is_seen(service: str) -> None:
    for_each(SERVICES[service], sees_a_key, label)


def sees_a_key(entry: Stores) -> None:
    assert not found(entry, block(entry, "https://kv.vault.azure.net/keys/k"))
    if entry.keys[0]:
        assert not found(entry, block(entry, UNKNOWN), of_key=True)


@pytest.mark.parametrize("service", SERVICES)
def test_what_lacks_one_is_told(service: str) -> None:
    for_each(SERVICES[service], tells_what_lacks_one, label)


def tells_what_lacks_one(entry: Stores) -> None:
    if not entry.when:
        told = found(entry, {})
        assert [each.kind for each in told] == [FindingKind.VIOLATION]
    if entry.keys[0]:
        hidden = found(entry, block(entry, UNKNOWN))
        assert [each.kind for each in hidden] == [FindingKind.INDETERMINATE]
        assert found(entry, block(entry, ""))
    for word, state in entry.modes.items():
        if state == "service key":
            made = put(entry.mode, word, block(entry, "https://kv.vault.azure.net/keys/k"))
            assert [each.kind for each in found(entry, made)] == [FindingKind.VIOLATION]


@pytest.mark.parametrize("rule", sorted(KEYED))
def test_public_data_needs_none(rule: str) -> None:
    context = Context(Settings(data_class="public"), Stack(()))
    for token in KEYED[rule]:
        resource = Resource(token, "it", {}, urn="urn:it")
        assert not evaluate(BY_ID[rule], resource, context).findings


@pytest.mark.parametrize(
    "spelling", ["1.{}", "TLS1_{}", "TLS1{}", "Tls1{}", "TLSv1_{}", "TLSv1.{}"]
)
def test_versions_in_any_spelling(spelling: str) -> None:
    assert [minor(spelling.format(each)) for each in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "value", ["None", "", "2.0", "TLSEnforcementDisabled", "1.22", None, True]
)
def test_no_version(value: object) -> None:
    assert minor(value) is None


def paths(table: Tables, name: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
    """Every path of properties of an object type, lists left out."""
    for key, each in table.objects[name].properties.items():
        yield key
        for inner in references(each.type):
            if inner not in seen:
                for path in paths(table, inner, (*seen, inner)):
                    yield f"{key}.{path}"


def references(kind: property_types.Type) -> Iterator[str]:
    match kind:
        case property_types.Reference(name):
            yield name
        case property_types.ListOf(item) | property_types.MapOf(item):
            yield from references(item)
        case property_types.Either(members):
            for each in members:
                yield from references(each)
        case _:
            return


@pytest.mark.slow
def test_every_path_is_the_sdks() -> None:
    """Except those of types that only older SDKs have."""
    table = Tables("azure-native")
    unknown: list[str] = []
    for token, wanted in sorted(wanted_paths().items()):
        resource = table.resource(token)
        if resource is None:
            continue
        known = set(resource.inputs.properties)
        for key, each in resource.inputs.properties.items():
            for name in references(each.type):
                known |= {f"{key}.{rest}" for rest in paths(table, name)}
        unknown += [f"{token} {path}" for path in sorted(wanted - known)]
    assert not unknown


def wanted_paths() -> dict[str, set[str]]:
    """Paths that tables name, by type; of several keys one must exist."""
    found: dict[str, set[str]] = {}
    for entry in ENTRIES:
        prefix = f"{entry.parts}." if entry.parts else ""
        found.setdefault(entry.type, set()).update(
            prefix + each for each in (entry.keys[0], entry.mode, entry.when, entry.beside) if each
        )
    for minimum in MINIMA:
        for name in minimum.names:
            if not name.startswith(("dbformysql:Server", "dbforpostgresql:Server", "cdn:Custom")):
                found.setdefault(f"azure-native:{name}", set()).add(minimum.path)
    return found
