"""Microsoft.KeyVault: vaults, keys, secrets and managed HSMs, and what services ask of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    equals,
    is_on,
    one_of,
    refused,
    texts,
)
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


def vault_address(path: str, uri: str | None) -> Iterator[Problem]:
    """Problems of the address of a vault."""
    if uri and parse(uri) is None:
        yield Problem(
            path,
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )


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
    if region and (place := resources.region_of(holder)) and place != region:
        yield Problem(
            path,
            f"the key's vault is in {place}, this resource in {region}; they must "
            "be in the same region",
        )
    made = resources.by_id(resource.world, f"{holder.id}/keys/{name}") if name else None
    allowed = (
        [text for _, text in Inputs(made.inputs).strings("properties.keyOps")] if made else []
    )
    if allowed and not {"wrapKey", "unwrapKey"} <= set(allowed):
        # Source: security/fundamentals/encryption-models: services wrap their own keys.
        yield Problem(
            path,
            f"the key {name!r} may {', '.join(allowed)} only; encryption needs wrapKey and "
            "unwrapKey among properties.keyOps",
        )
    properties = Inputs(holder.inputs)
    if needs_purge_protection and properties.at("properties.enablePurgeProtection") is not True:
        yield Problem(
            path,
            f"the vault {found.vault!r} has no purge protection, which encryption "
            "with its keys needs; set properties.enablePurgeProtection",
        )


def _has_key(world: World, holder: Made, name: str) -> bool:
    return resources.by_id(world, f"{holder.id}/keys/{name}") is not None


# Source: key-vault/keys/about-keys (key types, sizes and curves).
_RSA_SIZES: Final = (2048, 3072, 4096)
# Source: key-vault/keys/how-to-configure-key-rotation: ISO 8601 durations, 28 days at least for
# the expiry, a rotation at least 7 days after creation and before the expiry.
_DURATION: Final = re.compile(r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?")


def days(duration: str) -> int | None:
    """The days of an ISO 8601 duration of years, months and days; None when it is none."""
    matched = _DURATION.fullmatch(duration)
    if matched is None or not any(matched.groups()):
        return None
    years, months, rest = (int(part or 0) for part in matched.groups())
    return years * 365 + months * 30 + rest


def _vault_problems(inputs: Inputs) -> Iterator[Problem]:
    policies = inputs.items("properties.accessPolicies")
    if len(policies) > 1024:
        yield Problem(
            "properties.accessPolicies", f"{len(policies)} are given; at most 1024 are allowed"
        )
    if policies and inputs.flag("properties.enableRbacAuthorization"):
        yield Problem(
            "properties.accessPolicies",
            "are ignored with enableRbacAuthorization; leave them out and assign roles",
        )
    if (
        inputs.is_absent("properties.accessPolicies")
        and inputs.at("properties.enableRbacAuthorization") in (None, False)
        and inputs.optional_string("properties.createMode") != "recover"
    ):
        yield Problem(
            "properties.accessPolicies",
            "is missing: without enableRbacAuthorization a "
            "vault needs a list of policies, which may be empty",
        )
    yield from _network("properties.networkAcls", inputs)


def _network(path: str, inputs: Inputs) -> Iterator[Problem]:
    for where, _ in inputs.items(f"{path}.ipRules"):
        text = inputs.optional_string(f"{where}.value")
        if text and "/" in text:
            yield from checks.cidr(f"{where}.value", text)
    for where, _ in inputs.items(f"{path}.virtualNetworkRules"):
        yield from checks.resource_id(
            f"{where}.id",
            inputs.optional_string(f"{where}.id"),
            "Microsoft.Network/virtualNetworks/subnets",
        )


def _key_problems(inputs: Inputs) -> Iterator[Problem]:
    kind = inputs.optional_string("properties.kty")
    size, curve = inputs.number("properties.keySize"), inputs.at("properties.curveName")
    is_rsa = kind is not None and kind.startswith("RSA")
    if kind is None and inputs.is_absent("properties.kty"):
        yield Problem("properties.kty", "is missing: name the type, such as RSA or RSA-HSM")
    if size is not None and kind is not None and not is_rsa:
        yield Problem("properties.keySize", f"goes with RSA keys only; given is {kind}")
    if curve is not None and is_rsa:
        yield Problem("properties.curveName", f"goes with EC keys only; given is {kind}")


def _rotation(inputs: Inputs) -> Iterator[Problem]:
    base = "properties.rotationPolicy"
    expiry = inputs.optional_string(f"{base}.attributes.expiryTime")
    lifetime = days(expiry) if expiry else None
    if expiry and lifetime is None:
        yield Problem(
            f"{base}.attributes.expiryTime", f"{expiry!r} isn't a duration such as P2Y or P730D"
        )
    if lifetime is not None and lifetime < 28:
        yield Problem(
            f"{base}.attributes.expiryTime", f"{expiry} is less than 28 days; choose a longer time"
        )
    for path, _ in inputs.items(f"{base}.lifetimeActions"):
        after = inputs.optional_string(f"{path}.trigger.timeAfterCreate")
        before = inputs.optional_string(f"{path}.trigger.timeBeforeExpiry")
        if inputs.is_given(f"{path}.trigger.timeAfterCreate") and inputs.is_given(
            f"{path}.trigger.timeBeforeExpiry"
        ):
            yield Problem(
                f"{path}.trigger",
                "gives both timeAfterCreate and timeBeforeExpiry; give one of them",
            )
        for name, text in (("timeAfterCreate", after), ("timeBeforeExpiry", before)):
            if text is None:
                continue
            length = days(text)
            where = f"{path}.trigger.{name}"
            if length is None:
                yield Problem(where, f"{text!r} isn't a duration such as P90D")
            elif length < 7:
                yield Problem(where, f"{text} is less than 7 days; choose a longer time")
            elif lifetime is not None and length > lifetime - 7:
                yield Problem(
                    where, f"{text} must be at least 7 days shorter than the expiry {expiry}"
                )


def _hsm_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from _network("properties.networkAcls", inputs)


def _secret_problems(inputs: Inputs) -> Iterator[Problem]:
    value = inputs.optional_string("properties.value")
    # Source: key-vault/secrets/about-secrets: 25 KB at most.
    if value is not None and len(value.encode()) > 25 * 1024:
        yield Problem(
            "properties.value", f"has {len(value.encode())} bytes; at most 25600 are allowed"
        )


def _key_conflicts(resource: Resource) -> Iterator[Problem]:
    from_hsm = (resource.optional_string("properties.kty") or "").endswith("-HSM")
    if not from_hsm:
        return
    for made in resource.world.all(VAULT):
        holder = Inputs(made.inputs)
        own = resource.id.lower().startswith(made.id.lower() + "/")
        if own and holder.optional_string("properties.sku.name") == "standard":
            yield Problem(
                "properties.kty",
                "keys in an HSM need a vault of the SKU premium; this one is standard",
            )


#: What no update changes of a key that exists. Sources: github.com/Azure/bicep/issues/8283, 6113.
_FIXED: Final = ("tags", "properties.attributes", "properties.keyOps")


def _changed(key: Resource) -> Iterator[Problem]:
    made = resources.by_id(key.world, key.id)
    before = Inputs(made.inputs) if made else None
    for path in _FIXED if before else ():
        if before is not None and before.at(path) != key.at(path):
            yield Problem(
                path,
                "KeyCreationParametersDidNotMatchExistingKey: Resource Manager changes this of no "
                "key that exists; name it in ignore_changes, and change it at the vault's own "
                "address",
            )


_ACLS: Final = "properties.networkAcls"


def _is_off(holder: Inputs) -> bool:
    return holder.optional_string("properties.publicNetworkAccess") == "Disabled"


def is_closed(vault: Made) -> bool:
    """Whether the firewall of a vault or HSM lets in no address that it doesn't name."""
    holder = Inputs(vault.inputs)
    return _is_off(holder) or holder.optional_string(f"{_ACLS}.defaultAction") == "Deny"


