"""Ids of Azure's built-in roles, the same in every tenant.

https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUILT_IN_ROLES: Final[Mapping[str, str]] = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "AcrPush": "8311e382-0749-4cb8-b61a-304f252e45ec",
    "Azure Kubernetes Service Cluster User Role": "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
    "Azure Kubernetes Service RBAC Reader": "7f6c6a51-bcf8-42ba-9220-52d62157d7db",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
    "Key Vault Administrator": "00482a5a-887f-4fb3-b363-3b7fe8e74483",
    "Key Vault Contributor": "f25e0fa2-a7c8-4377-a976-54943a77a395",
    "Key Vault Crypto Officer": "14b46e9e-c2b7-41b4-b07b-48a6ebf60603",
    "Key Vault Crypto Service Encryption User": "e147488a-f6f5-4113-8e2d-b22465e65bf6",
    "Key Vault Crypto User": "12338af0-0e69-4776-bea7-57ae8d297424",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
    "Managed Identity Operator": "f1a07417-d97a-45cb-824c-7a7467783830",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Owner": "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
    "Private DNS Zone Contributor": "b12aa53e-6015-4669-85d0-8515ebb3ae7f",
    "Reader": "acdd72a7-3385-48ef-bd42-f606fba81ae7",
    "Role Based Access Control Administrator": "f58310d9-a9f6-439a-9e8d-f62e7b41a168",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    "User Access Administrator": "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",
    "Virtual Machine Contributor": "9980e02c-c2be-4d73-94e8-173b1dc7cf3c",
}
