"""Whose key a property names: a customer's, the service's own, or one that nobody can see."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal

from falaj.policies.model import ABSENT, Resource, View, select, text
from falaj.policies.model.values import Unknown

State = Literal["customer key", "service key", "none", "unknown"]
KeyState = Literal["customer key", "service key", "unknown", "absent"]

#: Types that are a customer's key, or stand for one.
KEY_TYPES: Final = frozenset({
    "aws:kms/key:Key",
    "aws:kms/alias:Alias",
    "aws:kms/externalKey:ExternalKey",
    "aws:kms/replicaKey:ReplicaKey",
    "aws:kms/replicaExternalKey:ReplicaExternalKey",
    "azure-native:keyvault:Key",
    "azure-native:keyvault:ManagedHsm",
    "azure-native:keyvault:MHSMKey",
    "azure-native:compute:DiskEncryptionSet",
})  # fmt: skip
#: What services call keys of their own, in lower case: never a customer's.
_SERVICE_KEYS: Final = frozenset({
    "aes256", "sse-s3", "sse_s3", "default", "none", "aws_owned_kms_key", "aws_owned_key",
    "s3_managed_key",
})  # fmt: skip
#: AWS keeps every alias below ``aws/`` for keys that it manages; some services take the alias
#: without its ``alias/``. https://docs.aws.amazon.com/kms/latest/developerguide/kms-alias.html
_AWS_MANAGED: Final = re.compile(r"(^|alias)/?aws/", re.IGNORECASE)


def is_service_key(name: str) -> bool:
    """Whether a key's name is one that a service keeps for its own keys."""
    return name.lower() in _SERVICE_KEYS or bool(_AWS_MANAGED.search(name))


def read_key(
    resource: Resource, path: str, value: Any, view: View, by: Collection[str] = KEY_TYPES
) -> tuple[KeyState, str]:
    """Whose key a property names, and a clause that says how that is known.

    An unknown value is a customer's key where it was made from one of the same stack.

    Args:
        resource: whose property.
        path: of the property, as findings name it.
        value: what it holds.
        view: the whole stack, once it is known.
        by: types whose resources are a customer's key, or stand for one.
    """
    if isinstance(value, Unknown):
        if any(each.kind in by for each in view.referred(resource, path)):
            return "customer key", f"{path} is made from a resource of this stack"
        return "unknown", f"{path} {value.reason}, and is made from no key of this stack"
    named = text(value)
    if not named:
        return "absent", ""
    # A vault's keys may have any name.
    if resource.package.lower() == "aws" and is_service_key(named):
        return "service key", f"{path} is {named!r}, a key that the service manages"
    return "customer key", f"{path} names a key"


def first(block: Any, path: str) -> Any:
    """The first value at a path, through lists of any length; ABSENT where there is none."""
    return next((value for _, value in select(block, path)), ABSENT)


def where(block: Any, path: str, at: str = "") -> str:
    """A path as findings name it, with the index of every list on the way; empty for none."""
    if not path:
        return ""
    found = next((spelled for spelled, _ in select(block, path)), path)
    return f"{at}.{found}" if at and found else at or found