def trusts_services(vault: Made) -> bool:
    """Whether it lets services past its firewall that Azure vouches for, as it does by default."""
    return Inputs(vault.inputs).optional_string(f"{_ACLS}.bypass") != "None"


def _lets_some_in(vault: Made) -> bool:
    holder = Inputs(vault.inputs)
    named = holder.items(f"{_ACLS}.ipRules") or holder.items(f"{_ACLS}.virtualNetworkRules")
    return bool(named) and not _is_off(holder)


def _closed(item: Resource) -> Iterator[Problem]:
    """Keys and secrets are deleted at the vault's own address: Resource Manager has no verb.

    What is made by Resource Manager needs no way to that address, so that only this is refused.
    Sources: github.com/Azure/azure-rest-api-specs/pull/10643; pulumi-azure-native,
    provider/pkg/resources/customresources/custom_keyvault.go; for the message
    github.com/microsoft/multimodal-ai/issues/171.
    """
    for made in item.world.all(VAULT):
        if naming.is_below(item.id, made.id) and is_closed(made) and not _lets_some_in(made):
            yield Problem(
                "",
                "ForbiddenByConnection: it is deleted at the vault's own address, and the vault "
                f"{_host(item)!r} is closed to the network; declare it with retain_on_delete: it "
                "goes with its vault",
            )


def _host(resource: Resource) -> str:
    return resource.id.split("/vaults/")[-1].split("/")[0].lower()


def _vault_outputs(resource: Resource) -> dict[str, Any]:
    properties = resource.mapping("properties")
    defaults = {
        "enableSoftDelete": True,
        "softDeleteRetentionInDays": 90,
        "enableRbacAuthorization": False,
        "publicNetworkAccess": "Enabled",
        "vaultUri": f"https://{_host(resource)}.vault.azure.net/",
        "provisioningState": "Succeeded",
        "hsmPoolResourceId": "",
    }
    return {"properties": {**defaults, **properties}}


