"""Azure: keys of Key Vault are strong, rotate, expire, and can't be lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_false,
    is_true,
    number,
    requirement_rule,
    rule,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2", "uae-ia:T7.4.1")
_KEYS: Final = azure("keyvault:Key")
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
    _KEYS,
    _CONTROLS,
    "Give the key a `rotationPolicy` with a lifetime action of type `rotate` that is triggered "
    "within two years.",
)
def _rotation(resource: Resource, view: View) -> Iterator[Finding]:
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
    _KEYS,
    _CONTROLS,
    "Set `properties.rotationPolicy.attributes.expiryTime`, which every version then gets, or "
    "`properties.attributes.expires`.",
)
def _expiry(resource: Resource, view: View) -> Iterator[Finding]:
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
def _secret_expiry(resource: Resource, view: View) -> Iterator[Finding]:
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
    _KEYS,
    _CONTROLS,
    "Use RSA with 2048 bits or more, or the curves P-256, P-384 or P-521; leave "
    "`attributes.exportable` off.",
)
def _strength(resource: Resource, view: View) -> Iterator[Finding]:
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
    _KEYS,
    _CONTROLS,
    "Use the key type RSA-HSM or EC-HSM in a vault of the premium kind, or a managed HSM.",
)
def _hsm(resource: Resource, view: View) -> Iterator[Finding]:
    if view.data_class(resource).strip().lower() in {"public", "internal", "confidential"}:
        return
    kind = resource.get("properties.kty")
    if isinstance(kind, Unknown):
        yield indeterminate("properties.kty", f"properties.kty {kind.reason}")
    elif not text(kind).upper().endswith("-HSM"):
        said = text(kind) or "not given, and by default in software"
        yield violation("properties.kty", f"the key's type is {said}; RSA-HSM is allowed")


@rule(
    "encryption-azure-vault-protection",
    "Vaults of keys can't be purged",
    Severity.HIGH,
    _VAULTS | _HSMS,
    (*_CONTROLS, "iso27001:A.8.10"),
    "Set `properties.enablePurgeProtection` to true and leave `enableSoftDelete` on; without a "
    "key, all that it encrypts is lost.",
)
def _protection(resource: Resource, view: View) -> Iterator[Finding]:
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
                "rotationToLatestKeyVersionEnabled", ("true",), "false",
                each="encryption.entities.managedDisk",
            ),
        ),
    },
    _CONTROLS,
    "Turn `rotationToLatestKeyVersionEnabled` on, so that data moves to the new version.",
)  # fmt: skip


RULES: tuple[Rule, ...] = (
    _rotation, _expiry, _secret_expiry, _strength, _hsm, _protection, _FOLLOW,
)  # fmt: skip
