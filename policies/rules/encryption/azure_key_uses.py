"""Azure: how resources use keys of Key Vault: which version, and for which classes of data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    View,
    get,
    indeterminate,
    leaves,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.remembered import remembered
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2")
_KEYS: Final = azure("keyvault:Key")
_SETS: Final = azure("compute:DiskEncryptionSet")
#: https://VAULT.vault.azure.net/keys/NAME/VERSION, and a managed HSM's. A version is optional.
_ADDRESS: Final = re.compile(
    r"https://([a-z0-9-]+)\.(?:vault|managedhsm)\.[a-z0-9.-]+(?::443)?"
    r"(?:/keys/([a-z0-9-]+)(?:/([a-z0-9]+))?)?/?",
    re.IGNORECASE,
)
#: Keys under which a block names its key's version, beside the key's name.
_VERSIONS: Final = ("keyVersion",)
#: Services that take a key without a version and then follow its rotation by themselves, and the
#: setting that names it. Others demand a version, so they aren't here: disk encryption sets, AKS,
#: SQL, Redis Enterprise, Databricks, Container Instances, MySQL, Azure Health.
_FOLLOWING: Final[dict[str, str]] = {
    token: path
    for name, path in (
        ("storage:StorageAccount", "encryption.keyVaultProperties.keyVersion"),
        ("storage:EncryptionScope", "keyVaultProperties.keyUri"),
        ("cosmosdb:DatabaseAccount", "keyVaultKeyUri"),
        ("containerregistry:Registry", "encryption.keyVaultProperties.keyIdentifier"),
        ("servicebus:Namespace", "encryption.keyVaultProperties.keyVersion"),
        ("eventhub:Namespace", "encryption.keyVaultProperties.keyVersion"),
        ("kusto:Cluster", "keyVaultProperties.keyVersion"),
        ("datafactory:Factory", "encryption.keyVersion"),
        ("operationalinsights:Cluster", "keyVaultProperties.keyVersion"),
        ("appconfiguration:ConfigurationStore", "encryption.keyVaultProperties.keyIdentifier"),
        ("recoveryservices:Vault", "properties.encryption.keyVaultProperties.keyUri"),
        (
            "dataprotection:BackupVault",
            "properties.securitySettings.encryptionSettings.keyVaultProperties.keyUri",
        ),
        ("batch:BatchAccount", "encryption.keyVaultProperties.keyIdentifier"),
        (
            "maps:Account",
            "properties.encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
        ),
        (
            "fluidrelay:FluidRelayServer",
            "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
        ),
        (
            "devcenter:DevCenter",
            "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
        ),
        ("loadtestservice:LoadTest", "encryption.keyUrl"),
        ("elasticsan:VolumeGroup", "encryptionProperties.keyVaultProperties.keyVersion"),
    )
    for token in azure(name)
}


@rule(
    "encryption-azure-key-pinned",
    "Keys are named without a version where the service then follows their rotation",
    Severity.LOW,
    frozenset(_FOLLOWING),
    _CONTROLS,
    "Leave the version out (the key's `keyUri` instead of `keyUriWithVersion`), so that data "
    "moves to each new version.",
)
def _pinned(resource: Resource, view: View) -> Iterator[Finding]:
    """An address that isn't known yet is fine where a key of the stack is its source: which of
    the key's two addresses it is, only the deployed stack can show."""
    for path, value in select(resource.properties, _FOLLOWING.get(resource.kind, "-")):
        if isinstance(value, Unknown):
            if not any(each.kind in _KEYS for each in view.referred(resource, path)):
                yield indeterminate(path, f"{path} {value.reason}")
            continue
        found = _ADDRESS.fullmatch(text(value))
        pinned = text(value) if path.endswith(_VERSIONS) else found and found[3]
        if pinned:
            yield violation(path, f"{path} names a version, so the key's rotation changes nothing")


@dataclass(frozen=True)
class _Uses:
    """Who uses which key, read once for a stack."""

    by_name: Mapping[tuple[str, str], list[Resource]]
    """Users by vault and name of a key, in small letters."""
    by_id: Mapping[str, list[Resource]]
    """Users by the id of whatever they name, in small letters."""
    by_urn: Mapping[str, list[Resource]]
    """Users by the key's URN, where what names the key isn't known yet."""


def _named(holder: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Keys that a block of settings names, as vault and name, in small letters."""
    vault = ""
    for value in holder.values():
        found = _ADDRESS.fullmatch(text(value))
        if found and found[2]:
            yield found[1].lower(), found[2].lower()
        elif found:
            vault = found[1].lower()
    name = text(holder.get("keyName"))
    if vault and name:
        yield vault, name.lower()


def _blocks(value: Any) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        yield value
        for each in value.values():
            yield from _blocks(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _blocks(each)


@remembered(2)
def _uses(stack: Stack) -> _Uses:
    by_name: dict[tuple[str, str], list[Resource]] = {}
    by_id: dict[str, list[Resource]] = {}
    by_urn: dict[str, list[Resource]] = {}
    for each in stack.resources:
        if each.package != "azure-native" or each.kind in _KEYS:
            continue
        for key in {key for block in _blocks(each.properties) for key in _named(block)}:
            by_name.setdefault(key, []).append(each)
        for path, value in leaves(each.properties):
            if isinstance(value, Unknown) and path:
                for urn in each.dependencies.get(str(path[0]), ()):
                    by_urn.setdefault(urn, []).append(each)
            elif text(value).startswith("/"):
                by_id.setdefault(text(value).lower(), []).append(each)
    return _Uses(by_name, by_id, by_urn)


def _users(resource: Resource, stack: Stack) -> list[Resource]:
    """The resources whose data a key or a disk encryption set encrypts."""
    uses = _uses(stack)
    found = list(uses.by_urn.get(resource.urn, ()))
    if resource.kind in _KEYS:
        name = text(resource.get("keyName")) or text(resource.outputs.get("name"))
        vault = text(resource.get("vaultName"))
        found += uses.by_name.get((vault.lower(), name.lower()), ())
    elif resource.id:
        found += uses.by_id.get(resource.id.lower(), ())
    return list({each.urn: each for each in found if each.urn != resource.urn}.values())


@rule(
    "encryption-azure-key-shared",
    "A key encrypts data of one class",
    Severity.MEDIUM,
    _KEYS | _SETS,
    (*_CONTROLS, "uae-ia:T1.3.x"),
    "Give each class of data a key, and a disk encryption set, of its own.",
)
def _shared(resource: Resource, view: View) -> Iterator[Finding]:
    """Roles and locks name keys too, but carry no class: only what has tags counts."""
    if view.stack is None:
        yield indeterminate("", "what uses the key is known only with the whole stack")
        return
    classes: dict[str, str] = {}
    for each in _users(resource, view.stack):
        if get(each.properties, "tags") is not ABSENT:
            classes.setdefault(view.data_class(each).strip().lower(), each.name)
    if len(classes) > 1:
        said = ", ".join(f"{name} ({classes[name]})" for name in sorted(classes))
        yield violation("", f"it encrypts data of several classes: {said}")


RULES: tuple[Rule, ...] = (_pinned, _shared)
