"""AWS's tables of keys: each entry found right, and every path one that the SDK has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import (
    UNKNOWN,
    Context,
    Finding,
    FindingKind,
    Resource,
    Settings,
    Stack,
    by_type,
)
from falaj.policies.rules.encryption.at_rest import FAMILIES
from falaj.policies.rules.encryption.plain_text import BACKENDS, REQUIREMENTS
from falaj.policies.rules.encryption.stores import (
    Stores,
    is_service_key,
    unencrypted,
    without_customer_key,
)
from falaj.policies.rules.encryption.tls_versions import AWS_MINIMA as MINIMA
from falaj.sandbox import property_types
from falaj.sandbox.schema import Tables
from tests.each import for_each
from tests.policies.cases import put

ENTRIES = [entry for family in FAMILIES for entry in family.entries]


def by_service(entries: Iterable[Stores]) -> dict[str, list[Stores]]:
    """Entries by the service of their type: one test a service."""
    found: dict[str, list[Stores]] = {}
    for entry in entries:
        found.setdefault(entry.type.partition("/")[0], []).append(entry)
    return found


KEYED = by_service(each for each in ENTRIES if each.takes_key)
UNGUARDED = by_service(
    each for each in ENTRIES if each.takes_key and (each.when not in each.keys or not each.when)
)
SWITCHED = by_service(each for each in ENTRIES if each.enabled)
ARN = "arn:aws:kms:me-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def label(entry: Stores) -> str:
    return f"{entry.type} {entry.parts} {entry.keys[0] or entry.enabled or entry.mode}"


def block(entry: Stores, **given: Any) -> dict[str, Any]:
    """The block that an entry reads, encrypted with `key` unless `switch` says otherwise."""
    made: dict[str, Any] = {}
    if entry.when and entry.when not in entry.keys:
        holder = any(each.startswith(f"{entry.when}.") for each in (*entry.keys, entry.mode))
        put(entry.when, {"x": 1} if holder else True, made)
    if entry.only[0]:
        put(entry.only[0], entry.only[1][0].upper(), made)
    if entry.enabled:
        put(entry.enabled, given.get("switch", True), made)
    own = [word for word, state in entry.modes.items() if state == "customer key"]
    if entry.mode and own:
        put(entry.mode, own[0], made)
    elif entry.type.startswith("aws:kinesis/firehose"):
        put(entry.mode, "CUSTOMER_MANAGED_CMK", made)
    if "key" in given:
        put(entry.keys[0], given["key"], made)
    return made


def judged(entry: Stores, made: dict[str, Any], *, of_key: bool = False) -> list[Finding]:
    """What the entry alone says of the key."""
    return list(without_customer_key(*judging(entry, made, of_key=of_key)))


def judging(entry: Stores, made: dict[str, Any], *, of_key: bool = False) -> Any:
    properties = put(entry.parts, [made], {}) if entry.parts else made
    top = (entry.parts or entry.keys[0] or entry.enabled).split(".")[0]
    key = Resource(sorted(entry.by)[0], "key", {}, urn="urn:key")
    resource = Resource(
        entry.type, "it", properties, urn="urn:it",
        dependencies={top: ("urn:key",)} if of_key else {},
    )  # fmt: skip
    context = Context(Settings(), Stack((resource, key)))
    return resource, context, entry.read(resource, context)


@pytest.mark.parametrize("service", KEYED)
def test_a_key_is_seen(service: str) -> None:
    for_each(KEYED[service], sees_a_key, label)


def sees_a_key(entry: Stores) -> None:
    assert not judged(entry, block(entry, key=ARN))
    assert not judged(entry, block(entry, key=UNKNOWN), of_key=True)


@pytest.mark.parametrize("service", KEYED)
def test_what_is_no_customers_key_is_told(service: str) -> None:
    for_each(KEYED[service], tells_what_is_no_customers_key, label)


def tells_what_is_no_customers_key(entry: Stores) -> None:
    for named in ("alias/aws/thing", "arn:aws:kms:me-central-1:123456789012:alias/aws/thing"):
        assert [each.kind for each in judged(entry, block(entry, key=named))] == [
            FindingKind.VIOLATION
        ]
    hidden = judged(entry, block(entry, key=UNKNOWN))
    assert [each.kind for each in hidden] == [FindingKind.INDETERMINATE]


@pytest.mark.parametrize("service", UNGUARDED)
def test_no_key_is_told(service: str) -> None:
    for_each(UNGUARDED[service], tells_that_there_is_no_key, label)


def tells_that_there_is_no_key(entry: Stores) -> None:
    assert [each.kind for each in judged(entry, block(entry))] == [FindingKind.VIOLATION]
    for word, state in entry.modes.items():
        if state in {"service key", "none"} and word:
            made = put(entry.mode, word.upper(), block(entry, key=ARN))
            assert [each.kind for each in judged(entry, made)] == [FindingKind.VIOLATION]


@pytest.mark.parametrize("service", SWITCHED)
def test_what_is_turned_off_is_told(service: str) -> None:
    for_each(SWITCHED[service], tells_what_is_turned_off, label)


def tells_what_is_turned_off(entry: Stores) -> None:
    for off in (False, "false", " False"):
        found = list(unencrypted(judging(entry, block(entry, switch=off))[2]))
        assert [each.kind for each in found] == [FindingKind.VIOLATION]
    hidden = list(unencrypted(judging(entry, block(entry, switch=UNKNOWN))[2]))
    assert [each.kind for each in hidden] == [FindingKind.INDETERMINATE]
    assert not list(unencrypted(judging(entry, block(entry, switch="true"))[2]))


@given(
    st.sampled_from(["aws", "aws-cn", "aws-us-gov"]), st.from_regex(r"[a-z]{1,12}", fullmatch=True)
)
def test_aliases_of_aws_in_any_spelling(partition: str, name: str) -> None:
    for spelt in (f"alias/aws/{name}", f"aws/{name}", f"ALIAS/AWS/{name}", f"/aws/{name}"):
        assert is_service_key(spelt)
    assert is_service_key(f"arn:{partition}:kms:me-central-1:123456789012:alias/aws/{name}")
    assert not is_service_key(f"arn:{partition}:kms:me-central-1:123456789012:alias/aws{name}")
    assert not is_service_key(f"alias/my-{name}")


def has(table: Tables, kind: property_types.Type, names: list[str]) -> bool:
    """Whether a path of properties leads on from a type, through lists and maps."""
    match kind:
        case property_types.ListOf(item):
            return has(table, item, names)
        case property_types.MapOf(item):
            return has(table, item, names[1:])
        case property_types.Either(members):
            return any(has(table, each, names) for each in members)
        case property_types.Reference(name) if names:
            found = table.objects[name].properties.get(names[0])
            return found is not None and has(table, found.type, names[1:])
        case _:
            return not names


def wanted() -> Iterator[tuple[str, str]]:
    """Types and paths that the tables name."""
    for entry in ENTRIES:
        named = (*entry.keys, entry.enabled, entry.mode, entry.when, entry.only[0], *entry.copies)
        for path in named:
            if path:
                yield entry.type, f"{entry.parts}.{path}" if entry.parts else path
    for table in (REQUIREMENTS, BACKENDS):
        for kind, asked in by_type(table).items():
            for row in asked:
                yield kind, f"{row.each}.{row.path}" if row.each else row.path
    for minimum in MINIMA:
        for kind in minimum.types:
            yield kind, f"{minimum.parts}.{minimum.path}" if minimum.parts else minimum.path


#: Types that the SDK had under another name, or that have one of two spellings of a path.
RENAMED = (
    "aws:elasticloadbalancing",
    "aws:applicationloadbalancing",
    "aws:elasticloadbalancingv2",
)
EITHER = (
    "serverSideEncryptionConfiguration",
    "orderedCacheBehaviors",
    "cacheBehaviors",
    "origins.customOriginConfig",
)


@pytest.mark.slow
def test_every_path_is_the_sdks() -> None:
    table = Tables("aws")
    wrong: list[str] = []
    for token, path in sorted(set(wanted())):
        if token.startswith(RENAMED) or path.startswith(EITHER):
            continue
        resource = table.resource(token)
        first, *rest = path.split(".")
        found = resource.inputs.properties.get(first) if resource else None
        if found is None or not has(table, found.type, rest):
            wrong.append(f"{token} {path}")
    assert not wrong
