"""Azure's objects: who reads them without signing in, and who signs in with a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    requirement_rule,
    rule,
    scalar,
    violation,
)
from falaj.policies.reading.types import azure

_ACCOUNT: Final = azure("storage:StorageAccount")
_CONTAINER: Final = azure("storage:BlobContainer")
_NO: Final = ("false",)

#: Accounts made since August 2023 allow no anonymous access by default, in any version of the API
#: (https://github.com/Azure/azure-cli/issues/27014), and a container without a word is private.
_anonymous = requirement_rule(
    "zero-trust-azure-anonymous-blobs",
    "Nobody reads blobs without signing in",
    Severity.CRITICAL,
    {
        _ACCOUNT: (Requirement("allowBlobPublicAccess", _NO),),
        _CONTAINER: (Requirement("publicAccess", ("None",)),),
    },
    ("cis-azure:9.3.2.2", "uae-ia:T5.2.2", "iso27001:A.8.3", "iso27001:A.8.12", "nist-800-207:6"),
    "Set publicAccess of the container to None and allowBlobPublicAccess of the account to false.",
)

_local_users = requirement_rule(
    "zero-trust-azure-storage-local-users",
    "Storage accounts have no users of their own",
    Severity.MEDIUM,
    {
        _ACCOUNT: (Requirement("isLocalUserEnabled", _NO), Requirement("isSftpEnabled", _NO)),
        azure("storage:LocalUser"): (
            Requirement("hasSshPassword", _NO),
            Requirement("hasSharedKey", _NO),
        ),
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Set isLocalUserEnabled and isSftpEnabled to false, and give people and services roles.",
)


@rule(
    "zero-trust-azure-static-website",
    "Storage accounts publish no websites",
    Severity.HIGH,
    azure("storage:StorageAccountStaticWebsite"),
    ("uae-ia:T4.5.3", "iso27001:A.8.3", "iso27001:A.8.12", "nist-800-207:6"),
    "Serve pages from an app that checks who calls it, behind a gateway.",
)
def static_website(resource: Resource, view: View) -> Iterator[Finding]:
    """What is in the container ``$web`` is anybody's to read, whatever the account says about
    anonymous access: https://learn.microsoft.com/azure/storage/blobs/storage-blob-static-website.
    An account that is closed to the Internet shows it to its network only.
    """
    if view.stack is None:
        yield indeterminate("accountName", "whether the account is closed isn't known yet")
        return
    accounts = [each for each in view.referred(resource, "accountName") if each.kind in _ACCOUNT]
    if not accounts or any(
        scalar(each.get("publicNetworkAccess")) != "disabled" for each in accounts
    ):
        yield violation("accountName", "everything in the container $web is published")


RULES: tuple[Rule, ...] = (_anonymous, _local_users, static_website)
