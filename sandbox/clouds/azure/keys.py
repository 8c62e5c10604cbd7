"""Keys that other services encrypt with: their addresses, and what the services ask of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from falaj.sandbox.clouds.azure import existing
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Made, Problem, World

VAULT: Final = "azure-native:keyvault:Vault"
HSM: Final = "azure-native:keyvault:ManagedHsm"
KEY: Final = "azure-native:keyvault:Key"

_URI: Final = re.compile(
    r"https://([-A-Za-z0-9]+)\.(vault|managedhsm)\.azure\.net/?(?::443)?"
    r"(?:/keys/([-A-Za-z0-9]+)(?:/([0-9a-fA-F]{32}))?)?/?",
)


@dataclass(frozen=True)
class KeyAddress:
    """The parts of a vault's or key's address."""

    vault: str
    is_hsm: bool
    key: str | None
    version: str | None


def parse(uri: str) -> KeyAddress | None:
    """The parts of an address; None when it is none of a vault or a key."""
    matched = _URI.fullmatch(uri)
    if matched is None:
        return None
    return KeyAddress(matched[1], matched[2] == "managedhsm", matched[3], matched[4])


def address(path: str, uri: str | None, *, versioned: bool | None = None) -> Iterator[Problem]:
    """Problems of the address of a key; `versioned` says whether a version must be there."""
    if uri is None:
        return
    found = parse(uri)
    if found is None or found.key is None:
        yield Problem(
            path,
            f"{uri!r} isn't the address of a key; it looks like "
            "https://NAME.vault.azure.net/keys/KEY/VERSION (the key's keyUriWithVersion)",
        )
    elif versioned and found.version is None:
        yield Problem(path, "names no version of the key; give the key's keyUriWithVersion")
    elif versioned is False and found.version is not None:
        yield Problem(path, "names a version, so that it wouldn't rotate; give the key's keyUri")


def vault(world: World, found: KeyAddress) -> Made | None:
    """The vault or HSM of an address; None when none of that name was made."""
    for made in world.all(HSM if found.is_hsm else VAULT):
        if made.id.rpartition("/")[2].lower() == found.vault.lower():
            return made
    return None


def usable(
    resource: Resource,
    path: str,
    uri: str | None,
    *,
    key: str | None = None,
    region: str | None = None,
    needs_purge_protection: bool = True,
) -> Iterator[Problem]:
    """Problems of encrypting with a key: it exists, its vault can't be purged, it is near.

    `key` names the key where the address is the vault's; `region` is where the vault must be.
    """
    found = parse(uri) if uri else None
    if found is None:
        return
    holder = vault(resource.world, found)
    if holder is None:
        yield Problem(
            path,
            f"no vault called {found.vault!r} exists; make it first, and take the "
            "address from its outputs",
        )
        return
    name = key or found.key
    if name and not found.is_hsm and not _has_key(resource.world, holder, name):
        yield Problem(
            path,
            f"the vault {found.vault!r} has no key {name!r}; make it first, and "
            "take the address from its outputs",
        )
    if region and (place := existing.region_of(holder)) and place != region:
        yield Problem(
            path,
            f"the key's vault is in {place}, this resource in {region}; they must "
            "be in the same region",
        )
    properties = Inputs(holder.inputs)
    if needs_purge_protection and properties.at("properties.enablePurgeProtection") is not True:
        yield Problem(
            path,
            f"the vault {found.vault!r} has no purge protection, which encryption "
            "with its keys needs; set properties.enablePurgeProtection",
        )


def _has_key(world: World, holder: Made, name: str) -> bool:
    return existing.by_id(world, f"{holder.id}/keys/{name}") is not None