def _key_outputs(resource: Resource) -> dict[str, Any]:
    name = resource.id.rpartition("/")[2]
    uri = f"https://{_host(resource)}.vault.azure.net/keys/{name}"
    kind = resource.optional_string("properties.kty") or "RSA"
    found: dict[str, Any] = {
        "keyUri": uri,
        "keyUriWithVersion": f"{uri}/{naming.digest(32, 'version', resource.id)}",
        "kty": kind,
        "attributes": {
            "enabled": resource.at("properties.attributes.enabled") is not False,
            "created": 1767225600,
            "updated": 1767225600,
            "recoveryLevel": "Recoverable",
            "exportable": bool(resource.flag("properties.attributes.exportable")),
        },
        "keyOps": resource.get(
            "properties.keyOps", ["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"]
        ),
        "rotationPolicy": _policy(resource),
    }
    if kind.startswith("RSA"):
        found["keySize"] = resource.number("properties.keySize") or 2048
    else:
        found["curveName"] = resource.optional_string("properties.curveName") or "P-256"
    return found


def _policy(key: Resource) -> Any:
    """The rotation policy that a key was made with: another one is taken and not written.

    Source: github.com/Azure/azure-service-operator/issues/3188.
    """
    made = resources.by_id(key.world, key.id)
    return (
        key.at("properties.rotationPolicy") if made is None else made.outputs.get("rotationPolicy")
    )


def _secret_outputs(resource: Resource) -> dict[str, Any]:
    name = resource.id.rpartition("/")[2]
    uri = f"https://{_host(resource)}.vault.azure.net/secrets/{name}"
    properties = resource.mapping("properties")
    version = naming.digest(32, "version", resource.id)
    return {
        "properties": {**properties, "secretUri": uri, "secretUriWithVersion": f"{uri}/{version}"}
    }


def _hsm_outputs(resource: Resource) -> dict[str, Any]:
    properties = resource.mapping("properties")
    name = resource.id.rpartition("/")[2].lower()
    return {
        "properties": {
            **properties,
            "hsmUri": f"https://{name}.managedhsm.azure.net/",
            "provisioningState": "Succeeded",
            "securityDomainProperties": {"activationStatus": "NotActivated"},
        }
    }


KINDS: Final = (
    AzureKind(
        VAULT,
        "Microsoft.KeyVault/vaults/{vaultName}",
        name=kinds.VAULT,
        is_global_name=True,
        max_tags=15,
        # Source: key-vault/general/soft-delete-overview: with a vault all that it holds.
        takes_along=True,
        replaces=("properties.tenantId",),
        rules=(
            texts("properties.tenantId", checks.guid),
            refused(
                "properties.enablePurgeProtection",
                "false isn't allowed: protection is "
                "either on for good or not mentioned; leave it out or set it to true",
                equals("properties.enablePurgeProtection", False),
            ),
            refused(
                "properties.enableSoftDelete", "false isn't allowed for new vaults; leave it out",
                equals("properties.enableSoftDelete", False),
            ),
            between("properties.softDeleteRetentionInDays", 7, 90, "days"),
            _vault_problems,
        ),
        computed=_vault_outputs,
    ),
    AzureKind(
        KEY,
        "Microsoft.KeyVault/vaults/{vaultName}/keys/{keyName}",
        name=kinds.VAULT_ITEM,
        max_tags=15,
        replaces=("properties.kty", "properties.keySize", "properties.curveName"),
        rules=(
            one_of("properties.keySize", _RSA_SIZES),
            refused(
                "properties.releasePolicy",
                "is missing: an exportable key needs a policy of who may get it",
                all_of(
                    is_on("properties.attributes.exportable"), absent("properties.releasePolicy"),
                ),
            ),
            _rotation,
            _key_problems,
        ),
        crosschecks=(_key_conflicts, _changed),
        delete_blockers=(_closed,),
        computed=_key_outputs,
    ),
    AzureKind(
        "azure-native:keyvault:Secret",
        "Microsoft.KeyVault/vaults/{vaultName}/secrets/{secretName}",
        name=kinds.VAULT_ITEM,
        max_tags=15,
        rules=(_secret_problems,),
        delete_blockers=(_closed,),
        computed=_secret_outputs,
    ),
    AzureKind(
        HSM,
        "Microsoft.KeyVault/managedHSMs/{name}",
        name=kinds.VAULT,
        is_global_name=True,
        takes_along=True,
        replaces=("properties.tenantId", "properties.initialAdminObjectIds"),
        rules=(
            texts("properties.tenantId", checks.guid),
            refused(
                "properties.initialAdminObjectIds",
                "is missing: name who administers the HSM first",
                absent("properties.initialAdminObjectIds[0]"),
            ),
            texts("properties.initialAdminObjectIds[]", checks.guid),
            between("properties.softDeleteRetentionInDays", 7, 90, "days"),
            _hsm_problems,
        ),
        computed=_hsm_outputs,
    ),
    AzureKind(
        "azure-native:keyvault:PrivateEndpointConnection",
        "Microsoft.KeyVault/vaults/{vaultName}/privateEndpointConnections/"
        "{privateEndpointConnectionName}",
    ),
    AzureKind(
        "azure-native:keyvault:MHSMPrivateEndpointConnection",
        "Microsoft.KeyVault/managedHSMs/{name}/privateEndpointConnections/"
        "{privateEndpointConnectionName}",
    ),
)  # fmt: skip
