"""Keys, secrets and certificates: they rotate, expire, are strong and serve one purpose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    Stack,
    get,
    indeterminate,
    is_false,
    is_list,
    is_true,
    leaves,
    number,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.model.resource import remembered
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.tags import purpose
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.at_rest import AWS_READERS as READERS
from falaj.policies.rules.encryption.aws_readers import COMPANIONS
from falaj.policies.rules.encryption.stores import parts_of
from falaj.wire.documents import is_mapping

# KMS keys and certificates on AWS: keys rotate, serve one class of data, and are strong.

_AWS_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2")
_KEY: Final = "aws:kms/key:Key"
_ALIAS: Final = "aws:kms/alias:Alias"
_AWS_KEYS: Final = frozenset((_KEY, "aws:kms/externalKey:ExternalKey"))
#: Days between rotations, at most: KMS's own default.
_LONGEST_PERIOD: Final = 365


@rule(
    "encryption-aws-key-rotation",
    "KMS keys rotate every year",
    Severity.MEDIUM,
    {_KEY},
    (*_AWS_CONTROLS, "cis-aws:4.6"),
    "Set enableKeyRotation: true, and leave rotationPeriodInDays out or at 365 days at most.",
)
def key_rotation(resource: Resource, context: Context) -> Iterator[Finding]:
    """Keys that KMS can rotate do: symmetric ones for encryption, made in KMS itself.

    https://docs.aws.amazon.com/kms/latest/developerguide/rotate-keys.html
    """
    spec = get(resource.properties, "customerMasterKeySpec")
    usage = get(resource.properties, "keyUsage")
    kept = (get(resource.properties, each) for each in ("customKeyStoreId", "xksKeyId"))
    if text(spec).upper() not in {"", "SYMMETRIC_DEFAULT"}:
        return
    if text(usage).upper() not in {"", "ENCRYPT_DECRYPT"} or any(text(each) for each in kept):
        return
    turned = get(resource.properties, "enableKeyRotation")
    period = get(resource.properties, "rotationPeriodInDays")
    if isinstance(turned, Unknown):
        yield indeterminate("enableKeyRotation", f"enableKeyRotation {turned.reason}")
    elif not is_true(turned):
        state = "isn't given, and is off by default" if turned is ABSENT else "is off"
        yield violation("enableKeyRotation", f"enableKeyRotation {state}; keys must rotate")
    elif isinstance(period, Unknown):
        yield indeterminate("rotationPeriodInDays", f"rotationPeriodInDays {period.reason}")
    elif (days := number(period)) is not None and days > _LONGEST_PERIOD:
        why = f"the key rotates every {days:g} days; {_LONGEST_PERIOD} at most are allowed"
        yield violation("rotationPeriodInDays", why)


def _tagged_class(resource: Resource, context: Context) -> str:
    """The class of a resource that has tags at all; empty for others, which have none to carry."""
    if get(resource.properties, "tags") is ABSENT:
        return ""
    return context.data_class(resource).strip().lower()


def _keys_named(resource: Resource, path: str, context: Context) -> list[Resource]:
    """The keys of the stack that a property names, through their aliases as well."""
    found: dict[str, Resource] = {}
    for each in context.referred(resource, path):
        keys = context.referred(each, "targetKeyId") if each.kind == _ALIAS else [each]
        found.update({key.urn: key for key in keys if key.kind in _AWS_KEYS})
    return list(found.values())


@remembered(2)
def _aws_users(stack: Stack) -> Mapping[str, list[Resource]]:
    """Who encrypts with which key, by the key's URN."""
    context = Context(stack=stack)
    found: dict[str, dict[str, Resource]] = {}
    for resource in stack.resources:
        if resource.kind not in READERS:
            continue
        owners = (
            context.referred(resource, "bucket") if resource.kind in COMPANIONS else [resource]
        )
        for part in parts_of(resource, context, READERS):
            keys = [] if part.elsewhere else _keys_named(resource, part.path, context)
            # A value made from several keys may be any of them: nothing is certain.
            if len(keys) == 1:
                found.setdefault(keys[0].urn, {}).update({each.urn: each for each in owners})
    return {urn: list(users.values()) for urn, users in found.items()}


