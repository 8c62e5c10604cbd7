"""Takes Azure resource ids and key identifiers apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
