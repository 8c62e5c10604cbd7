"""Settings of a foundation: network, keys, storage, registry, identities and audit trail."""

from __future__ import annotations

from typing import Literal

from falaj.components.specification import (
    audit_trail,
    budget,
    identity,
    key_ring,
    network,
    object_store,
    registry,
)
from falaj.stacks.settings.cloud import CloudSettings, Name
from falaj.stacks.settings.derived import cloud_section


class NetworkSettings(cloud_section(network.NetworkArgs)):
    """The private network; a key that is left out takes the component's default."""


class KeySettings(cloud_section(key_ring.KeyRingArgs, leaving_out=("purposes",))):
    """Keys, one for each purpose."""


class StorageSettings(cloud_section(object_store.ObjectStoreArgs, leaving_out=("buckets",))):
    """Object storage."""


class RegistrySettings(cloud_section(registry.RegistryArgs)):
    """The registry of images."""


class IdentitySettings(cloud_section(identity.IdentityArgs)):
    """Who has which duty."""


class AuditSettings(cloud_section(audit_trail.AuditTrailArgs)):
    """The trail of what was done, and who is told."""


class BudgetSettings(cloud_section(budget.BudgetArgs, optional=("emails",))):
    """A monthly limit in US dollars, and who is told when it is near: by default the owner."""


class OwnFoundation(CloudSettings):
    """The keys of a foundation, for stacks that make one or bring their own."""

    network: NetworkSettings = NetworkSettings()
    keys: KeySettings = KeySettings()
    storage: StorageSettings = StorageSettings()
    registry: RegistrySettings = RegistrySettings()
    identity: IdentitySettings = IdentitySettings()
    audit: AuditSettings = AuditSettings()
    budget: BudgetSettings | None = None


class FoundationSettings(OwnFoundation):
    """Everything that a ``foundation`` stack may say."""

    blueprint: Literal["foundation"]
    """What the stack makes: here what other stacks stand on."""


class OnFoundation(OwnFoundation):
    """The keys of a stack that stands on a foundation: another stack's, or its own."""

    foundation: Name | None = None
    """Stack to stand on and refer to. Default: the stack makes a foundation of its own, as
    ``falaj:network``, ``falaj:keys`` and the like say."""

    @property
    def upstream(self) -> str | None:
        """The foundation's stack."""
        return self.foundation