@rule(
    "encryption-aws-key-shared",
    "A KMS key encrypts data of one class",
    Severity.MEDIUM,
    _AWS_KEYS,
    (*_AWS_CONTROLS, "uae-ia:T1.3.x"),
    "Give each class of data a key of its own, and tag key and data alike.",
)
def key_shared(resource: Resource, context: Context) -> Iterator[Finding]:
    """Whoever may use a key for one class could otherwise read the other."""
    if context.stack is None:
        yield indeterminate("", "what uses the key is known only with the whole stack")
        return
    classes: dict[str, str] = {}
    for each in _aws_users(context.stack).get(resource.urn, ()):
        if named := _tagged_class(each, context):
            classes.setdefault(named, each.name)
    if own := _tagged_class(resource, context) if classes else "":
        classes.setdefault(own, "the key itself")
    if len(classes) > 1:
        listed = ", ".join(f"{name} ({classes[name]})" for name in sorted(classes))
        yield violation("", f"the key serves several classes of data: {listed}")


@rule(
    "encryption-aws-certificate-strength",
    "Certificates on AWS have keys of 2048 bits or more",
    Severity.HIGH,
    {"aws:acm/certificate:Certificate", "aws:acmpca/certificateAuthority:CertificateAuthority"},
    ("iso27001:A.8.24", "uae-ia:T7.4.1"),
    "Use keyAlgorithm RSA_2048 or more, or a curve of 256 bits or more.",
)
def certificate_strength(resource: Resource, context: Context) -> Iterator[Finding]:
    """RSA below 2048 bits is broken within reach (NIST SP 800-131A); by default it is 2048."""
    for path in ("keyAlgorithm", "certificateAuthorityConfiguration.keyAlgorithm"):
        value = get(resource.properties, path)
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
        elif (bits := re.fullmatch(r"rsa[_-]?(\d+)", scalar(value))) and int(bits[1]) < 2048:
            yield violation(path, f"{path} is {text(value)}; RSA keys need 2048 bits at least")


# Azure: keys of Key Vault are strong, rotate, expire, and can't be lost.

_AZURE_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2", "uae-ia:T7.4.1")
_AZURE_KEYS: Final = azure("keyvault:Key")
_VAULTS: Final = azure("keyvault:Vault")
_HSMS: Final = azure("keyvault:ManagedHsm")
_DURATION: Final = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d).*)?", re.IGNORECASE
)
#: A key that encrypts data of storage is used for two years at the longest: NIST SP 800-57 part 1
#: revision 5, table 1.
_LONGEST_DAYS: Final = 731


def days(duration: object) -> float | None:
    """An ISO 8601 duration in days, a month as 30.5 and a year as 365; None for what isn't one."""
    found = _DURATION.fullmatch(text(duration))
    if found is None or len(text(duration)) < 3:
        return None
    counts = [int(each[:9]) if each else 0 for each in found.groups()]
    return counts[0] * 365 + counts[1] * 30.5 + counts[2] * 7 + counts[3]


@rule(
    "encryption-azure-key-rotation",
    "Keys rotate by themselves, every two years or sooner",
    Severity.MEDIUM,
    _AZURE_KEYS,
    _AZURE_CONTROLS,
    "Give the key a `rotationPolicy` with a lifetime action of type `rotate` that is triggered "
    "within two years.",
)
def _rotation(resource: Resource, context: Context) -> Iterator[Finding]:
    path = "properties.rotationPolicy.lifetimeActions"
    actions = resource.get(path)
    if isinstance(actions, Unknown):
        yield indeterminate(path, f"{path} {actions.reason}")
        return
    hidden = ""
    for at, action in entries(actions, path):
        kind = get(action, "action.type")
        if isinstance(kind, Unknown):
            hidden = f"{at}.action.type {kind.reason}"
        elif text(kind).lower() == "rotate":
            yield from _in_time(resource, action, at)
            return
    if hidden:
        yield indeterminate(path, hidden)
    else:
        yield violation(path, "no lifetime action rotates the key; by default it never rotates")


def _in_time(resource: Resource, action: Any, at: str) -> Iterator[Finding]:
    after = get(action, "trigger.timeAfterCreate")
    before = get(action, "trigger.timeBeforeExpiry")
    expiry = resource.get("properties.rotationPolicy.attributes.expiryTime")
    for path, value in (
        (f"{at}.trigger.timeAfterCreate", after),
        (f"{at}.trigger.timeBeforeExpiry", before),
        ("properties.rotationPolicy.attributes.expiryTime", expiry),
    ):
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
            return
    period = days(after) if after is not ABSENT else days(expiry) if text(before) else None
    if period is None:
        yield violation(f"{at}.trigger", "nothing says when the key rotates")
    elif period > _LONGEST_DAYS:
        yield violation(
            f"{at}.trigger", f"the key rotates after {period:.0f} days; two years are allowed"
        )


