"""Properties of residency and encryption, flipped to a bad value: one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from falaj.policies.model import Resource, format_path, is_list, leaves
from falaj.policies.model.values import Path

REGIONS = {"me-central-1": "eu-west-1", "uaenorth": "westeurope", "uaecentral": "northeurope"}
ZONE = re.compile(r"\bmec1-az(\d)\b|\bme-central-1([a-z])\b")
_ABOVE_LABELS = {"tags", "tagsAll", "labels", "description", "tagSpecifications", "defaultTags"}
#: Keys whose value, or absence, decides about encryption.
KEY = re.compile(
    r"kms.*(id|arn|key)|^(kmsKey|kmsMasterKeyId|keyUri|keyId|keyVaultKeyUri|diskEncryptionSetId"
    r"|diskEncryptionSetID|keyName|encryptionKey)$",
    re.IGNORECASE,
)
SWITCH = re.compile(
    r"^(encrypted|storageEncrypted|encryptionEnabled|enableKeyRotation|isEncrypted"
    r"|transitEncryptionEnabled|atRestEncryptionEnabled|enableHttpsTrafficOnly"
    r"|requireInfrastructureEncryption|enableEncryptionAtHost|rotationToLatestKeyVersionEnabled"
    r"|encryptionAtHost|supportsHttpsTrafficOnly|multiRegion|enablePurgeProtection)$"
)
REDUNDANCY = re.compile(r"^(Standard|Premium)_(LRS|ZRS)$")


@dataclass(frozen=True)
class Mutation:
    """A resource with one bad value."""

    kind: str
    path: str
    resource: Resource


def mutations(resource: Resource) -> Iterator[Mutation]:
    """Every bad value of a resource's properties, and of its provider."""
    if resource.provider is not None and "region" in resource.provider.properties:
        abroad = replace(resource.provider, properties={"region": "eu-west-1"})
        properties = dict(resource.properties)
        if "region" not in properties:
            yield Mutation("region", "provider.region", replace(resource, provider=abroad))
    for path, value in leaves(resource.properties):
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if _ABOVE_LABELS & {str(part) for part in path}:
            continue
        for kind, bad in _bad(key, value):
            changed = replace(resource, properties=put(resource.properties, path, bad))
            yield Mutation(kind, format_path(path), changed)


def _bad(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str):
        for home, abroad in REGIONS.items():
            if value == home:
                yield "region", abroad
            elif value.startswith("arn:") and f":{home}:" in value and KEY.search(key) is None:
                yield "ARN", value.replace(f":{home}:", f":{abroad}:")
        if ZONE.fullmatch(value):
            yield "zone", value.replace("mec1", "euw1").replace("me-central-1", "eu-west-1")
        if KEY.search(key):
            yield "key", DROP
        if key == "sseAlgorithm" and value.startswith("aws:kms"):
            yield "key", "AES256"
        if REDUNDANCY.fullmatch(value) and key == "name":
            yield "redundancy", value.replace("_LRS", "_GRS").replace("_ZRS", "_GZRS")
        if key.lower().startswith("minimumtls") or key == "minTlsVersion":
            yield "TLS", "TLS1_0"
        if key == "sslPolicy":
            yield "TLS", "ELBSecurityPolicy-2016-08"
    if isinstance(value, bool) and SWITCH.match(key):
        yield "switch", not value


class _Drop:
    pass


DROP = _Drop()


def put(value: Any, path: Path, new: Any) -> Any:
    """The value with another one at the path; `DROP` takes the key away."""
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        if not rest and new is DROP:
            return {key: each for key, each in value.items() if key != head}
        return {**value, str(head): put(value[head], rest, new)}
    assert is_list(value)
    if not rest and new is DROP:
        return [each for index, each in enumerate(value) if index != head]
    return [put(each, rest, new) if index == head else each for index, each in enumerate(value)]
