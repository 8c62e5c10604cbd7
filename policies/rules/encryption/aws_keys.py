"""KMS keys and certificates on AWS: keys rotate, serve one class of data, and are strong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Severity,
    Stack,
    View,
    get,
    indeterminate,
    is_true,
    number,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.remembered import remembered
from falaj.policies.rules.encryption.aws_at_rest import READERS
from falaj.policies.rules.encryption.aws_object_storage import COMPANIONS
from falaj.policies.rules.encryption.demands import parts_of

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.2")
_KEY: Final = "aws:kms/key:Key"
_ALIAS: Final = "aws:kms/alias:Alias"
_KEYS: Final = frozenset((_KEY, "aws:kms/externalKey:ExternalKey"))
#: Days between rotations, at most: KMS's own default.
_LONGEST_PERIOD: Final = 365


@rule(
    "encryption-aws-key-rotation",
    "KMS keys rotate every year",
    Severity.MEDIUM,
    {_KEY},
    (*_CONTROLS, "cis-aws:4.6"),
    "Set enableKeyRotation: true, and leave rotationPeriodInDays out or at 365 days at most.",
)
def key_rotation(resource: Resource, view: View) -> Iterator[Finding]:
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
        said = "isn't given, and is off by default" if turned is ABSENT else "is off"
        yield violation("enableKeyRotation", f"enableKeyRotation {said}; keys must rotate")
    elif isinstance(period, Unknown):
        yield indeterminate("rotationPeriodInDays", f"rotationPeriodInDays {period.reason}")
    elif (days := number(period)) is not None and days > _LONGEST_PERIOD:
        why = f"the key rotates every {days:g} days; {_LONGEST_PERIOD} at most are allowed"
        yield violation("rotationPeriodInDays", why)


def _tagged_class(resource: Resource, view: View) -> str:
    """The class of a resource that has tags at all; empty for others, which have none to carry."""
    if get(resource.properties, "tags") is ABSENT:
        return ""
    return view.data_class(resource).strip().lower()


def _keys_named(resource: Resource, path: str, view: View) -> list[Resource]:
    """The keys of the stack that a property names, through their aliases as well."""
    found: dict[str, Resource] = {}
    for each in view.referred(resource, path):
        keys = view.referred(each, "targetKeyId") if each.kind == _ALIAS else [each]
        found.update({key.urn: key for key in keys if key.kind in _KEYS})
    return list(found.values())


@remembered(2)
def _users(stack: Stack) -> Mapping[str, list[Resource]]:
    """Who encrypts with which key, by the key's URN."""
    view = View(stack=stack)
    found: dict[str, dict[str, Resource]] = {}
    for resource in stack.resources:
        if resource.kind not in READERS:
            continue
        owners = view.referred(resource, "bucket") if resource.kind in COMPANIONS else [resource]
        for part in parts_of(resource, view, READERS):
            keys = [] if part.elsewhere else _keys_named(resource, part.path, view)
            # A value made from several keys may be any of them: nothing is certain.
            if len(keys) == 1:
                found.setdefault(keys[0].urn, {}).update({each.urn: each for each in owners})
    return {urn: list(users.values()) for urn, users in found.items()}


@rule(
    "encryption-aws-key-shared",
    "A KMS key encrypts data of one class",
    Severity.MEDIUM,
    _KEYS,
    (*_CONTROLS, "uae-ia:T1.3.x"),
    "Give each class of data a key of its own, and tag key and data alike.",
)
def key_shared(resource: Resource, view: View) -> Iterator[Finding]:
    """Whoever may use a key for one class could otherwise read the other."""
    if view.stack is None:
        yield indeterminate("", "what uses the key is known only with the whole stack")
        return
    classes: dict[str, str] = {}
    for each in _users(view.stack).get(resource.urn, ()):
        if named := _tagged_class(each, view):
            classes.setdefault(named, each.name)
    if own := _tagged_class(resource, view) if classes else "":
        classes.setdefault(own, "the key itself")
    if len(classes) > 1:
        said = ", ".join(f"{name} ({classes[name]})" for name in sorted(classes))
        yield violation("", f"the key serves several classes of data: {said}")


@rule(
    "encryption-aws-certificate-strength",
    "Certificates on AWS have keys of 2048 bits or more",
    Severity.HIGH,
    {"aws:acm/certificate:Certificate", "aws:acmpca/certificateAuthority:CertificateAuthority"},
    ("iso27001:A.8.24", "uae-ia:T7.4.1"),
    "Use keyAlgorithm RSA_2048 or more, or a curve of 256 bits or more.",
)
def certificate_strength(resource: Resource, view: View) -> Iterator[Finding]:
    """RSA below 2048 bits is broken within reach (NIST SP 800-131A); by default it is 2048."""
    for path in ("keyAlgorithm", "certificateAuthorityConfiguration.keyAlgorithm"):
        value = get(resource.properties, path)
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
        elif (bits := re.fullmatch(r"rsa[_-]?(\d+)", scalar(value))) and int(bits[1]) < 2048:
            yield violation(path, f"{path} is {text(value)}; RSA keys need 2048 bits at least")


RULES: Final = (key_rotation, key_shared, certificate_strength)