@rule(
    "encryption-azure-key-expiry",
    "Keys expire",
    Severity.LOW,
    _AZURE_KEYS,
    _AZURE_CONTROLS,
    "Set `properties.rotationPolicy.attributes.expiryTime`, which every version then gets, or "
    "`properties.attributes.expires`.",
)
def _expiry(resource: Resource, context: Context) -> Iterator[Finding]:
    """Not keys whose tag says that a cluster's secrets are encrypted with them.

    AKS stays with a version until it is given the next, and its API server stops where a version
    expired that it uses: https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption
    """
    if purpose(resource) == "cluster":
        return
    found = [
        (path, resource.get(path))
        for path in (
            "properties.rotationPolicy.attributes.expiryTime",
            "properties.attributes.expires",
        )
    ]
    if any(text(value) or number(value) for _, value in found):
        return
    for path, value in found:
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
            return
    yield violation(found[0][0], "no expiry is given, so the key's versions last forever")


_SECRETS: Final = azure("keyvault:Secret")


@rule(
    "encryption-azure-secret-expiry",
    "Secrets expire",
    Severity.LOW,
    _SECRETS,
    ("iso27001:A.5.17", "iso27001:A.8.24", "uae-ia:T7.4.2"),
    "Set `properties.attributes.expires`, and renew the secret before.",
)
def _secret_expiry(resource: Resource, context: Context) -> Iterator[Finding]:
    path = "properties.attributes.expires"
    value = resource.get(path)
    if isinstance(value, Unknown):
        yield indeterminate(path, f"{path} {value.reason}")
    elif not number(value):
        yield violation(path, "no expiry is given, so the secret lasts forever")


@rule(
    "encryption-azure-key-strength",
    "Keys have 2048 bits or a curve of NIST's, and never leave their vault",
    Severity.HIGH,
    _AZURE_KEYS,
    _AZURE_CONTROLS,
    "Use RSA with 2048 bits or more, or the curves P-256, P-384 or P-521; leave "
    "`attributes.exportable` off.",
)
def _strength(resource: Resource, context: Context) -> Iterator[Finding]:
    size = resource.get("properties.keySize")
    curve = resource.get("properties.curveName")
    exportable = resource.get("properties.attributes.exportable")
    for path, value in (
        ("properties.keySize", size),
        ("properties.curveName", curve),
        ("properties.attributes.exportable", exportable),
    ):
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
    bits = number(size)
    if (
        bits is not None
        and bits < 2048
        and not text(resource.get("properties.kty")).startswith("EC")
    ):
        yield violation(
            "properties.keySize", f"the key has {bits:g} bits; 2048 are the least allowed"
        )
    if text(curve).upper() == "P-256K":
        yield violation("properties.curveName", "P-256K is no curve of NIST's")
    if is_true(exportable):
        yield violation("properties.attributes.exportable", "the private key may be exported")


@rule(
    "encryption-azure-key-hsm",
    "Keys of restricted data are in a hardware security module",
    Severity.HIGH,
    _AZURE_KEYS,
    _AZURE_CONTROLS,
    "Use the key type RSA-HSM or EC-HSM in a vault of the premium kind, or a managed HSM.",
)
def _hsm(resource: Resource, context: Context) -> Iterator[Finding]:
    if not context.is_restricted(resource):
        return
    kind = resource.get("properties.kty")
    if isinstance(kind, Unknown):
        yield indeterminate("properties.kty", f"properties.kty {kind.reason}")
    elif not text(kind).upper().endswith("-HSM"):
        key_type = text(kind) or "not given, and by default in software"
        yield violation("properties.kty", f"the key's type is {key_type}; RSA-HSM is allowed")


