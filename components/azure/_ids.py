"""Ids of resources, subnets and keys: takes them apart, and finds what they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

_ID = re.compile(
    r"^/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/(?P<provider>[^/]+)/(?P<rest>.+)$",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"^https://(?P<vault>[a-z0-9-]+)\.(?P<service>vault|managedhsm)\.azure\.net"
    r"/keys/(?P<name>[A-Za-z0-9-]+)(?:/(?P<version>[0-9a-f]{32}))?/?$"
)


class IdError(ValueError):
    """An id that isn't of the expected form; the text says what was given and what is expected."""


@dataclass(frozen=True)
class ResourceId:
    """An Azure resource id: ``/subscriptions/…/resourceGroups/…/providers/…``."""

    subscription: str
    group: str
    provider: str
    types: tuple[str, ...]
    """Types from the outermost to the resource's own: ``("vaults", "secrets")``."""
    names: tuple[str, ...]
    """Names of the same."""

    @property
    def name(self) -> str:
        """Name of the resource itself."""
        return self.names[-1]

    @property
    def parent(self) -> str:
        """Id of the outermost resource, such as the vault of a secret."""
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
            f"/providers/{self.provider}/{self.types[0]}/{self.names[0]}"
        )


@dataclass(frozen=True)
class KeyIdentifier:
    """A key's identifier: ``https://<vault>.vault.azure.net/keys/<name>[/<version>]``."""

    vault: str
    name: str
    version: str | None
    hardware_module: bool
    """Whether the key is in a Managed HSM and not in a vault."""


def resource_id(text: str, kind: str) -> ResourceId:
    """Take a resource id apart.

    Args:
        text: the id.
        kind: what it has to be: ``Microsoft.ContainerService/managedClusters``,
            ``Microsoft.KeyVault/vaults/secrets``. Compared without regard to case, as Azure does.

    Raises:
        IdError: it is no id of that kind.
    """
    match = _ID.match(text)
    provider, *kinds = kind.split("/")
    if match is not None:
        parts = match["rest"].strip("/").split("/")
        found = ResourceId(
            match["subscription"],
            match["group"],
            match["provider"],
            tuple(parts[::2]),
            tuple(parts[1::2]),
        )
        same = [found.provider.lower(), *(each.lower() for each in found.types)]
        if same == [provider.lower(), *(each.lower() for each in kinds)] and len(
            found.names
        ) == len(found.types):
            return found
    form = "".join(f"/{each}/<name>" for each in kinds)
    raise IdError(
        f"given {text!r}; allowed: /subscriptions/<id>/resourceGroups/<name>/providers/"
        f"{provider}{form}"
    )


def key_identifier(text: str) -> KeyIdentifier:
    """Take a key's identifier apart.

    Raises:
        IdError: it is no identifier of a key in a vault or Managed HSM.
    """
    match = _KEY.match(text)
    if match is None:
        raise IdError(f"given {text!r}; allowed: https://<vault>.vault.azure.net/keys/<name>")
    return KeyIdentifier(
        match["vault"], match["name"], match["version"], match["service"] == "managedhsm"
    )


_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers"


def bucket_id(ids: pulumi.Input[dict[str, str]], purpose: str) -> pulumi.Output[str]:
    """Id of the container of a purpose.

    Raises:
        pulumi.RunError: (in the output) the store has none.
    """

    def found(known: Mapping[str, str]) -> str:
        if purpose not in known:
            raise pulumi.RunError(
                f"bucket_ids: has no {purpose!r}, only {', '.join(sorted(known)) or 'nothing'}; "
                f"keep {purpose!r} among the store's buckets, or give nobody the duty that uses it"
            )
        return known[purpose]

    return pulumi.Output.from_input(ids).apply(found)


def store_id(bucket: pulumi.Input[str]) -> pulumi.Output[str]:
    """Id of the storage account of a container. Raises IdError, in the output."""
    return pulumi.Output.from_input(bucket).apply(
        lambda text: resource_id(text, _CONTAINER).parent
    )


_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"


def user_assigned(
    identity_id: pulumi.Input[str], opts: pulumi.InvokeOutputOptions
) -> pulumi.Output[managedidentity.GetUserAssignedIdentityResult]:
    """A user-assigned identity: its ``client_id`` and ``principal_id``, for who asks for these."""
    identity = pulumi.Output.from_input(identity_id).apply(
        lambda text: resource_id(text, _IDENTITY)
    )
    return managedidentity.get_user_assigned_identity_output(
        resource_group_name=identity.apply(lambda found: found.group),
        resource_name=identity.apply(lambda found: found.name),
        opts=opts,
    )


# Names of subnets are fixed, so that a subnet is found from the network's id.

NODES = "nodes"
ENDPOINTS = "endpoints"
STORAGE = "storage"
SERVING = "serving"
#: Where Container Apps run: delegated as well, /27 or larger:
#: https://learn.microsoft.com/azure/container-apps/custom-virtual-networks
CONTAINERS = "containers"


def subnet_id(network_id: pulumi.Input[str], name: str) -> pulumi.Output[str]:
    """Id of the subnet ``name`` of a network."""
    return pulumi.Output.concat(network_id, "/subnets/", name)
