"""What each duty may do in Azure, operation by operation.

https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations
"""

from __future__ import annotations

from components.azure._custom_roles import Permissions

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices"
_KEYS = "Microsoft.KeyVault/vaults/keys"

#: Manage keys, and never use one: no encrypt, decrypt, wrap, unwrap, sign, verify, release; no
#: backup, which would carry keys away; no purge, which would end what they encrypt.
KEY_ADMINISTRATOR = Permissions(
    "Manages keys and can't use them.",
    actions=("Microsoft.KeyVault/vaults/read",),
    data_actions=(
        f"{_KEYS}/read",
        f"{_KEYS}/create/action",
        f"{_KEYS}/update/action",
        f"{_KEYS}/rotate/action",
        f"{_KEYS}/delete",
        f"{_KEYS}/recover/action",
        "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
        "Microsoft.KeyVault/vaults/keyrotationpolicies/write",
    ),
)

#: For Azure NetApp Files, which encrypts with the key itself:
#: https://learn.microsoft.com/azure/azure-netapp-files/configure-customer-managed-keys
KEY_ENCRYPTER = Permissions(
    "Encrypts and decrypts with keys.",
    data_actions=(f"{_KEYS}/read", f"{_KEYS}/encrypt/action", f"{_KEYS}/decrypt/action"),
)

BLOB_READER = Permissions(
    "Reads and lists objects.",
    actions=(f"{_BLOBS}/containers/read",),
    data_actions=(f"{_BLOBS}/containers/blobs/read",),
)

#: Older versions stay, so that what is overwritten or deleted can be had back; only they may not
#: be removed for good.
BLOB_WRITER = Permissions(
    "Reads, writes and deletes objects, and can't remove their older versions.",
    actions=(f"{_BLOBS}/containers/read",),
    data_actions=(
        f"{_BLOBS}/containers/blobs/read",
        f"{_BLOBS}/containers/blobs/write",
        f"{_BLOBS}/containers/blobs/add/action",
        f"{_BLOBS}/containers/blobs/delete",
    ),
)