@rule(
    "encryption-azure-vault-protection",
    "Vaults of keys can't be purged",
    Severity.HIGH,
    _VAULTS | _HSMS,
    (*_AZURE_CONTROLS, "iso27001:A.8.10"),
    "Set `properties.enablePurgeProtection` to true and leave `enableSoftDelete` on; without a "
    "key, all that it encrypts is lost.",
)
def _protection(resource: Resource, context: Context) -> Iterator[Finding]:
    """A managed HSM is protected unless it says otherwise, a vault only where it says so."""
    path = "properties.enablePurgeProtection"
    purge = resource.get(path)
    if isinstance(purge, Unknown):
        yield indeterminate(path, f"{path} {purge.reason}")
    elif is_false(purge) or (resource.kind in _VAULTS and not is_true(purge)):
        given = "is false" if is_false(purge) else "isn't given, and by default it is off"
        yield violation(path, f"{path} {given}; keys could be lost for good")
    soft = resource.get("properties.enableSoftDelete")
    if isinstance(soft, Unknown):
        yield indeterminate("properties.enableSoftDelete", f"enableSoftDelete {soft.reason}")
    elif is_false(soft):
        yield violation("properties.enableSoftDelete", "deleted keys are gone at once")


_FOLLOW: Final = requirement_rule(
    "encryption-azure-key-followed",
    "What names a key's version follows the key when it rotates",
    Severity.MEDIUM,
    {
        azure("compute:DiskEncryptionSet"): (
            Requirement("rotationToLatestKeyVersionEnabled", ("true",), "false"),
        ),
        azure("storagecache:Cache"): (
            Requirement(
                "rotationToLatestKeyVersionEnabled", ("true",), "false", each="encryptionSettings"
            ),
        ),
        azure("databricks:Workspace"): (
            Requirement(
                "rotationToLatestKeyVersionEnabled",
                ("true",),
                "false",
                each="encryption.entities.managedDisk",
            ),
        ),
    },
    _AZURE_CONTROLS,
    "Turn `rotationToLatestKeyVersionEnabled` on, so that data moves to the new version.",
)


# Azure: how resources use keys of Key Vault: which version, and for which classes of data.

_USES_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2")
_USES_KEYS: Final = azure("keyvault:Key")
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
    _USES_CONTROLS,
    "Leave the version out (the key's `keyUri` instead of `keyUriWithVersion`), so that data "
    "moves to each new version.",
)
def _pinned(resource: Resource, context: Context) -> Iterator[Finding]:
    """An address that isn't known yet is fine where a key of the stack is its source: which of
    the key's two addresses it is, only the deployed stack can show."""
    for path, value in select(resource.properties, _FOLLOWING.get(resource.kind, "-")):
        if isinstance(value, Unknown):
            if not any(each.kind in _USES_KEYS for each in context.referred(resource, path)):
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


def _blocks(value: Any) -> Iterator[Mapping[str, Any]]:
    if is_mapping(value):
        yield value
        for each in value.values():
            yield from _blocks(each)
    elif is_list(value):
        for each in value:
            yield from _blocks(each)


@remembered(2)
def _uses(stack: Stack) -> _Uses:
    by_name: dict[tuple[str, str], list[Resource]] = {}
    by_id: dict[str, list[Resource]] = {}
    by_urn: dict[str, list[Resource]] = {}
    for each in stack.resources:
        if each.package != "azure-native" or each.kind in _USES_KEYS:
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


def _uses_users(resource: Resource, stack: Stack) -> list[Resource]:
    """The resources whose data a key or a disk encryption set encrypts."""
    uses = _uses(stack)
    found = list(uses.by_urn.get(resource.urn, ()))
    if resource.kind in _USES_KEYS:
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
    _USES_KEYS | _SETS,
    (*_USES_CONTROLS, "uae-ia:T1.3.x"),
    "Give each class of data a key, and a disk encryption set, of its own.",
)
def _shared(resource: Resource, context: Context) -> Iterator[Finding]:
    """Roles and locks name keys too, but carry no class: only what has tags counts."""
    if context.stack is None:
        yield indeterminate("", "what uses the key is known only with the whole stack")
        return
    classes: dict[str, str] = {}
    for each in _uses_users(resource, context.stack):
        if get(each.properties, "tags") is not ABSENT:
            classes.setdefault(context.data_class(each).strip().lower(), each.name)
    if len(classes) > 1:
        listed = ", ".join(f"{name} ({classes[name]})" for name in sorted(classes))
        yield violation("", f"it encrypts data of several classes: {listed}")


RULES: tuple[Rule, ...] = (
    key_rotation,
    key_shared,
    certificate_strength,
    _rotation,
    _expiry,
    _secret_expiry,
    _strength,
    _hsm,
    _protection,
    _FOLLOW,
    _pinned,
    _shared,
)
