"""Azure's objects: who reads them without signing in, and who signs in with a password."""

from __future__ import annotations

from typing import Final

from policies.model import Rule, Severity
from policies.reading.azure_types import azure
from policies.reading.demands import Demand, demanding

_ACCOUNT: Final = azure("storage:StorageAccount")
_CONTAINER: Final = azure("storage:BlobContainer")
_NO: Final = ("false",)

#: Accounts made since August 2023 allow no anonymous access by default, in any version of the API
#: (https://github.com/Azure/azure-cli/issues/27014), and a container without a word is private.
_anonymous = demanding(
    "zero-trust-azure-anonymous-blobs",
    "Nobody reads blobs without signing in",
    Severity.CRITICAL,
    {
        _ACCOUNT: (Demand("allowBlobPublicAccess", _NO),),
        _CONTAINER: (Demand("publicAccess", ("none",)),),
    },
    ("cis-azure:9.3.2.2", "uae-ia:T5.2.2", "iso27001:A.8.3", "iso27001:A.8.12", "nist-800-207:6"),
    "Set publicAccess of the container to None and allowBlobPublicAccess of the account to false.",
)

_local_users = demanding(
    "zero-trust-azure-storage-local-users",
    "Storage accounts have no users of their own",
    Severity.MEDIUM,
    {
        _ACCOUNT: (Demand("isLocalUserEnabled", _NO), Demand("isSftpEnabled", _NO)),
        azure("storage:LocalUser"): (
            Demand("hasSshPassword", _NO),
            Demand("hasSharedKey", _NO),
        ),
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Set isLocalUserEnabled and isSftpEnabled to false, and give people and services roles.",
)

RULES: tuple[Rule, ...] = (_anonymous, _local_users)
